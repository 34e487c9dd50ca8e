"""attnprobe swap: a pretrained model with another attention mechanism, and how far its predictions move."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import CoercionError, Parameter, convert

from attnprobe.cli.options import HOW, WRITE, RunOptions, TargetOptions, TextOptions
from attnprobe.cli.output import table, tell
from attnprobe.cli.places import PICTURES, check_place, written
from attnprobe.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from attnprobe.swapping import Swap


@Parameter(name="*", group=HOW)
@dataclass(frozen=True, kw_only=True)
class SwapOptions:
    """What is put where, and whose scores are compared."""

    mechanism: list[str]
    """One of `attnprobe mechanisms`; several with commas between."""

    option: list[str] | None = None
    """An option of the mechanism, as name=value, such as k=2. Say it again for more."""

    layers: str | None = None
    """Numbers of layers with commas between. [default: all]"""

    method: list[str] | None = None
    """Methods whose scores are compared, with commas between, or none. [default: four of all families]"""


def swap(
    model: str,
    /,
    how: SwapOptions,
    texts: TextOptions = TextOptions(),  # noqa: B008
    target: TargetOptions = TargetOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    *,
    out: Annotated[Path | None, Parameter(group=WRITE)] = None,
    format: Annotated[Literal["table", "json", "csv"], Parameter(group=WRITE)] = "table",
) -> None:
    """Run a model with another attention mechanism, in each layer alone and in all of them at once.

    Printed are means over the texts: how far the prediction moves (change of the target,
    KL divergence in nats, total variation), whether it is kept, and Kendall's tau of each
    method's scores before and after.

    Example:
      attnprobe swap attnprobe/sentiment --text "a dull film" --mechanism top_k --option k=2

    Parameters
    ----------
    model
        A Hugging Face Hub id, a folder with a saved model, or attnprobe/sentiment, which comes with attnprobe.
    out
        Where a picture goes (.png, .svg or .pdf). [default: none is drawn]
    format
        A table to read, or json or csv for programs.
    """
    if out is not None:
        check_place(out, PICTURES)
    from attnprobe.cli.surroundings import quiet

    with quiet():
        found = _found(model, how, texts, target, run)
        for note in dict.fromkeys(note for one in found for note in one.notes):
            tell(f"attnprobe: note: {note}")
        _print(_frame(found), format)
        if out is not None:
            tell(_draw(found, out))


def _found(model: str, how: SwapOptions, texts: TextOptions, target: TargetOptions, run: RunOptions) -> "list[Swap]":
    """What was typed, checked before any work, and run."""
    from attnprobe.cli.choices import chosen_target
    from attnprobe.cli.making import read_examples
    from attnprobe.cli.surroundings import load
    from attnprobe.cli.texts import read_texts
    from attnprobe.models.evaluator import batch_rows
    from attnprobe.swapping import METHODS
    from attnprobe.swapping import swap as ask

    given, names, method = read_texts(texts), _words(how.mechanism, "--mechanism"), how.method
    chosen = {name: _options(name, how.option or [], alone=len(names) == 1) for name in names}
    methods: Sequence[Any] = METHODS if method is None else [] if method == ["none"] else _words(method, "--method")
    asked: dict[str, Any] = {"layers": _numbers(how.layers), "methods": methods}
    loaded = load(model, device=run.device, dtype=run.dtype)
    goal, examples = chosen_target(loaded, target), read_examples(loaded, given, texts.truncate)
    with batch_rows(run.batch_rows):
        return [ask(loaded, name, examples, goal, **asked, **options) for name, options in chosen.items()]


def _words(given: Sequence[str], flag: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for word in given for name in word.split(",") if name.strip()))
    if not names:
        raise InputError(f"{flag} names nothing; give a name, or several with commas between")
    return names


def _numbers(layers: str | None) -> list[int] | None:
    if layers is None:
        return None
    words = [word.strip() for word in layers.split(",")]
    if not all(word.isdecimal() for word in words):
        raise InputError(f"--layers takes numbers with commas between, such as 0,2, got '{layers}'")
    return list(map(int, words))


def _options(mechanism: str, given: Sequence[str], *, alone: bool) -> dict[str, Any]:
    """Options of a mechanism from words such as "k=2", each of the type that its function says."""
    from attnprobe.attention.mechanism_names import unknown_mechanism
    from attnprobe.attention.mechanisms import ASKED, mechanisms
    from attnprobe.attention_swap import changes

    if mechanism not in changes and mechanism not in mechanisms:
        raise unknown_mechanism(mechanism, [*changes, *mechanisms])
    entry = (changes if mechanism in changes else mechanisms)[mechanism]
    found: dict[str, Any] = {}
    for word in given:
        name, equals, text = word.partition("=")
        if not alone or not equals:
            raise InputError(f"--option takes name=value of a single --mechanism, such as k=2, got '{word}'")
        if name not in entry.options or name in ASKED:
            known = ", ".join(known for known in entry.options if known not in ASKED) or "none"
            raise InputError(f"'{mechanism}' has no option '{name}' that a command could give; it has: {known}")
        try:
            found[name] = convert(inspect.signature(entry.function).parameters[name].annotation, [text])
        except CoercionError as error:
            error.verbose = False
            raise InputError(f"option {name} of {mechanism}: {error}") from error
    return found


def _frame(found: Sequence[Any]) -> "pd.DataFrame":
    import pandas as pd

    return pd.concat([one.to_frame() for one in found], ignore_index=True)


def _print(frame: "pd.DataFrame", format: str) -> None:
    if format == "json":
        print(frame.to_json(orient="records", indent=2, force_ascii=False))
        return
    if format == "csv":
        print(frame.to_csv(index=False), end="")
        return
    columns = ["mechanism", "stack", "kind", "layer", "measure", "method"]
    rows = [[str(row[name]) for name in columns] + [_number(row["mean"])] for _, row in frame.iterrows()]
    print(table([*columns, "mean"], rows))


def _number(value: float) -> str:
    return "–" if value != value else f"{0.0 if abs(value) < 1e-9 else value:.3g}"


def _draw(found: Sequence[Any], out: Path) -> str:
    from attnprobe.swap_figure import swap_panels

    figure = swap_panels(found)[0].figure
    return written(out, lambda: figure.savefig(out, dpi=160))  # type: ignore[union-attr]
