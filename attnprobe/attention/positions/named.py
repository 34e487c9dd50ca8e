"""Schemes of positions by name, for those who need no settings: positions="rotary"."""

from attnprobe.attention.positions import NONE, Positions
from attnprobe.attention.positions.alibi import alibi
from attnprobe.attention.positions.buckets import t5
from attnprobe.attention.positions.learned import learned
from attnprobe.attention.positions.rotary import rotary
from attnprobe.attention.positions.sinusoidal import sinusoidal
from attnprobe.errors import InputError, nearest

NAMES = ("none", "sinusoidal", "learned", "t5", "alibi", "rotary")


def as_positions(
    given: "Positions | str | None", *, n_heads: int, d_model: int, max_length: int | None = None
) -> Positions:
    """A scheme, by its name or as it is; None for a learned table of max_length rows (none where there is no length).

    Errors: `InputError` for a name that is not known; Shaw's reach the values, and have a module of their own.

    >>> as_positions("alibi", n_heads=2, d_model=8).name
    'alibi'
    """
    if isinstance(given, Positions):
        return given
    name = given if given is not None else "none" if max_length is None else "learned"
    if name == "learned" and max_length is None:
        raise InputError("a learned table has a length; give positions=learned(max_length, d_model)")
    if name == "learned":
        return learned(max_length or 1, d_model)
    if name not in NAMES:
        raise InputError(f"positions are a scheme or its name, got {given!r}; {nearest(name, NAMES)}")
    if name == "sinusoidal":
        return sinusoidal(d_model)
    return {"none": lambda: NONE, "t5": lambda: t5(n_heads), "alibi": lambda: alibi(n_heads), "rotary": rotary}[name]()
