"""view(): a capture as an interactive picture, in a notebook or on a page of its own."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe.capture import Capture
from attnprobe.errors import CaptureError, InputError
from attnprobe.heads.addresses import Head, heads_named, is_pair
from attnprobe.models.model import Model
from attnprobe.placing import placed_text
from attnprobe.target import as_target
from attnprobe.viewer.facts import facts, score_facts
from attnprobe.viewer.markup import frame, page
from attnprobe.viewer.measures import measures
from attnprobe.viewer.packing import Budget
from attnprobe.viewer.tokens import visible

HEIGHT = 860
LONGEST_LINE = 160
_PAIR = re.compile(r"(\d+)\.(\d+)")
BUDGET = 12_000_000


@dataclass(frozen=True, eq=False)
class View:
    """What `view` made: shows itself in a notebook, saves itself as a page, and gives its numbers in full precision."""

    capture: Capture = field(repr=False)
    title: str
    html: str = field(repr=False)
    height: int = HEIGHT

    def _repr_html_(self) -> str:
        return frame(self.html, self.title, self.height)

    def save(self, path: str | Path) -> Path:
        """Write one self-contained page, whole or not at all; `InputError` where that cannot be done."""
        path = Path(path)
        try:
            placed_text(path, self.html)
        except OSError as error:
            raise InputError(f"the view cannot be written to {path}: {error.strerror}; choose another place") from error
        return path

    def to_frame(self) -> pd.DataFrame:
        """A row a weight, in full precision: stack, kind, layer, head, query_index, key_index, weight."""
        return self.capture.to_frame()


def view(
    capture: Any,
    *,
    model: Any = None,
    target: Any = None,
    heads: Any = None,
    title: str | None = None,
    height: int = HEIGHT,
    max_bytes: int = BUDGET,
) -> View:
    """A capture to look at: all heads at once, one head as map and arcs, one weight with what it is made of.

    model: adds the length of what each value writes (|α v W_O|). target: adds attention × gradient, what the target
    owes to each weight; needs the model. heads: those that stay full on long texts, the first of them opened, named
    "5.1" or (5, 1). Scores before the softmax, queries, keys and values show where the capture kept them
    (`Keep.of("weights", "scores", "query", "key", "value")`). max_bytes: of compressed weights at most.
    Errors: `InputError` for what is no capture, for a target without a model, for heads that are not there;
    `CaptureError` where no weights were kept.
    """
    if not isinstance(capture, Capture):
        raise InputError(
            f"view() shows a Capture, got {type(capture).__name__}; make one with model.capture(model.example(text))"
        )
    if not any(site.weights is not None for site in capture.sites):
        raise CaptureError("no weights were kept in this capture; say keep=Keep.of('weights') when capturing")
    if model is not None and not isinstance(model, Model):
        raise InputError(f"model is what attnprobe.load() gives, got {type(model).__name__}")
    if target is not None and model is None:
        raise InputError("effects of weights on a target need the model: view(capture, model=model, target=…)")
    goal = None if target is None or model is None else model.resolve(capture.example, as_target(target))
    first = [(h.stack, h.kind, h.layer, h.head) for h in _heads(capture, model, heads)]
    beside = measures(capture, model, goal)
    told, _ = facts(capture, Budget(max_bytes), beside=beside, first=first, every_step=True)
    if not told:
        raise InputError(f"max_bytes={max_bytes} is too small for this capture, even as an overview; give more")
    name = title or f"Attention of {_called(capture.model)}"
    return View(capture, name, page({**told, "score_facts": score_facts()}, name, _line(capture)), height)


def _called(model: str) -> str:
    """A model's name; of a folder on this machine the last part alone.

    >>> _called("/srv/models/bert"), _called("org/bert")
    ('bert', 'org/bert')
    """
    return Path(model).name if model.startswith(("/", "~", ".")) or ":\\" in model else model


def _line(capture: Capture) -> str:
    """The text that is shown, and the answer where the model writes one, on one line."""
    example = capture.example
    whole = example.text if example.pair is None else f"{example.text} ⁄ {example.pair}"
    answer = [str(t) for t in example.notes.get("answer_tokens", example.notes.get("decoder_tokens", ()))]
    if answer:
        whole += " → " + " ".join(answer)
    line = "".join(c if c == " " else visible(c) for c in " ".join(whole.split()))
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def _heads(capture: Capture, model: Model | None, heads: Any) -> tuple[Head, ...]:
    """The heads that were named; without a model, `Head`s, pairs and "5.1" in the stack that is explained."""
    if heads is None:
        return ()
    if model is not None:
        return heads_named(model, heads)
    one = isinstance(heads, Head | str) or is_pair(heads) or not isinstance(heads, Iterable)
    return tuple(_head(capture, given) for given in ([heads] if one else heads))


def _head(capture: Capture, given: Any) -> Head:
    if isinstance(given, Head):
        return given
    pair = _PAIR.fullmatch(given.strip()) if isinstance(given, str) else None
    if pair is None and not is_pair(given):
        raise InputError(f"{given!r} names no head here; write (5, 1) or '5.1', or give the model too")
    layer, head = (int(part) for part in (pair.groups() if pair else given))
    place = capture.select()[0].place
    return Head(place.stack, place.kind, layer, head)
