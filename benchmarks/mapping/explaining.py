"""The second claim: a map explains a prediction, here of one masked product atom. One record a prediction, as JSON."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from attnprobe import attribute, silence_head
from attnprobe.attribution import Attribution
from attnprobe.example import Example
from attnprobe.judgement import JUDGES, Effects, effects_under, judge
from attnprobe.judgement.causes import find_causes
from attnprobe.judging import judge as judge_orders
from attnprobe.methods.attention import raw_attention, rollout
from attnprobe.models.evaluator import Meter, remembering, targets
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.study import METHOD, ORACLE, RANDOM_ORDER, Judged, Settings
from attnprobe.target import ResolvedTarget
from benchmarks.mapping.naming import hits
from benchmarks.mapping.reading import Masked

SEED = 0
# The renormalising operator, and the embedding that the model was trained with in the place of what it is to tell.
EVIDENCE, N_EVIDENCE = ("attention_mask", "mask"), 8
ERASED_BY, N_RANDOM = "mean", 16
Method = Any


def head_10_5(model: Model, example: Example, target: ResolvedTarget) -> Any:
    """The weights of the head that is known to map atoms."""
    return raw_attention(model, example, target, layer=10, heads=5)


def head_11_5(model: Model, example: Example, target: ResolvedTarget) -> Any:
    """The weights of the same head one layer up."""
    return raw_attention(model, example, target, layer=11, heads=5)


def head_mean_10(model: Model, example: Example, target: ResolvedTarget) -> Any:
    """The mean of the heads of layer 10."""
    return raw_attention(model, example, target, layer=10)


def head_mean_11(model: Model, example: Example, target: ResolvedTarget) -> Any:
    """The mean of the heads of layer 11, the last."""
    return raw_attention(model, example, target, layer=11)


def head_mean_all(model: Model, example: Example, target: ResolvedTarget) -> Any:
    """The mean of all heads of all layers."""
    return raw_attention(model, example, target, layer="mean")


def rollout_half(model: Model, example: Example, target: ResolvedTarget) -> Any:
    """Rollout as published."""
    return rollout(model, example, target)


MAPS: Mapping[str, Method] = {
    "head (10, 5)": head_10_5,
    "head (11, 5)": head_11_5,
    "mean of heads, layer 10": head_mean_10,
    "mean of heads, layer 11": head_mean_11,
    "mean of all heads": head_mean_all,
    "rollout": rollout_half,
    "value norms": "value_norms",
    "attention x gradient": "attention_x_gradient",
    "Chefer 2021b": "chefer_2021b",
}
# Not maps of attention: what they are set beside.
BESIDE: Mapping[str, Method] = {
    "input x gradient": "input_x_gradient",
    "leave one out": "leave_one_out",
    "random scores": "random_scores",
}


def record(model: Model, asked: Masked, others: Sequence[Example], *, erase: bool, why: bool) -> dict[str, Any]:
    """Everything that is measured of one prediction. others: reactions that "resample" draws tokens from.

    erase: with comprehensiveness, sufficiency and deletion area; why: with causes. Both take as long as all else.
    """
    started = time.process_time()
    example, target = asked.example, asked.target
    with Meter() as meter, remembering():
        said = {name: attribute(model, example, method, target) for name, method in (MAPS | BESIDE).items()}
        settings: dict[str, Any] = {"seed": SEED, "data": list(others)}
        effects, _ = effects_under(model, example, target, JUDGES, **settings)
        more, _ = effects_under(model, example, target, EVIDENCE, n_orders=N_EVIDENCE, tolerance=None, **settings)
        found = {
            "template": asked.tokens.reaction.template,
            "reaction": asked.tokens.reaction.text,
            "atom": asked.atom,
            "token": target.label_name,
            "predicted": target.predicted_name,
            "probability": target.label_probability,
            "log_probability": float(targets(model, [Row(example)], target)[0]),
            "context": contexts(model, asked),
            "effects": [effect_facts(asked, one) for one in (*effects, *more)],
            "maps": [map_facts(model, asked, name, one, (*effects, *more)) for name, one in said.items()],
            "silenced": silenced(model, asked),
            "erasure": erasure(model, said) if erase else None,
            "causes": cause_facts(model, asked, said["head (10, 5)"], effects, settings) if why else None,
        }
    seconds = time.process_time() - started
    return found | {"forward_passes": meter.forward, "backward_passes": meter.backward, "cpu_seconds": seconds}


def contexts(model: Model, asked: Masked) -> dict[str, float]:
    """Log-probability of the true token without one side, or without a few tokens (each replaced by the mean)."""
    tokens, n = asked.tokens, asked.example.n_tokens
    arrow = tokens.arrow
    reactants, product = set(range(1, arrow)), set(range(arrow + 1, n - 1)) - {asked.position}
    gone = {
        "reactants": reactants,
        "product": product,
        "both": reactants | product,
        "sources": tokens.sources(asked.atom),
        "neighbours": tokens.neighbours(asked.atom),
        "bonded": tokens.bonded(asked.atom),
    }
    rows = []
    for tokens_gone in gone.values():
        kept = torch.ones(n, dtype=torch.bool)
        kept[list(tokens_gone)] = False
        rows.append(Row(asked.example, kept=kept, operator="mean"))
    return dict(zip(gone, targets(model, rows, asked.target).tolist(), strict=True))


def parts_of(asked: Masked) -> dict[str, set[int]]:
    """Every token but the masked one, by the part that it has."""
    tokens, arrow = asked.tokens, asked.tokens.arrow
    end = asked.example.n_tokens - 1
    sources, near, bonded = tokens.sources(asked.atom), tokens.neighbours(asked.atom), tokens.bonded(asked.atom)
    parts = {"source": sources, "neighbours of the source": near, "atoms bonded to the masked one": bonded}
    parts["other reactant atoms"] = set(tokens.reactant) - sources - near
    parts["other product atoms"] = set(tokens.product) - bonded - {asked.position}
    parts["signs of the reactants"] = set(range(1, arrow)) - set(tokens.reactant)
    parts["signs of the product"] = set(range(arrow + 1, end)) - set(tokens.product)
    return parts | {"arrow": {arrow}}


def effect_facts(asked: Masked, effects: Effects) -> dict[str, Any]:
    """What removal says: the mean effect of each part, as a share of the largest, and whether the source is first."""
    share = dict(zip(effects.units.tolist(), effects.relative.tolist(), strict=True))
    whole = torch.zeros(asked.example.n_tokens)
    whole[effects.units] = effects.values.float()
    parts = {name: [share[t] for t in tokens if t in share] for name, tokens in parts_of(asked).items()}
    return {
        "operator": effects.operator,
        "kind": effects.kind,
        "n_orders": effects.n_orders,
        "largest": float(effects.values.max()),
        "n_effective": sum(value >= 0.3 for value in share.values()),
        "n_idle": sum(value < 0.15 for value in share.values()),
        "n_units": len(share),
        "relative": [round(value, 4) for value in share.values()],
        "parts": {name: math.fsum(values) / len(values) if values else None for name, values in parts.items()},
        "source_first": hits(whole, asked.tokens, asked.atom),
    }


def map_facts(model: Model, asked: Masked, name: str, said: Attribution, effects: Sequence[Effects]) -> dict[str, Any]:
    """Both claims of one map: whether it names the source, and the verdict on it."""
    verdict = judge(
        model, asked.example, asked.target, said, operators=JUDGES, evidence=EVIDENCE, effects=effects, name=name
    )
    sizes = said.scores.abs()
    whole = float(sizes.sum())
    return {
        "map": name,
        "attention": name in MAPS,
        "names_source": hits(sizes, asked.tokens, asked.atom),
        "verdict": verdict.verdict,
        "reason": verdict.reason,
        "against": list(verdict.against),
        "quality": verdict.quality,
        "random": verdict.random,
        "readings": [
            {key: getattr(one, key) for key in ("operator", "call", "reason", "miss", "order", "top")}
            for one in (*verdict.readings, *verdict.evidence)
        ],
        "parts": {part: _total(sizes, tokens) / (whole or 1.0) for part, tokens in parts_of(asked).items()},
        "scores": [round(value, 5) for value in said.scores.tolist()],
    }


def _total(sizes: Tensor, tokens: set[int]) -> float:
    return float(sizes[list(tokens)].sum())


def erasure(model: Model, said: Mapping[str, Attribution]) -> dict[str, dict[str, float]]:
    """Comprehensiveness, sufficiency and deletion area of every map, of random orders (their mean) and of the best."""
    judged = judge_orders(model, list(said.values()), Settings(ERASED_BY, N_RANDOM, 100, SEED, ""), ERASED_BY)
    names = {one.method: name for name, one in said.items()}
    return {metric: _orders(judged, metric, names) for metric in judged.values}


def _orders(judged: Judged, metric: str, names: Mapping[str, str]) -> dict[str, float]:
    values = judged.values[metric]
    entries = list(zip(judged.roles, judged.names, values.tolist(), strict=True))
    found = {names[method]: value for role, method, value in entries if role == METHOD}
    random = [value for role, _, value in entries if role == RANDOM_ORDER]
    best = [value for role, _, value in entries if role == ORACLE]
    pick = max if metric == "comprehensiveness" else min
    return found | {RANDOM_ORDER: math.fsum(random) / len(random), ORACLE: pick(best)}


def silenced(model: Model, asked: Masked) -> list[list[float]]:
    """By how much the log-probability of the true token falls when one head is silenced, [layer head]."""
    layers = range(model.stacks[0].n_layers)
    heads = range(model.stacks[0].n_heads[0])
    rows = [Row(asked.example, edits=(silence_head(layer, head),)) for layer in layers for head in heads]
    answers = targets(model, [Row(asked.example), *rows], asked.target)
    falls = (answers[0] - answers[1:]).reshape(len(layers), len(heads))
    return [[round(value, 5) for value in row] for row in falls.tolist()]


def cause_facts(
    model: Model, asked: Masked, said: Attribution, effects: Sequence[Effects], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Every cause: whether it is present, and its measure beside its threshold."""
    found = find_causes(model, asked.example, asked.target, said, effects=list(effects), **settings)
    facts = {c.name: {"present": c.present, "measure": c.measure, "threshold": c.threshold} for c in found.found}
    return facts | {name: {"present": None, "why": why} for name, why in found.lacking.items()}
