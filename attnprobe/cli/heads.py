"""attnprobe heads: what each head of a model does on some texts: tables, pictures and a page."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from attnprobe.cli.completion import Effects, HeadScores, Probes
from attnprobe.cli.options import (
    HOW,
    READ,
    WRITE,
    AtLeastOne,
    Flag,
    Format,
    NotNegative,
    RunOptions,
    TargetOptions,
    TextOptions,
)
from attnprobe.cli.output import shown, tell
from attnprobe.cli.places import check_folder
from attnprobe.cli.printing import emit, records, show_note, show_table
from attnprobe.errors import InputError

if TYPE_CHECKING:
    from attnprobe.head_profile import HeadProfile

EFFECTS = ("gate_gradient",)
MOST_DRAWN = 2  # texts whose maps are drawn


@Parameter(name="*", group=HOW)
@dataclass(frozen=True, kw_only=True)
class AskOptions:
    """What is asked of each head."""

    score: HeadScores = None
    """Scores of maps, with commas between, such as entropy,previous_token; shares of the weight (0 to 1), nats or
    tokens, as --list says. [default: all]"""

    effect: Effects = None
    """Effects on the prediction, with commas between, such as zero_ablation,direct_logit, or none; in the unit of
    --scale, which is logits unless you say otherwise. [default: gate_gradient]"""

    probe: Probes = None
    """Scores on random tokens, or of parameters, such as induction,copying; shares (0 to 1), or -1 to 1, as --list
    says. [default: none]"""

    stack: str | None = None
    """One stack of several, such as decoder.cross; `attnprobe inspect` names them. [default: all]"""

    top: AtLeastOne = 3
    """How many heads are named for each score, such as 5."""

    seed: NotNegative = 0
    """Number that all random choices follow from, such as 1."""


def heads(
    model: str | None = None,
    /,
    texts: TextOptions = TextOptions(),  # noqa: B008
    target: TargetOptions = TargetOptions(),  # noqa: B008
    ask: AskOptions = AskOptions(),
    run: RunOptions = RunOptions(),  # noqa: B008
    *,
    list: Annotated[Flag, Parameter(group=READ)] = False,
    out: Annotated[Path | None, Parameter(group=WRITE)] = None,
    format: Format = "table",
    invocation: Annotated[str, Parameter(parse=False)] = "",
) -> None:
    """Say what each head of a model does on your texts: where it looks, and what the prediction owes to it.

    Printed are the highest heads of each score, with 95 % intervals over texts and what even attention would score
    (chance). With --out a folder gets all of it: tables (csv), pictures (png), and a page, heads.html.

    Examples:
      attnprobe heads --list
      attnprobe heads attnprobe/sentiment --texts texts.txt --effect zero_ablation --out desk

    Parameters
    ----------
    model
        A Hugging Face Hub id, a folder with a saved model, or attnprobe/sentiment, which comes with attnprobe.
    list
        Name what can be asked of heads, with units and sources, and do nothing else. [default: off]
    out
        The folder that tables, pictures and the page go into, such as desk. [default: nothing is written]
    """
    from attnprobe.cli.desk import print_known
    from attnprobe.cli.surroundings import quiet
    from attnprobe.cli.texts import read_texts

    if list:
        return print_known(format)
    if model is None:
        raise InputError("no model is named; give one, such as attnprobe/sentiment, or --list for what can be asked")
    if out is not None:
        check_folder(out)
    given = read_texts(texts)
    with quiet():
        loaded, examples, profile = _profiled(model, given, texts.truncate, target, ask, run)
        for warning in profile.warnings:
            tell(f"attnprobe: warning: {warning}")
        _print(profile, ask.top, format)
        if out is not None:
            tell(_write(loaded, examples, profile, out, ask.top, invocation))


def _profiled(
    model: str, given: list[str], truncate: bool, target: TargetOptions, ask: AskOptions, run: RunOptions
) -> tuple[Any, list[Any], "HeadProfile"]:
    """What was typed, checked before any work, and measured."""
    from attnprobe.cli.choices import chosen_target
    from attnprobe.cli.desk import effects_named, probes_named, read, scores_named, stack_named
    from attnprobe.cli.surroundings import load
    from attnprobe.models.evaluator import batch_rows
    from attnprobe.profiling import profile

    asked: dict[str, Any] = {
        "scores": scores_named(ask.score),
        "effects": effects_named(ask.effect, EFFECTS, len(given)),
        "probes": probes_named(ask.probe),
    }
    loaded = load(model, device=run.device, dtype=run.dtype)
    stack, kind = stack_named(loaded, ask.stack)
    goal, examples = chosen_target(loaded, target), read(loaded, given, truncate)
    with batch_rows(run.batch_rows):
        found = profile(loaded, examples, **asked, target=goal, stack=stack, kind=kind, seed=ask.seed)
    return loaded, examples, found


def _print(profile: "HeadProfile", top: int, format: str) -> None:
    emit(format, lambda: facts(profile), lambda: _show(profile, top), profile.long)


def _show(profile: "HeadProfile", top: int) -> None:
    from attnprobe.head_page import top_table

    rows, shown_any = top_table(profile, top), False
    asked = [row for row in rows if row["warned"] or not row["reason"]]
    others = [row for row in rows if not (row["warned"] or not row["reason"])]
    for form, title in _titles(profile).items():
        mine = [row for row in asked if row["form"] == form]
        if mine:
            if shown_any:
                print()
            _show_part(mine, form, title)
            shown_any = True
    if others:
        print("" if shown_any else "what the map looks like")
        reasons = [f"{row['label']} ({row['needs'] or row['reason']})" for row in others]
        show_note(f"no number here: {'; '.join(reasons)}")


def _titles(profile: "HeadProfile") -> dict[str, str]:
    """What stands above each part of the table."""
    n, targets = profile.n_examples, {target for target in profile.targets if target}
    what = targets.pop() if len(targets) == 1 else "prediction of each text"
    return {
        "score": f"what the map looks like, on {n} text{'s' * (n != 1)} (chance: what even attention scores)",
        "effect": f"effects on the {what}, in {profile.target_unit} (largest first, whatever the direction)",
        "probe": "on random tokens, or by parameters",
    }


def _show_part(rows: list[dict[str, Any]], form: str, title: str) -> None:
    """The rows of one form: label, chance, and the heads with mean and interval, or why there are none."""
    chance = any(row["chance"] != "–" for row in rows)
    lines, missing = [], []
    for row in rows:
        if row["reason"]:
            missing.append(f"{row['label']}: no number: {row['reason']}")
            continue
        facts = [[f"{one['head']}  {one['mean']}", one["interval"], one["n"]] for one in row["heads"]]
        named = [" ".join(part for part in one if part) for one in facts]
        lines.append([row["label"], *[row["chance"]] * chance, *named])
    width = max(map(len, lines), default=2)
    heading = ["score", *["chance"] * chance, "largest heads" if form == "effect" else "highest heads"]
    heading += [""] * (width - len(heading))
    if lines:
        show_table(heading, [line + [""] * (width - len(line)) for line in lines], left=range(width), title=title)
    for line in missing:
        show_note(line)


def facts(profile: "HeadProfile") -> dict[str, Any]:
    """The profile for programs: what each score is, a record a head and score, what failed."""
    rows = records(profile.long())
    known = ("stack", "kind", "layer", "head", "score", "mean", "low", "high", "n", "chance", "unit")
    return {
        "model": profile.model,
        "n_texts": profile.n_examples,
        "targets": list(profile.targets) if any(profile.targets) else [],
        "scores": {
            name: {
                **{key: getattr(told, key) for key in ("label", "form", "family", "description", "source")},
                "unit": profile.unit_of(name),
                "sign": told.sign,
                "reason": profile.reason(name),
            }
            for name, told in profile.facts.items()
        },
        "heads": [{key: row[key] for key in known} for row in rows],
        "warnings": list(profile.warnings),
    }


def _write(loaded: Any, examples: list[Any], profile: "HeadProfile", out: Path, top: int, command: str) -> str:
    from attnprobe.attention.seam import Keep
    from attnprobe.errors import AttnprobeError
    from attnprobe.head_page import write_desk

    captures = []
    for example in examples[:MOST_DRAWN]:
        try:
            captures.append(loaded.capture(loaded.example(example), keep=Keep.of("weights")))
        except AttnprobeError:  # the profile has said why
            continue
    paths = write_desk(profile, out, captures=captures, k=top, command=command)
    return f"page:   {shown(paths[-1])}\ntables: {', '.join(shown(path) for path in paths[:2])}"
