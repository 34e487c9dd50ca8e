"""How numbers of heads are said: with as many digits as the numbers beside them need, and with their unit.

The columns of every table of heads: `score` names what was measured, `value` is its number on one input (or where it is
measured once), `mean`, `low`, `high`, `n` are those over examples; `unit` says in what. `answer` is the target of a
changed run, and `share` how much of the way between two inputs it goes.
"""

import math
from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Any

from attnprobe.errors import InputError
from attnprobe.target import ResolvedTarget

DIGITS = 3
MOST_DECIMALS = 7
NO_NUMBER = "–"
MINUS = "\N{MINUS SIGN}"

OF_TARGET = "units of the target"
# The unit of effects by the scale of the target that they are measured on.
TARGET_UNITS = {"logit": "logits", "log_probability": "nats", "probability": "probability"}


def target_unit(target: ResolvedTarget) -> str:
    """In what a target, and so every effect on it, is measured: logits, nats (of log-probability), probability."""
    return OF_TARGET if target.function is not None else TARGET_UNITS[target.scale]


def decimals(values: Iterable[float], digits: int = DIGITS) -> int:
    """Decimals with which the largest of some numbers has so many digits.

    >>> decimals([0.0123, 0.4]), decimals([123.4]), decimals([])
    (3, 0, 2)
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    if largest == 0:
        return digits - 1
    return min(MOST_DECIMALS, max(0, digits - 1 - math.floor(math.log10(largest))))


def said(values: Sequence[float], *, signs: bool = False, digits: int = DIGITS, small: bool = True) -> list[str]:
    """Numbers of one column, with equal decimals: the largest has `digits` digits. signs: a + before those above 0.

    small: one that would look like 0 and is not gets a digit of its own, else it is 0. What is no number is a dash.

    >>> said([0.01234, 0.00001, 0.0, float("nan")])
    ['0.0123', '0.00001', '0', '–']
    >>> said([1.5, -0.25], signs=True)
    ['+1.50', '−0.25']
    """
    places = decimals(values, digits)
    return [_said(float(value), places, signs, small) for value in values]


def _said(value: float, places: int, signs: bool, small: bool) -> str:
    if not math.isfinite(value) or value == 0:
        return NO_NUMBER if value else "0"
    text = f"{abs(value):.{places}f}"
    if float(text) == 0 and not small:
        return "0"
    if float(text) == 0:
        size = -math.floor(math.log10(abs(value)))
        text = f"{abs(value):.{size}f}" if size <= MOST_DECIMALS else f"{abs(value):.0e}".replace("e-", f"e{MINUS}")
    return (MINUS if value < 0 else "+" * signs) + text


def need(given: Any, kind: type | UnionType, made_by: str) -> None:
    """`InputError` for what is no result of the named call, with what to give instead."""
    if not isinstance(given, kind):
        what = f"'{given[:30]}'" if isinstance(given, str) else type(given).__name__
        raise InputError(f"expected what {made_by} gives, got {what}")
