"""attnprobe swap: a pretrained model with another attention mechanism, and how far its predictions move."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import CoercionError, Parameter, convert

from attnprobe.cli.choices import numbers, words_of
from attnprobe.cli.completion import Mechanisms, MethodNamesOrNone
from attnprobe.cli.options import HOW, WRITE, Format, RunOptions, TargetOptions, TextOptions
from attnprobe.cli.output import tell
from attnprobe.cli.places import PICTURES, check_place, written
from attnprobe.cli.printing import emit, records, show_table
from attnprobe.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from attnprobe.swapping import Swap


SCALES = {"logit": "logits", "log_probability": "nats", "probability": "share of 1"}
UNITS = {
    "kl": "nats",
    "total_variation": "share of 1",
    "kept": "share of texts",
    "kendall_tau": "τ, −1 to 1",
}


@Parameter(name="*", group=HOW)
@dataclass(frozen=True, kw_only=True)
class SwapOptions:
    """What is put where, and whose scores are compared."""

    mechanism: Mechanisms
    """One of `attnprobe mechanisms`; several with commas between."""

    option: list[str] | None = None
    """An option of the mechanism, as name=value, such as k=2. Say it again for more."""

    layers: str | None = None
    """Numbers of layers with commas between. [default: all]"""

    method: MethodNamesOrNone = None
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
    format: Format = "table",
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
    """
    if out is not None:
        check_place(out, PICTURES)
    from attnprobe.cli.surroundings import quiet

    with quiet():
        found = _found(model, how, texts, target, run)
        for note in dict.fromkeys(note for one in found for note in one.notes):
            tell(f"attnprobe: note: {note}")
        _print(_frame(found), format, SCALES[target.scale])
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

    given, names, method = read_texts(texts), words_of(how.mechanism, "--mechanism"), how.method
    chosen = {name: _options(name, how.option or [], alone=len(names) == 1) for name in names}
    methods: Sequence[Any] = METHODS if method is None else [] if method == ["none"] else words_of(method, "--method")
    asked: dict[str, Any] = {"layers": numbers(how.layers, "--layers"), "methods": methods}
    loaded = load(model, device=run.device, dtype=run.dtype)
    goal, examples = chosen_target(loaded, target), read_examples(loaded, given, texts.truncate)
    with batch_rows(run.batch_rows):
        return [ask(loaded, name, examples, goal, **asked, **options) for name, options in chosen.items()]


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


def _print(frame: "pd.DataFrame", format: str, change: str) -> None:
    emit(format, lambda: records(frame), lambda: _show(frame, UNITS | {"change": change}), lambda: frame)


def _show(frame: "pd.DataFrame", units: dict[str, str]) -> None:
    columns = ["mechanism", "stack", "kind", "layer", "measure", "method"]
    rows = [
        [*(str(row[name]) for name in columns), _number(row["mean"]), units.get(str(row["measure"]), "")]
        for row in frame.to_dict("records")
    ]
    show_table([*columns, "mean", "unit"], rows, left={*range(len(columns)), len(columns) + 1}, lift=True)


def _number(value: float) -> str:
    return "–" if value != value else f"{0.0 if abs(value) < 1e-9 else value:.3g}"


def _draw(found: Sequence[Any], out: Path) -> str:
    from attnprobe.figure_files import save
    from attnprobe.swap_figure import swap_panels

    figure = swap_panels(found)[0].figure
    return written(out, lambda: save(figure, out))
