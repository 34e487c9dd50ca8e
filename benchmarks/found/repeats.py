"""Random tokens that repeat: which heads look behind the earlier copy, and what it costs to silence them."""

import random
from collections.abc import Sequence

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import cross_entropy

from attnprobe import profile
from attnprobe.heads.induction import Repeats, repeated
from attnprobe.intervention import Intervention, silence_head
from attnprobe.models.evaluator import of_each
from attnprobe.models.model import Model, Stack
from attnprobe.models.rows import Row

PROBES = ("induction", "previous_random")
# The texts on which the loss is measured are others than those of the probe: other tokens, other lengths.
LENGTH, SEED = 50, 1000
NOTHING, FRONT = "nothing", "front"
HALVES = ("first", "second")

Heads = tuple[tuple[int, int], ...]


def probed(model: Model) -> pd.DataFrame:
    """A row a head: layer, head, and its scores on repeated random tokens."""
    found = profile(model, ["A text that no probe reads."], scores=(), probes=PROBES, progress=False)
    return found.to_frame()[["layer", "head", *PROBES]]


def in_front(table: pd.DataFrame, score: str, k: int) -> Heads:
    """The k heads with the highest score, (layer, head), the best first."""
    best = table.sort_values(score, ascending=False, kind="stable").head(k)
    return tuple((int(layer), int(head)) for layer, head in zip(best.layer, best["head"], strict=True))


def drawn_others(front: Heads, stack: Stack, n_draws: int, seed: int = 0) -> list[Heads]:
    """Different sets of heads in the layers of `front`, as many in each as there, and none of it."""
    draw, found = random.Random(seed), list[Heads]()
    layers = sorted({layer for layer, _ in front})
    while len(found) < n_draws:
        chosen: list[tuple[int, int]] = []
        for layer in layers:
            taken = [head for at, head in front if at == layer]
            left = [head for head in range(stack.n_heads[layer]) if head not in taken]
            chosen += [(layer, head) for head in sorted(draw.sample(left, len(taken)))]
        if tuple(chosen) not in found:
            found.append(tuple(chosen))
    return found


def silent(heads: Heads, stack: Stack) -> tuple[Intervention, ...]:
    """Edits that silence these heads."""
    layers = sorted({layer for layer, _ in heads})
    return tuple(
        silence_head(layer, [head for at, head in heads if at == layer], stack=stack.name, kind=stack.kind)
        for layer in layers
    )


def texts_of(model: Model, n: int, length: int = LENGTH, seed: int = SEED) -> list[Repeats]:
    """Random tokens said twice, n times other ones."""
    generator = torch.Generator().manual_seed(seed)
    made = [repeated(model, length=length, repeats=2, generator=generator) for _ in range(n)]
    return [one for one in made if one is not None]


def halves(logits: Float[Tensor, "token word"], given: Repeats) -> tuple[float, float]:
    """Loss in nats, mean over the first copy, and over those tokens of the second that the first tells.

    The second copy's first token follows from nothing: that a second copy begins is not known yet.
    """
    loss = cross_entropy(logits[:-1].float(), given.ids[1:].to(logits.device), reduction="none").cpu()
    at = torch.arange(1, len(given.ids)) - given.first
    known = (at > given.length) & (at < 2 * given.length)
    return float(loss[(at >= 0) & (at < given.length)].mean()), float(loss[known].mean())


def losses(model: Model, texts: Sequence[Repeats], sets: dict[str, Heads]) -> pd.DataFrame:
    """A row a set of silenced heads, text and half: silenced, heads, text, half, value (loss in nats)."""
    stack = model.stacks[0]
    edits = {name: silent(heads, stack) for name, heads in sets.items()}
    asked = [(name, number) for name in sets for number in range(len(texts))]
    rows = [Row(texts[number].example, edits=edits[name]) for name, number in asked]
    of_example = {id(one.example): one for one in texts}

    def read(logits: Tensor, part: Sequence[Row]) -> list[tuple[float, float]]:
        return [halves(one, of_example[id(row.example)]) for one, row in zip(logits, part, strict=True)]

    found = []
    answers = of_each(model, rows, read, progress="heads silenced")
    for (name, number), both in zip(asked, answers, strict=True):
        named = " ".join(f"{layer}.{head}" for layer, head in sets[name])
        found += [(name, named, number, half, value) for half, value in zip(HALVES, both, strict=True)]
    return pd.DataFrame(found, columns=["silenced", "heads", "text", "half", "value"])


def rises(table: pd.DataFrame, half: str) -> pd.DataFrame:
    """A row a set of silenced heads, a column a text: how far the loss rose above that with nothing silenced."""
    mine = table[table.half == half].pivot(index="silenced", columns="text", values="value")
    return (mine - mine.loc[NOTHING]).drop(index=NOTHING)
