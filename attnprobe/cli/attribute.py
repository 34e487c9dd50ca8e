"""attnprobe attribute: the scores of one method on one text."""

import re
from collections.abc import Iterable
from typing import Annotated, Any

from cyclopts import Parameter

from attnprobe.cli.completion import MethodName
from attnprobe.cli.options import HOW, READ, Flag, Format, RunOptions, TargetOptions, TextOptions
from attnprobe.cli.output import printable, tell
from attnprobe.cli.printing import emit, records, show_table
from attnprobe.errors import InputError


def attribute(
    model: str,
    /,
    target: TargetOptions = TargetOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    *,
    text: Annotated[str, Parameter(group=READ)],
    method: Annotated[MethodName, Parameter(group=HOW)],
    option: Annotated[list[str] | None, Parameter(group=HOW)] = None,
    truncate: Annotated[Flag, Parameter(group=READ)] = False,
    format: Format = "table",
) -> None:
    """Print how much each token of a text supports the prediction, by one method.

    Example:
      attnprobe attribute attnprobe/sentiment --text "a dull film" --method rollout

    Parameters
    ----------
    model
        A Hugging Face Hub id, a folder with a saved model, or attnprobe/sentiment, which comes with attnprobe.
    text
        The text to explain.
    method
        One of `attnprobe methods`.
    option
        An option of the method, as name=value. Say it again for more.
    truncate
        Cut a text that is longer than the model takes, instead of refusing it.
    """
    from attnprobe.cli.choices import chosen_methods, chosen_options, chosen_target
    from attnprobe.cli.making import read_examples
    from attnprobe.cli.surroundings import load, quiet
    from attnprobe.cli.texts import read_texts

    texts = read_texts(TextOptions(text=[text]))
    with quiet():
        name = _only(chosen_methods([method]))
        options = chosen_options([f"{name}.{word}" for word in option or ()], [name]).get(name, {})
        loaded = load(model, device=run.device, dtype=run.dtype)
        explained = chosen_target(loaded, target)
        example = read_examples(loaded, texts, truncate)[0]
        attribution = _attribute(loaded, example, name, explained, run.batch_rows, options)
    for warning in attribution.warnings:
        tell(f"attnprobe: warning: {warning}")
    _print(attribution, format)


def _only(names: list[str]) -> str:
    if len(names) > 1:
        raise InputError(f"--method takes one method, got {', '.join(names)}; `attnprobe report` compares several")
    return names[0]


def _attribute(model: Any, example: Any, method: str, target: Any, rows: int | None, options: dict[str, Any]) -> Any:
    from attnprobe.attributing import attribute as ask
    from attnprobe.models.evaluator import batch_rows

    with batch_rows(rows):
        return ask(model, example, method, target, **options)


def _print(attribution: Any, format: str) -> None:
    frame = attribution.to_frame()
    emit(format, lambda: records(frame), lambda: _show(attribution, frame), lambda: frame)


def _show(attribution: Any, frame: Any) -> None:
    unit = attribution.target.description if attribution.signed else "how much, without a direction"
    tell(f"{attribution.method}: {unit}")
    for line in _trust(attribution):
        tell(line)
    rows = [
        list(row) for row in zip(aligned(frame.score, attribution.signed), map(printable, frame.token), strict=True)
    ]
    unit = attribution.target.description if attribution.signed else "no direction"
    show_table([f"score ({unit})", "token"], rows, left={0, 1})


def aligned(scores: Iterable[float], signed: bool) -> list[str]:
    """Numbers of four digits with their points below one another.

    >>> aligned([12.5, -0.25], True)
    ['+12.5', ' -0.25']
    """
    words = [f"{score:{'+' if signed else ''}.4g}" for score in scores]
    before = [len(re.split(r"[.e]", word)[0]) for word in words]
    return [" " * (max(before) - n) + word for n, word in zip(before, words, strict=True)]


def _trust(attribution: Any) -> list[str]:
    """What tells how far the scores can be relied on, a line each."""
    lines = [f"passes: {attribution.forward_passes} forward, {attribution.backward_passes} backward"]
    if attribution.residual is not None:
        lines.append(f"residual: {attribution.residual:+.3g} (the sum of the scores, less what it should be)")
    if attribution.standard_error is not None:
        lines.append(f"standard error: at most {float(attribution.standard_error.max()):.3g} a token")
    if attribution.fit is not None:
        lines.append(f"fit: R² {attribution.fit:.2f} on inputs held back")
    return lines
