"""head_card(): all that is known of one head on one text: its map, scores, effects, words, and heads like it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.capture import Capture, head_numbers
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.example import Example
from attnprobe.head_neighbours import like_by_maps, like_by_scores, partners
from attnprobe.head_profile import HeadProfile
from attnprobe.heads.addresses import Head, head_of
from attnprobe.heads.circuits import full_ov
from attnprobe.heads.sides import sides
from attnprobe.heads.whole import whole
from attnprobe.models import load
from attnprobe.models.model import Model, Stack
from attnprobe.models.reading import kind_of
from attnprobe.profiling import Wanted, profile
from attnprobe.target import as_target

EFFECTS = ("zero_ablation", "gate_gradient", "direct_logit")
CAUSAL_PROBES = ("induction", "copying")  # of models that read random tokens as they come
MOST_COMPOSED = 256  # heads of a stack, beyond which composition with all of them takes too long unless asked for
SAME = 1e-9  # numbers that lie closer together are one number
IN_CALL = "words='embedding'"  # where a message goes on to what a function takes and a card does not
IN_PYTHON = "; in Python ov_top_tokens(…, words='embedding') compares with input embeddings instead"
N_WORDS = 4  # tokens of the text whose OV words are shown


@dataclass(frozen=True, eq=False)
class HeadCard:
    """One head of a model on one example.

    weights: its map; queries, keys: what stands along its sides. scores: score, label, form, unit, sign (what an effect
    above 0 means), value, rank (1: the highest of n_heads heads of its stack; of effects the largest, whatever the
    direction), n_heads, mean (of those), chance (what even attention scores), signed (whether it can fall below 0),
    differs (whether these heads do). words: token, rank (1: the most raised), word, logit: what the head adds to logits
    where it looks at a token of the text. like_scores,
    like_maps: head, distance. partners: score, direction, head, value. notes: what there is no answer to, and why.
    """

    head: Head
    model: str
    example: Example = field(repr=False)
    target: str
    weights: Float[Tensor, "query key"] = field(repr=False)
    queries: tuple[str, ...] = field(repr=False)
    keys: tuple[str, ...] = field(repr=False)
    scores: pd.DataFrame = field(repr=False)
    words: pd.DataFrame = field(repr=False)
    like_scores: pd.DataFrame = field(repr=False)
    like_maps: pd.DataFrame = field(repr=False)
    partners: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    profile: HeadProfile | None = field(default=None, repr=False)

    def looks(self) -> pd.DataFrame:
        """Where each query looks most: query_index, query, key_index, key, weight."""
        best = self.weights.max(-1)
        rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        return pd.DataFrame(
            [(at, self.queries[at], key, self.keys[key], weight) for at, (key, weight) in enumerate(rows)],
            columns=["query_index", "query", "key_index", "key", "weight"],
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it, for programs; a number that is not there is None."""
        tables = ("scores", "words", "like_scores", "like_maps", "partners")
        return {
            "head": str(self.head),
            "model": self.model,
            "text": self.example.text,
            "target": self.target,
            "queries": list(self.queries),
            "keys": list(self.keys),
            "weights": self.weights.tolist(),
            **{name: _records(getattr(self, name)) for name in tables},
            "notes": list(self.notes),
        }


def head_card(
    model: Any,
    head: Any,
    example: Any,
    target: Any = None,
    *,
    scores: Wanted = None,
    effects: Wanted = EFFECTS,
    composition: bool | None = None,
    k: int = 5,
) -> HeadCard:
    """The card of one head on one example; k: how many heads and words are named of each kind.

    head: "5.1", (5, 1), "L5H1", "decoder.cross.5.1". scores, effects: as `profile`. composition: None for stacks of up
    to 256 heads. What has no answer (a model without an unembedding has no words), or fails, is a note of the card.
    Errors: `InputError` for a head that is not there, with the range, and for an example that cannot be read.
    """
    model = load(model)
    where = head_of(model, head)
    stack = next(one for one in model.stacks if (one.name, one.kind) == (where.stack, where.kind))
    example = model.example(example)
    goal = model.resolve(example, as_target(target))
    keep = Keep.of("weights", stack=stack.name, kind=stack.kind)
    capture = whole(model.capture(example, keep=keep).only(stack.name, stack.kind))
    weights = _map(capture, where)
    queries, keys = _names(capture, weights)
    told = _Notes()
    probes = CAUSAL_PROBES if kind_of(model, example) == "causal" else ()
    found = profile(model, [example], scores, effects, probes, goal, stack=stack.name, kind=stack.kind, progress=False)
    words = told.noting("OV words", lambda: _words(model, where, capture, weights, k), IN_PYTHON)
    partner = told.noting("composition", lambda: _partners(model, stack, where, composition, k))
    like_scores = told.noting("heads with like scores", lambda: like_by_scores(found, where, k))
    like_maps = told.noting("heads with like maps", lambda: like_by_maps(capture, where, k))
    return HeadCard(
        head=where,
        model=model.name,
        example=example,
        target=goal.description,
        weights=weights,
        queries=queries,
        keys=keys,
        scores=_scores(found, where),
        words=words,
        like_scores=like_scores,
        like_maps=like_maps,
        partners=partner,
        notes=(*(warning.removeprefix("example 0, ") for warning in found.warnings), *told.said),
        profile=found,
    )


