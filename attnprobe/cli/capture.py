"""attnprobe capture: the attention of a model on a text, kept in a folder, with the proof that it is what was used."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from attnprobe.cli.choices import numbers, words_of
from attnprobe.cli.options import HOW, WRITE, Format, LoadOptions, TextOptions
from attnprobe.cli.output import shown, tell
from attnprobe.cli.printing import emit, show_table


@Parameter(name="*", group=HOW)
@dataclass(frozen=True, kw_only=True)
class KeepOptions:
    """What is kept of a run."""

    keep: list[str] | None = None
    """Tensors, with commas between: weights, scores, query, key, value, z. [default: weights]"""

    layers: str | None = None
    """Numbers of layers with commas between, from 0. [default: all]"""

    heads: str | None = None
    """Numbers of heads with commas between, from 0. [default: all]"""

    stack: str | None = None
    """One stack of several, such as decoder. [default: all]"""


def capture(
    model: str,
    /,
    texts: TextOptions = TextOptions(),  # noqa: B008
    keep: KeepOptions = KeepOptions(),
    run: LoadOptions = LoadOptions(),  # noqa: B008
    *,
    out: Annotated[Path | None, Parameter(group=WRITE)] = None,
    format: Format = "table",
) -> None:
    """Keep the attention of a model on a text, and prove that it is what the model used.

    Printed is what was kept, and the checks: what each measured, and what is allowed.
    With --out a folder gets the tensors (safetensors) and all else (JSON);
    attnprobe.Capture.load(folder) reads it. Of several texts each has a folder in it.

    Example:
      attnprobe capture attnprobe/sentiment --text "a dull film" --out dull

    Parameters
    ----------
    model
        A Hugging Face Hub id, a folder with a saved model, or attnprobe/sentiment, which comes with attnprobe.
    out
        The folder that the capture goes into. [default: nothing is kept]
    """
    from attnprobe.cli.places import check_folder
    from attnprobe.cli.surroundings import quiet
    from attnprobe.cli.texts import read_texts

    if out is not None:
        check_folder(out)
    given = read_texts(texts)
    with quiet():
        captures = captured(model, given, texts.truncate, keep, run)
        if out is not None:
            folders = [out] if len(captures) == 1 else [out / f"text-{n}" for n in range(1, len(captures) + 1)]
            for one, folder in zip(captures, folders, strict=True):
                one.save(folder)
        emit(format, lambda: _facts(captures), lambda: _show(captures), lambda: weights_of(captures))
    if out is not None:
        tell(f"capture: {shown(out)}")


def captured(model: str, texts: Sequence[str], truncate: bool, keep: KeepOptions, run: LoadOptions) -> list[Any]:
    """A capture of each text; what was typed is checked before any work."""
    from attnprobe.attention.keep import Keep
    from attnprobe.cli.making import read_examples
    from attnprobe.cli.surroundings import load

    tensors = words_of(keep.keep, "--keep") or ["weights"]
    kept = Keep.of(*tensors, layers=numbers(keep.layers, "--layers"), heads=numbers(keep.heads, "--heads"),
                   stack=keep.stack)  # fmt: skip
    loaded = load(model, device=run.device, dtype=run.dtype)
    return [loaded.capture(loaded.example(text), keep=kept) for text in read_examples(loaded, texts, truncate)]


def weights_of(captures: Sequence[Any]) -> Any:
    """A row a weight of each text."""
    import pandas as pd

    return pd.concat([one.to_frame().assign(example_index=i) for i, one in enumerate(captures)], ignore_index=True)


def _facts(captures: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {
            "text": one.example.text,
            "tokens": list(one.example.tokens or ()),
            "model": one.model,
            "sites": [_site(site) for site in one.sites],
            "checks": [
                {"check": c.name, "where": c.where, "value": c.value, "tolerance": c.tolerance, "passed": c.passed}
                for c in one.checks
            ],
        }
        for one in captures
    ]


def _site(site: Any) -> dict[str, Any]:
    from attnprobe.site import TENSORS

    place = site.place
    kept = {name: list(t.shape[1:]) for name in TENSORS if (t := getattr(site, name)) is not None}
    return {"stack": place.stack, "kind": place.kind, "layer": place.layer, "path": place.path, "kept": kept}


def _show(captures: Sequence[Any]) -> None:
    for number, facts in enumerate(_facts(captures)):
        if number:
            print()
        sites = [
            [site["stack"], site["kind"], str(site["layer"]),
             ", ".join(f"{name} {' × '.join(map(str, shape))}" for name, shape in site["kept"].items())]
            for site in facts["sites"]
        ]  # fmt: skip
        note = "Shapes without the batch: heads × queries × keys, or × width"
        show_table(["stack", "kind", "layer", "kept"], sites, left={0, 1, 3}, title=f"{facts['text']}", note=note)
        print()
        _show_checks(facts["checks"])


def _show_checks(checks: Sequence[dict[str, Any]]) -> None:
    """A row a kind of check: the largest value of all places beside what is allowed there."""
    rows = []
    for name in dict.fromkeys(check["check"] for check in checks):
        mine = [check for check in checks if check["check"] == name]
        worst = max(mine, key=lambda check: check["value"] / check["tolerance"] if check["tolerance"] else 0.0)
        failed = sum(not check["passed"] for check in mine)
        said = f"{failed} of {len(mine)} failed" if failed else "passed" + (f" {len(mine)} times" if mine[1:] else "")
        rows.append([name, f"{worst['value']:.3g}", f"{worst['tolerance']:.3g}", said])
    show_table(["check", "largest", "allowed", "result"], rows, left={0, 3}, title="Checks")
