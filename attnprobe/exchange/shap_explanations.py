"""Attributions as shap.Explanation, and methods made of one.

>>> import shap                                       # doctest: +SKIP
>>> shap.plots.text(to_shap(attribution, model=model))    # doctest: +SKIP
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnprobe.attribution import Attribution
from attnprobe.errors import InputError, nearest
from attnprobe.example import Example
from attnprobe.exchange.given_scores import OWN, from_scores
from attnprobe.exchange.kinds import attributions as listed_attributions
from attnprobe.exchange.libraries import library
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.registry import Entry


def to_shap(attributions: Any, *, model: Model | None = None) -> Any:
    """A `shap.Explanation` of one text [token], or of several as shap holds texts of different lengths.

    values: the scores; data: the tokens as the text has them, which joined give the text (special tokens are empty).
    base_values: what is left of the explained number when the scores are taken off it. Only `model` can tell that
    number; without it the base is 0, and shap's plots begin there. Errors: `InputError` where shap is not installed.
    """
    listed, single = listed_attributions(attributions, "to_shap"), isinstance(attributions, Attribution)
    shap = library("shap", "to_shap")
    if not listed:
        raise InputError("to_shap needs at least one attribution, got none")
    values = [a.scores.double().numpy() for a in listed]
    data = [np.array(_segments(a.example), dtype=object) for a in listed]
    base = [_base(a, model) for a in listed]
    if single:
        return shap.Explanation(values[0], base_values=base[0], data=data[0])
    return shap.Explanation(_ragged(values), base_values=np.array(base), data=_ragged(data))


def _base(attribution: Attribution, model: Model | None) -> float:
    if model is None:
        return 0.0
    explained = float(model.targets([Row(attribution.example)], attribution.target)[0])
    return explained - float(attribution.scores.double().sum())


def _segments(example: Example) -> list[str]:
    """Each token with the text up to the next, so that all joined are the text; the tokens where there is no text."""
    if example.pair is not None or not any(example.spans):
        return [piece if piece.endswith(" ") else f"{piece} " for piece in example.pieces]
    found, end = [""] * example.n_tokens, len(example.text)
    for index in reversed(range(example.n_tokens)):
        span = example.spans[index]
        if span is not None and span[0] <= end:
            found[index], end = example.text[span[0] : end], span[0]
    first = next(index for index, span in enumerate(example.spans) if span is not None)
    found[first] = example.text[:end] + found[first]
    return found


def _ragged(arrays: Sequence[np.ndarray]) -> np.ndarray:
    found = np.empty(len(arrays), dtype=object)
    for index, array in enumerate(arrays):
        found[index] = array
    return found


def from_shap(
    name: str,
    explanation: Any,
    *,
    output: str | int | None = None,
    texts: Sequence[Any] | None = None,
    family: str = OWN,
) -> Entry:
    """A method made of a `shap.Explanation` of one text or many, for `compare(methods=[...])`.

    output: which of several explained outputs, by name or number. A text is found by its tokens, or by its number among
    `texts`; see `from_scores`. Errors: `InputError` for several outputs and none chosen, or values that are not one a
    token.
    """
    values, data = getattr(explanation, "values", None), getattr(explanation, "data", None)
    if values is None or data is None:
        raise InputError(
            f"'{name}': expected a shap.Explanation with values and data, got {type(explanation).__name__}"
        )
    single = len(data) > 0 and isinstance(data[0], str)
    found = []
    for at, (numbers, tokens) in enumerate([(values, data)] if single else zip(values, data, strict=True)):
        chosen = _of_output(np.asarray(numbers), output, getattr(explanation, "output_names", None), name)
        if chosen.shape != (len(tokens),):
            raise InputError(f"'{name}', text {at}: {len(tokens)} tokens, but values of shape {chosen.shape}")
        found.append(list(zip(map(str, tokens), chosen.tolist(), strict=True)))
    return from_scores(name, found, texts=texts, signed=True, family=family, source="a shap.Explanation")


def _of_output(values: np.ndarray, output: str | int | None, names: Any, method: str) -> np.ndarray:
    """The values [token] of one output."""
    if values.ndim == 1:
        return values.astype(float)
    known = [str(one) for one in names] if names is not None and not isinstance(names, str) else []
    if output is None and values.shape[-1] > 1:
        raise InputError(f"'{method}' explains {values.shape[-1]} outputs ({', '.join(known)}); say output=…")
    if isinstance(output, str):
        if output not in known:
            raise InputError(f"'{method}' has no output '{output}'; {nearest(output, known)}")
        output = known.index(output)
    index = output or 0
    if not 0 <= index < values.shape[-1]:
        raise InputError(f"'{method}' has outputs 0 to {values.shape[-1] - 1}, got {index}")
    return values[..., index].astype(float)