class _Notes:
    """What could not be answered."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def noting(self, what: str, ask: Callable[[], pd.DataFrame], hint: str = "") -> pd.DataFrame:
        """The answer; a refusal becomes a note, and so does whatever else goes wrong, beside an empty table."""
        try:
            return ask()
        except AttnprobeError as error:
            told = str(error)
            at = told.find(IN_CALL)
            self.said.append(f"{what}: {told[:at].rstrip(';. ') + hint if hint and at >= 0 else told}")
        except Exception as error:  # a score may be anybody's: the rest of the card goes on
            self.said.append(f"{what}: {type(error).__name__}: {error}")
        return pd.DataFrame()


def _map(capture: Capture, head: Head) -> Float[Tensor, "query key"]:
    for site in capture.sites:
        if site.place.layer == head.layer:
            return site.need("weights")[0, head_numbers(site).index(head.head)].detach().float().cpu()
    raise InputError(f"{head}: the example shows no attention of this layer")


def _names(capture: Capture, weights: Float[Tensor, "query key"]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What stands along the queries and the keys: tokens of the example, of its answer, or numbers."""
    example, known = capture.example, sides(capture)
    written = tuple(map(str, example.notes.get("decoder_tokens", ())))
    found = []
    for n, mine in zip(weights.shape, (known.queries, known.keys), strict=True):
        pieces = example.pieces if mine else written
        found.append(tuple(pieces) if len(pieces) == n else tuple(map(str, range(n))))
    return found[0], found[1]


def _scores(found: HeadProfile, head: Head) -> pd.DataFrame:
    """Each score of the head with its place among the heads of its stack."""
    frame, rows = found.to_frame(), []
    mine = frame[(frame["layer"] == head.layer) & (frame["head"] == head.head)].index[0]
    for name in found.scores:
        values, told = frame[name].dropna(), found.facts[name]
        if mine not in values.index:
            continue
        sizes = values.abs() if told.form == "effect" else values
        rank = 1 + int((sizes > sizes[mine] + SAME).sum())
        value, mean = float(values[mine]), float(values.mean())
        differs = bool(values.max() - values.min() > SAME)
        chance, unit = float(found.chance_of(name)[mine]), found.unit_of(name)
        facts = (name, told.label, told.form, unit, told.sign)
        rows.append((*facts, value, rank, len(values), mean, chance, told.low != 0, differs))
    columns = [
        "score",
        "label",
        "form",
        "unit",
        "sign",
        "value",
        "rank",
        "n_heads",
        "mean",
        "chance",
        "signed",
        "differs",
    ]
    return pd.DataFrame(rows, columns=columns)


def _words(model: Model, head: Head, capture: Capture, weights: Float[Tensor, "query key"], k: int) -> pd.DataFrame:
    """The words that the head raises most where it looks at the tokens of the text that it looks at most."""
    example = capture.example
    if "input_ids" not in example.inputs or not sides(capture).keys or weights.shape[1] != example.n_tokens:
        raise InputError("what the head looks at here are no words of the text")
    ids, mass = example.inputs["input_ids"][0].tolist(), weights.sum(0)
    first = {index: at for at, index in reversed(list(enumerate(ids))) if not example.is_special[at]}
    total = {i: sum(float(mass[at]) for at, other in enumerate(ids) if other == i) for i in first}
    rows = []
    for index in sorted(total, key=lambda i: -total[i])[:N_WORDS]:
        top = full_ov(model, head, index).to_frame(k)
        rows += [(example.pieces[first[index]], *row) for row in top[["rank", "token", "logit"]].to_numpy(dtype=object)]
    return pd.DataFrame(rows, columns=["token", "rank", "word", "logit"])


def _partners(model: Model, stack: Stack, head: Head, asked: bool | None, k: int) -> pd.DataFrame:
    n_heads = sum(stack.n_heads)
    if asked is False or stack.n_layers < 2:
        return pd.DataFrame()
    if asked is None and n_heads > MOST_COMPOSED:
        raise InputError(f"the stack has {n_heads} heads; ask for it with composition=True, which takes long")
    return partners(model, stack, head, k)


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = frame.to_dict(orient="records")
    return [
        {str(key): None if isinstance(v, float) and not math.isfinite(v) else v for key, v in row.items()}
        for row in rows
    ]
