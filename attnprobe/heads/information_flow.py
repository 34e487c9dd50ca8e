"""Where information passes: what the answer loses when a position may not look at some tokens in a window of layers.

Attention knock-out after Geva et al. 2023: scores of the cut edges become −inf in all heads of the window, so that the
softmax spreads what they had over what is left. A curve over layers says where a source is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.capture import finite
from attnprobe.errors import InputError, nearest
from attnprobe.example import Example
from attnprobe.heads.addresses import stack_of
from attnprobe.heads.pairs import refuse_parts
from attnprobe.intervention import knock_out
from attnprobe.models import load
from attnprobe.models.evaluator import Meter, of_each
from attnprobe.models.model import Model, Stack
from attnprobe.models.reading import read_rows
from attnprobe.models.rows import Row
from attnprobe.site import Kind
from attnprobe.target import ResolvedTarget, as_target

Tokens = Sequence[int | str] | int | str
Sources = Mapping[str, Tokens] | Tokens | None


@dataclass(frozen=True, eq=False)
class InformationFlow:
    """The answer with the edges from `to` to each source cut, by the layer in the middle of the window.

    targets: of the cut runs, target units; target: of the whole one. probabilities, probability: of the label, NaN for
    a model that gives a single number, and for a target that is a function. sources: tokens by name. windows: the
    layers that were cut for each centre.
    """

    targets: Float[Tensor, "source layer"] = field(repr=False)
    probabilities: Float[Tensor, "source layer"] = field(repr=False)
    target: float
    probability: float
    sources: Mapping[str, tuple[int, ...]]
    windows: tuple[tuple[int, ...], ...] = field(repr=False)
    to: tuple[int, ...]
    resolved: ResolvedTarget
    stack: str
    kind: Kind
    model: str = ""
    forward_passes: int = 0
    seconds: float = 0.0

    @property
    def change(self) -> Float[Tensor, "source layer"]:
        """How much the target changes, target units."""
        return self.targets - self.target

    @property
    def relative(self) -> Float[Tensor, "source layer"]:
        """How much the probability of the label changes, of what it was: −1 all of it is lost."""
        return self.probabilities / self.probability - 1

    def to_frame(self) -> pd.DataFrame:
        """A row a source and layer: source, layer (middle of the window), first, last, answer and change (in
        the unit of the target), relative (share of the label's probability)."""
        rows = []
        for number, source in enumerate(self.sources):
            for layer, window in enumerate(self.windows):
                facts = {"source": source, "layer": layer, "first": window[0], "last": window[-1]}
                for name, values in (("answer", self.targets), ("change", self.change), ("relative", self.relative)):
                    facts[name] = float(values[number, layer])
                rows.append(facts)
        return pd.DataFrame(rows)


def information_flow(
    model: Any,
    example: Any,
    target: Any = None,
    *,
    sources: Sources = None,
    to: int | Sequence[int] | str = "read",
    window: int | None = None,
    stack: Stack | str | None = None,
) -> InformationFlow:
    """Cut the edges from a position to some tokens in `window` layers around each layer, one source at a time.

    sources: tokens by number, or words that stand in the text once (each alone); groups of them by name; or None: each
    token that `to` may look at, but itself. to: the position whose looking is cut, "last", or "read": where the answer
    is read. window: number of layers, fewer at both ends of the stack (None: a third of the layers, 5 at most). stack:
    as in `head_effect`.
    Errors: `InputError` for tokens or a window that are not there; `EditError` where a cut leaves nothing to look at.
    """
    model = load(model)
    example = example if isinstance(example, Example) else model.example(example)
    resolved = target if isinstance(target, ResolvedTarget) else model.resolve(example, as_target(target))
    chosen = stack_of(model, example, stack)
    refuse_parts(model, chosen)
    windows = _windows(chosen.n_layers, max(1, min(5, chosen.n_layers // 3)) if window is None else window)
    with Meter() as meter:
        queries = _queries(model, example, resolved, chosen, to)
        groups = _groups(example, sources, queries if chosen.kind == "self" else (), resolved.last_seen)
        where: dict[str, Any] = {"stack": chosen.name, "kind": chosen.kind}
        edits = [
            knock_out(list(queries), list(keys), layers=list(w), **where) for keys in groups.values() for w in windows
        ]
        rows = [Row(example), *(Row(example, edits=(edit,)) for edit in edits)]
        found = torch.tensor(of_each(model, rows, _reader(resolved), progress="cutting edges"), dtype=torch.float64)
    whole, cut = found[0], found[1:].view(len(groups), len(windows), 2)
    return InformationFlow(
        cut[..., 0], cut[..., 1], float(whole[0]), float(whole[1]), groups, windows, queries, resolved, chosen.name,
        chosen.kind, model.name, meter.forward, meter.seconds,
    )  # fmt: skip


def _reader(target: ResolvedTarget) -> Any:
    """Target and probability of the label of each row; the probability NaN where there is none."""

    def read(answers: Tensor, rows: Sequence[Row]) -> list[tuple[float, float]]:
        values = finite("the model's output", target(answers)).double().cpu()
        one_number = target.exclusive and answers.shape[-1] == 1
        if target.function is not None or one_number:
            shares = torch.full_like(values, torch.nan)
        else:
            shares = target.probability(answers).double().cpu()
        return list(zip(values.tolist(), shares.tolist(), strict=True))

    return read


def _windows(n_layers: int, window: int) -> tuple[tuple[int, ...], ...]:
    """The layers around each layer: as many as asked for, but for those that are not there.

    >>> _windows(4, 3)
    ((0, 1), (0, 1, 2), (1, 2, 3), (2, 3))
    """
    if not isinstance(window, int) or isinstance(window, bool) or window < 1:
        raise InputError(f"window is a number of layers, at least 1, got {window!r}")
    before, behind = window // 2, (window - 1) // 2
    return tuple(tuple(range(max(0, layer - before), min(n_layers, layer + behind + 1))) for layer in range(n_layers))


def _queries(
    model: Model, example: Example, target: ResolvedTarget, stack: Stack, to: int | Sequence[int] | str
) -> tuple[int, ...]:
    """The positions whose looking is cut."""
    if to == "read":
        if stack.name == "encoder" and any(s.kind == "cross" for s in model.stacks):
            raise InputError("no answer is read in an encoder whose states are looked at; say to=…, a token number")
        return tuple(read_rows(model, example, target, stack.kind).tolist())
    if to == "last":
        return (example.n_tokens - 1,) if stack.kind == "self" else (-1,)
    if isinstance(to, str):
        raise InputError(f"to is 'read', 'last' or the number of a position, got '{to}'")
    return (to,) if isinstance(to, int) else tuple(to)


def _groups(
    example: Example, sources: Sources, queries: Sequence[int], last_seen: int | None
) -> dict[str, tuple[int, ...]]:
    """Token numbers by name."""
    n = example.n_tokens
    if sources is None:
        last = n - 1 if last_seen is None else min(last_seen, n - 1)
        sources = [i for i in range(last + 1) if i not in queries and not example.hidden[i]]
    if isinstance(sources, Mapping):
        named = {str(name): _tokens(example, group) for name, group in sources.items()}
    else:
        each = [_tokens(example, one) for one in ([sources] if isinstance(sources, int | str) else sources)]
        named = {" ".join([str(one[0]), *(example.pieces[i].strip() for i in one)]): one for one in each}
    if not named or not all(named.values()):
        raise InputError("sources is empty, or a group of it is; name at least one token in each")
    return named


def _tokens(example: Example, given: Tokens) -> tuple[int, ...]:
    """Numbers of tokens: as they are, or all tokens of a word that stands in the text once."""
    n, found = example.n_tokens, list[int]()
    for one in [given] if isinstance(given, int | str) else given:
        if isinstance(one, str):
            found += _word(example, one)
        elif isinstance(one, bool) or not isinstance(one, int) or not -n <= one < n:
            raise InputError(f"sources are tokens, numbers from 0 to {n - 1}, or words of the text, got {one!r}")
        else:
            found.append(one % n)
    return tuple(found)


def _word(example: Example, word: str) -> list[int]:
    """The tokens of a word that stands in the text once, or a token by what it looks like."""
    known = _written(example)
    places = [place for name, place in known if name == word.strip()]
    if len(places) > 1:
        numbers = ", ".join(str(place[0]) for place in places)
        raise InputError(
            f"'{word}' stands {len(places)} times in the text; say which by the number of a token: {numbers}"
        )
    if not places:
        names = list(dict.fromkeys(name for name, _ in known))
        raise InputError(f"the text has no word '{word}'; {nearest(word, names)}, or give the number of a token")
    return places[0]


def _written(example: Example) -> list[tuple[str, list[int]]]:
    """Each word with its tokens, then each token that is no whole word."""
    words: dict[int, list[int]] = {}
    for index, number in enumerate(example.words):
        if number is not None and example.spans[index] is not None:
            words.setdefault(number, []).append(index)
    found = []
    for tokens in words.values():
        ends = [span for i in tokens if (span := example.spans[i]) is not None]
        found.append((example.text[ends[0][0] : ends[-1][1]].strip(), tokens))
    whole = {tokens[0] for _, tokens in found if len(tokens) == 1}
    return found + [(piece.strip(), [i]) for i, piece in enumerate(example.pieces) if i not in whole]
