"""What can go wrong, and what to do about it.

AttnprobeError
├── InputError      what the caller gave cannot be used: a name, a text, an option, a file
├── CaptureError    attention that should have been seen was not, or a self-check failed
├── RowsError       several inputs of one pass cannot be told apart at an attention; give one at a time
├── EditError       an edit that fits no attention of the model, or never fired
└── NumericsError   a NaN or an overflow, with the place where it appeared

Every message says what was got, what was expected and what to do. The command line prints the
message alone and ends with exit code 2.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class AttnprobeError(Exception):
    """Anything that attnprobe itself refuses or finds wrong."""


class InputError(AttnprobeError, ValueError):
    """The caller's input cannot be used."""


class CaptureError(AttnprobeError, RuntimeError):
    """Attention was not seen, or what was seen is not what the model used."""


class RowsError(AttnprobeError, RuntimeError):
    """Several inputs of one pass cannot be told apart at an attention that lays them out in its own way."""


class EditError(AttnprobeError, ValueError):
    """An edit names a place that the model does not have, or never fired."""


class NumericsError(AttnprobeError, ArithmeticError):
    """A value is not finite."""


def nearest(name: object, known: Iterable[object]) -> str:
    """A half-sentence that names the nearest valid entry, or lists the valid ones.

    >>> nearest("roll_out", ["rollout", "raw_attention"])
    "did you mean 'rollout'?"
    >>> nearest("xyz", ["b", "a"])
    'known: a, b'
    """
    names = sorted(str(entry) for entry in known)
    close = get_close_matches(str(name), names, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    listed = ", ".join(names[:20])
    return f"known: {listed}" + (f", … ({len(names)} in all)" if len(names) > 20 else "")


def told(error: Exception) -> str:
    """What went wrong, in words: our own errors say it in full, others need their type.

    >>> told(InputError("the text is empty")), told(ValueError("boo"))
    ('the text is empty', 'ValueError: boo')
    """
    return str(error) if isinstance(error, AttnprobeError) else f"{type(error).__name__}: {error}"
