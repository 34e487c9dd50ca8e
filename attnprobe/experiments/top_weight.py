"""Top-weight removal: is the most attended key the one that the decision hangs on? (Serrano & Smith 2019, sec. 4 and 5)

At one layer, keys are taken out of the rows that the answer is read from, in every head, and what is left of each row
is renormalised. Two questions:

    the top one       the key with the largest weight beside another, drawn at random: JS(p, q_top) − JS(p, q_random)
                      in nats, and which of the two flips the decision
    in order          keys out one after another, by attention, by the gradient ∂y/∂α, by gradient x attention, at
                      random: the share of the keys that are out when the decision flips first (1 where it never does)

The order that needs least found the keys that matter best; attention needing more than gradients is their finding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.experiments.asking import Answer, Asked, asked, each
from attnprobe.experiments.outcome import Outcome, cost_of, values_frame
from attnprobe.experiments.searching import jensen_shannon
from attnprobe.intervention import Intervention
from attnprobe.methods.attention_gradient import weight_gradients
from attnprobe.methods.mixing import visible_keys
from attnprobe.models.evaluator import Meter
from attnprobe.models.rows import Row
from attnprobe.site import Site

ORDERS = ("attention", "gradient", "gradient_x_attention", "random")
OWN_MEASURES = {
    "js_top": "Jensen-Shannon divergence of the output without the top key, nats, 0 to 0.693",
    "js_random": "the same without a key drawn at random",
    "js_difference": "the first minus the second; above 0: the top key matters more",
    "weight_difference": "weight of the top key − weight of the one drawn, 0 to 1",
    "flips_both": "1 where each of the two flips the decision",
    "flips_top": "1 where the top key alone does",
    "flips_random": "1 where the random key alone does",
    "flips_neither": "1 where neither does",
    "removed": "share of the keys out when the decision flips first, above 0 to 1 (never: 1)",
    "never": "1 where no number of keys flips it, else 0",
}


@dataclass(frozen=True, eq=False)
class _Row:
    """What the rows that are read look at in one layer: their keys, and a score of each by order (high goes first)."""

    keys: Int[Tensor, " key"]
    weights: Float[Tensor, " key"]
    scores: Mapping[str, Float[Tensor, " key"]]


def top_weight_removal(
    model: Any,
    examples: Any,
    target: Any = None,
    *,
    layer: int = -1,
    specials: bool = True,
    orders: Sequence[str] = ORDERS,
    kind: str = "any",
    seed: int = 0,
    n_resamples: int = 1000,
) -> Outcome:
    """Take keys out of the rows that the answer is read from, in one layer, and renormalise; see the module.

    layer: the last, as in the paper, or another. specials: whether special tokens are among the keys that go; the
    paper's models have none. orders: which orders to remove in; () for the top key alone. Of several heads weights
    are means, and gradients sums: the keys go from all of them.
    Errors: `InputError` for a model that gives one number, which makes no decision.
    """
    unknown = [name for name in orders if name not in ORDERS]
    if unknown:
        raise InputError(f"orders are of {', '.join(ORDERS)}, got '{unknown[0]}'")
    rows: list[tuple[Any, ...]] = []
    skipped = 0
    with Meter() as meter:
        given = asked(model, examples, target, kind)
        for one in each(given, "top-weight removal"):
            (number,) = one.layers(layer)
            looked = _looked(one, number, specials, orders, seed)
            skipped += len(looked.keys) < 2
            if len(looked.keys) >= 2:
                rows += _measured(one, number, looked, orders, seed)
    if skipped == len(given):
        raise InputError("no example has two keys to choose from; give longer ones, or specials=True")
    return Outcome(
        "top_weight_removal",
        given[0].model.name,
        tuple(one.goal.description for one in given),
        values_frame(rows),
        OWN_MEASURES,
        {"layer": layer, "specials": specials, "orders": "+".join(orders)},
        seed,
        notes=(f"{skipped} of {len(given)} examples have a single key and are left out",) if skipped else (),
        n_resamples=n_resamples,
        **cost_of(meter),
    )


def without_keys(one: Asked, layer: int, keys: Sequence[int]) -> Intervention:
    """Zero the weights of the rows that are read on some keys, in every head; the rest takes over their mass."""
    read = one.read

    def change(site: Site) -> Site:
        weights = site.need("weights")
        at = read.to(weights.device)
        rows = weights.index_select(2, at)
        left = rows.index_fill(3, torch.tensor(list(keys), device=weights.device), 0)
        mass = left.sum(-1, keepdim=True)
        share = rows.sum(-1, keepdim=True) / mass.where(mass != 0, 1)
        return site.replace(weights=weights.index_copy(2, at, left * share))

    return Intervention(f"without keys {list(keys)}", change, (layer,), one.stack.name, one.stack.kind)


def _looked(one: Asked, layer: int, specials: bool, orders: Sequence[str], seed: int) -> _Row:
    """The keys of the rows that are read, with their weights and scores."""
    site, read = one.sites([layer], "weights")[0], one.read
    seen = visible_keys(site).cpu()[:, read].any(0).any(0)
    if not specials and len(seen) == one.example.n_tokens:
        seen &= ~torch.tensor(one.example.is_special)
    keys = seen.nonzero().flatten()
    weights = site.need("weights")[0].double().cpu()[:, read].mean((0, 1))[keys]
    scores = {"attention": weights}
    if {"gradient", "gradient_x_attention"} & set(orders):
        found = weight_gradients(one.model, one.example, one.goal, one.stack)[layer]
        pairs = (("gradient", found.gradient), ("gradient_x_attention", found.product))
        scores |= {name: part.double().cpu()[:, read].sum((0, 1))[keys] for name, part in pairs}
    scores["random"] = torch.rand(len(keys), generator=torch.Generator().manual_seed(seed + one.index)).double()
    return _Row(keys, weights, scores)


def _measured(one: Asked, layer: int, looked: _Row, orders: Sequence[str], seed: int) -> list[tuple[Any, ...]]:
    """Rows of one example."""
    sets = [[int(looked.keys[i])] for i in _pair(looked, seed + one.index)]
    for name in orders:
        order = looked.keys[looked.scores[name].argsort(descending=True, stable=True)].tolist()
        sets += [order[:size] for size in range(1, len(order))]
    batch = [Row(one.example), *(Row(one.example, edits=(without_keys(one, layer, keys),)) for keys in sets)]
    before, top, drawn, *rest = one.answers(batch, "top-weight removal")
    if before.outputs is None:
        raise InputError(f"{one.model.name} gives one number and decides nothing; a decision needs two outputs")
    where = (one.index, one.stack.name, one.stack.kind, str(layer), "all")
    rows = [(*where, "", name, value) for name, value in _beside(before, top, drawn, looked, sets).items()]
    n_sizes = len(looked.keys) - 1
    for number, name in enumerate(orders):
        kept = [before.kept(answer) for answer in rest[number * n_sizes : (number + 1) * n_sizes]]
        first = kept.index(0.0) + 1 if 0.0 in kept else len(looked.keys)
        rows.append((*where, name, "removed", first / len(looked.keys)))
        rows.append((*where, name, "never", float(0.0 not in kept)))
    return rows


def _pair(looked: _Row, seed: int) -> tuple[int, int]:
    """Which of the keys has the largest weight, and another one at random."""
    top = int(looked.weights.argmax())
    others = [i for i in range(len(looked.keys)) if i != top]
    drawn = int(torch.randint(len(others), (1,), generator=torch.Generator().manual_seed(seed)))
    return top, others[drawn]


def _beside(
    before: Answer, top: Answer, drawn: Answer, looked: _Row, sets: Sequence[Sequence[int]]
) -> dict[str, float]:
    """The measures of the top key beside the one drawn."""
    js_top, js_random = _divergence(before, top), _divergence(before, drawn)
    flips = (before.kept(top) == 0, before.kept(drawn) == 0)
    at = {int(key): float(weight) for key, weight in zip(looked.keys, looked.weights, strict=True)}
    return {
        "js_top": js_top,
        "js_random": js_random,
        "js_difference": js_top - js_random,
        "weight_difference": at[sets[0][0]] - at[sets[1][0]],
        "flips_both": float(flips == (True, True)),
        "flips_top": float(flips == (True, False)),
        "flips_random": float(flips == (False, True)),
        "flips_neither": float(flips == (False, False)),
    }


def _divergence(before: Answer, after: Answer) -> float:
    """Jensen-Shannon divergence of two answers, the largest over their places."""
    if before.outputs is None or after.outputs is None:
        return float("nan")
    return float(jensen_shannon(before.outputs, after.outputs).max())
