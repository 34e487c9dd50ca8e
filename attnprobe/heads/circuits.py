"""The circuits of one head, from parameters alone: what it writes for what it reads (OV), and what it looks for (QK).

Norms are folded in where they stand before the head's maps or behind its output: their gain, and the centring of a
LayerNorm. The σ that they divide by, their shifts, the biases of maps, the scale of scores (1/√d) and caps are no part
of W_OV and W_QK. Of words a token stands in the stream alone: its embedding (positions are not in it) goes the direct
way to the head, through every norm on it (each divides by the token's own length), as if no other layer wrote.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.heads.addresses import Head, head_of
from attnprobe.heads.wiring import Side, Wiring, stack_of, wiring
from attnprobe.models import load
from attnprobe.models.model import Model
from attnprobe.models.ways import Way
from attnprobe.models.word_tables import WordTable, unembedding, word_id, word_name, word_table

WORDS = ("unembedding", "embedding")
ENDS = ("query", "key")


@dataclass(frozen=True, eq=False)
class Circuit:
    """A matrix of one head, left @ right; folded: paths of the norms that are in it.

    kind: "OV", [d_model_in d_model], or "QK", [d_model_in of the query, of the key]; offset: how far the key lies
    before the query, which matters under RoPE alone.
    """

    head: Head
    kind: Literal["OV", "QK"]
    left: Float[Tensor, "d_in rank"] = field(repr=False)
    right: Float[Tensor, "rank d_out"] = field(repr=False)
    folded: tuple[str, ...] = ()
    offset: int = 0

    @property
    def matrix(self) -> Float[Tensor, "d_in d_out"]:
        """The whole matrix, float64."""
        return self.left @ self.right


@dataclass(frozen=True, eq=False)
class TokenScores:
    """A number for every word, for one word and one head.

    asked: "logit" (what the head adds to each word's logit where it looks at the word, but for the positive number that
    the last norm divides by), "embedding" (products with input embeddings instead, which are no logits), "key"
    (score of each word as the key of the word), or "query". folded: paths of the norms
    on the way.
    """

    head: Head
    word: str
    asked: str
    values: Float[Tensor, " word"] = field(repr=False)
    folded: tuple[str, ...]
    model: Model = field(repr=False)

    def to_frame(self, k: int | None = None) -> pd.DataFrame:
        """rank (1: the highest), token, id and logit of the `k` highest words (all for None).

        The last column is "value" of keys and queries, and "score" of products with input embeddings.
        """
        if k is not None and k < 1:
            raise InputError(f"k is at least 1, got {k}")
        order = self.values.argsort(descending=True, stable=True)[:k].tolist()
        rows = [(rank, word_name(self.model, i), i, float(self.values[i])) for rank, i in enumerate(order, 1)]
        named = {"logit": "logit", "embedding": "score"}.get(self.asked, "value")
        return pd.DataFrame(rows, columns=["rank", "token", "id", named])


def ov_circuit(model: Any, head: Any, *, fold: bool = True) -> Circuit:
    """W_V W_O of a head; fold: with the norms of its own before and behind it.

    Errors: `CaptureError` where a map was not found; `InputError` for a head that is not there, and where what the head
    reads cannot be followed.
    """
    wires, where = _wires(model, head)
    factors = wires.OV(where.layer, fold=fold)
    ways = (wires.before(where.layer, "value"), wires.behind(where.layer)) if fold else ()
    norms = tuple(norm for way in ways for norm in way.norms)
    return Circuit(where, "OV", factors.left[where.head], factors.right[where.head], norms)


def qk_circuit(model: Any, head: Any, *, offset: int = 0, fold: bool = True) -> Circuit:
    """W_Q W_Kᵀ of a head; offset: position of the query less that of the key (RoPE turns one against the other).

    Errors: as `ov_circuit`; `CaptureError` for an offset where the rotation could not be told.
    """
    wires, where = _wires(model, head)
    factors = wires.QK(where.layer, offset=offset, fold=fold)
    ways = [wires.before(where.layer, side) for side in ("query", "key")] if fold else []
    norms = tuple(dict.fromkeys(norm for way in ways for norm in way.norms))
    return Circuit(where, "QK", factors.left[where.head], factors.right[where.head], norms, offset)


def full_ov(model: Any, head: Any, token: Any, *, words: str = "unembedding") -> TokenScores:
    """What a head that looks at a token adds to the logit of every word, past all other layers.

    words: "unembedding", through the last norm and the model's own unembedding; "embedding" (for classifiers and
    encoders without one): products with the input embeddings, through no norm but the head's own.
    Errors: `InputError` for a model without an unembedding, and where something else than norms lies on the way.
    """
    _check("words", words, WORDS)
    model = load(model)
    wires, where = _wires(model, head)
    table, index = word_table(model), word_id(model, token)
    given, norms = _given(wires, table, where.layer, "value", [index])
    written = given @ wires.weight(where.layer, "value")[where.head] @ _output(wires, where)
    answer, before = _answer(model, wires, table, where.layer, words)
    values = (written @ answer)[0]
    asked = "logit" if words == "unembedding" else words
    return TokenScores(where, word_name(model, index), asked, values.cpu(), (*norms, *before), model)


def full_qk(model: Any, head: Any, token: Any, *, asks: str = "key", offset: int = 0) -> TokenScores:
    """The score of every word as the key of a token (asks="key"), or as the query that looks at it (asks="query").

    Without scale, cap and biases. offset: as `qk_circuit`. Errors: as `full_ov` and `qk_circuit`.
    """
    _check("asks", asks, ENDS)
    model = load(model)
    wires, where = _wires(model, head)
    table, index = word_table(model), word_id(model, token)
    sides: list[Side] = ["query", "key"]
    ids = {"query": [index] if asks == "key" else None, "key": None if asks == "key" else [index]}
    (queries, first), (keys, second) = (_given(wires, table, where.layer, side, ids[side]) for side in sides)
    queries = queries @ wires.weight(where.layer, "query", offset)[where.head]
    values = (queries @ (keys @ wires.weight(where.layer, "key")[where.head]).T).flatten()
    norms = tuple(dict.fromkeys((*first, *second)))
    return TokenScores(where, word_name(model, index), asks, values.cpu(), norms, model)


def ov_top_tokens(model: Any, head: Any, token: Any, k: int = 10, *, words: str = "unembedding") -> pd.DataFrame:
    """The words whose logits a head raises most where it looks at a token: rank, token, id, logit (or score).

    rank: 1 is the most raised. words: as `full_ov`; of "embedding" the column is score, since these are no logits.
    """
    return full_ov(model, head, token, words=words).to_frame(k)


def qk_top_tokens(
    model: Any, head: Any, token: Any, k: int = 10, *, asks: str = "key", offset: int = 0
) -> pd.DataFrame:
    """The keys that a token as query scores highest (or the queries, for a token as key).

    rank (1 is the highest), token, id, value.
    """
    return full_qk(model, head, token, asks=asks, offset=offset).to_frame(k)


def _wires(model: Any, head: Any) -> tuple[Wiring, Head]:
    model = load(model)
    where = head_of(model, head)
    return wiring(model, stack_of(model, where.stack, where.kind)), where


def _given(
    wires: Wiring, table: WordTable, layer: int, side: Side, ids: list[int] | None
) -> tuple[Float[Tensor, "word d_model"], tuple[str, ...]]:
    """What a map reads of words that stand in the stream alone, and the norms that they went through."""
    way = table.way(wires.stream, wires.reader(layer, side))
    return way.forward(table.rows(ids).double(), scaled=True), way.norms


def _output(wires: Wiring, where: Head) -> Float[Tensor, "d_head d_model"]:
    return wires.layers[where.layer].need("W_O")[where.head].double()


def _answer(
    model: Model, wires: Wiring, table: WordTable, layer: int, words: str
) -> tuple[Float[Tensor, "d_model word"], tuple[str, ...]]:
    """What turns what a layer writes into numbers for words."""
    if words == "embedding":
        way, weight = wires.behind(layer), table.weight.T
    else:
        try:
            way, weight = way_out(model, wires, table, layer)
        except InputError as error:
            hint = "; words='embedding' compares with input embeddings instead"
            raise InputError(str(error) + hint * ("words='embedding'" not in str(error))) from error
    return way.folded(weight.double()), way.norms


def way_out(model: Model, wires: Wiring, table: WordTable, layer: int) -> tuple[Way, Float[Tensor, "d_model word"]]:
    """The direct way from what a layer writes to the unembedding, and the unembedding."""
    found = unembedding(model, wires.stream, table.n_words)
    way = wires.stream.way(wires.writer(layer), found.reader)
    if way is None:
        raise InputError(
            f"{model.name}: nothing that {wires.layers[layer]} writes reaches the unembedding directly; another map "
            "lies between (the head of a masked language model), or it is another stack. words='embedding' compares "
            "with input embeddings instead"
        )
    return way, found.weight


def _check(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InputError(f"{name} is one of {', '.join(map(repr, known))}, got {given!r}; {nearest(given, known)}")
