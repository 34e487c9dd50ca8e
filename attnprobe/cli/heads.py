"""attnprobe heads: what each head of a model does on some texts: tables, pictures and a page."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from attnprobe.cli.options import (
    HOW,
    READ,
    WRITE,
    AtLeastOne,
    Flag,
    NotNegative,
    RunOptions,
    TargetOptions,
    TextOptions,
)
from attnprobe.cli.output import shown, table, tell
from attnprobe.errors import InputError

if TYPE_CHECKING:
    from attnprobe.head_profile import HeadProfile

EFFECTS = ("gate_gradient",)
MOST_DRAWN = 2  # texts whose maps are drawn


@Parameter(name="*", group=READ)
@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Where the texts come from."""

    text: list[str] | None = None
    """A text to read. Say it again for more texts; intervals take six."""

    texts: Annotated[Path | None, Parameter(name=["--texts", "--file"])] = None
    """Texts: a table (.csv or .tsv) with one a row, or any other text file with one a line."""

    column: str | None = None
    """The column of the table that holds the texts. [default: text]"""

    truncate: Flag = False
    """Cut a text that is longer than the model takes, instead of refusing it."""


@Parameter(name="*", group=HOW)
@dataclass(frozen=True, kw_only=True)
class AskOptions:
    """What is asked of each head."""

    score: list[str] | None = None
    """Scores of maps, with commas between, such as entropy,previous_token. [default: all]"""

    effect: list[str] | None = None
    """Effects on the prediction, with commas between, such as zero_ablation, or none. [default: gate_gradient]"""

    probe: list[str] | None = None
    """Scores on random tokens, or of parameters: induction, copying, ov_copying, …. [default: none]"""

    stack: str | None = None
    """One stack of several, such as decoder.cross. [default: all]"""

    top: AtLeastOne = 3
    """How many heads are named for each score."""

    seed: NotNegative = 0
    """Number that all random choices follow from."""


def heads(
    model: str,
    /,
    read: ReadOptions = ReadOptions(),
    target: TargetOptions = TargetOptions(),  # noqa: B008
    ask: AskOptions = AskOptions(),
    run: RunOptions = RunOptions(),  # noqa: B008
    *,
    out: Annotated[Path | None, Parameter(group=WRITE)] = None,
    format: Annotated[Literal["table", "json"], Parameter(group=WRITE)] = "table",
    invocation: Annotated[str, Parameter(parse=False)] = "",
) -> None:
    """Say what each head of a model does on your texts: where it looks, and what the prediction owes to it.

    Printed are the highest heads of each score with their 95 % intervals over the texts.
    With --out a folder gets all of it: tables (csv), pictures (png), and a page, heads.html.

    Example:
      attnprobe heads attnprobe/sentiment --texts texts.txt --out desk

    Parameters
    ----------
    model
        A Hugging Face Hub id, a folder with a saved model, or attnprobe/sentiment, which comes with attnprobe.
    out
        The folder that tables, pictures and the page go into. [default: nothing is written]
    format
        A table to read, or json for programs: every score of every head.
    """
    from attnprobe.cli.surroundings import quiet
    from attnprobe.cli.texts import read_texts

    if out is not None:
        _check_folder(out)
    given = read_texts(TextOptions(text=read.text, file=read.texts, column=read.column))
    with quiet():
        loaded, examples, profile = _profiled(model, given, read.truncate, target, ask, run)
        for warning in profile.warnings:
            tell(f"attnprobe: warning: {warning}")
        _print(profile, ask.top, format)
        if out is not None:
            tell(_write(loaded, examples, profile, out, ask.top, invocation))


def _check_folder(out: Path) -> None:
    if out.is_file():
        raise InputError(f"{out} is a file; give the name of a folder")
    there = next(parent for parent in (out, *out.absolute().parents) if parent.exists())
    if not there.is_dir():
        raise InputError(f"{out} cannot be made: {there} is a file; choose another place")


def _profiled(
    model: str, given: list[str], truncate: bool, target: TargetOptions, ask: AskOptions, run: RunOptions
) -> tuple[Any, list[Any], "HeadProfile"]:
    """What was typed, checked before any work, and measured."""
    from attnprobe.cli.choices import chosen_target
    from attnprobe.cli.desk import effects_named, probes_named, scores_named, stack_named
    from attnprobe.cli.making import read_examples
    from attnprobe.cli.surroundings import load
    from attnprobe.models.evaluator import batch_rows
    from attnprobe.profiling import profile

    asked: dict[str, Any] = {
        "scores": scores_named(ask.score),
        "effects": effects_named(ask.effect, EFFECTS),
        "probes": probes_named(ask.probe),
    }
    loaded = load(model, device=run.device, dtype=run.dtype)
    stack, kind = stack_named(loaded, ask.stack)
    goal, examples = chosen_target(loaded, target), read_examples(loaded, given, truncate)
    with batch_rows(run.batch_rows):
        found = profile(loaded, examples, **asked, target=goal, stack=stack, kind=kind, seed=ask.seed)
    return loaded, examples, found


def _print(profile: "HeadProfile", top: int, format: str) -> None:
    if format == "json":
        print(json.dumps(facts(profile), indent=2, ensure_ascii=False))
        return
    from attnprobe.head_page import top_table

    rows = [
        [row["label"], *(f"{h['head']}  {h['mean']} {h['interval']}".rstrip() for h in row["heads"])]
        for row in top_table(profile, top)
    ]
    width = max(map(len, rows))
    print(table(["score", "highest heads", *[""] * (width - 2)], [row + [""] * (width - len(row)) for row in rows]))


def facts(profile: "HeadProfile") -> dict[str, Any]:
    """The profile for programs: what each score is, a record a head and score, what failed."""
    rows = json.loads(profile.long().to_json(orient="records"))
    known = ("stack", "kind", "layer", "head", "score", "mean", "low", "high", "n")
    return {
        "model": profile.model,
        "n_texts": profile.n_examples,
        "targets": list(profile.targets),
        "scores": {
            name: {key: getattr(told, key) for key in ("label", "form", "family", "unit", "description", "source")}
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
