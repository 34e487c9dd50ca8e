"""Attention maps for the page: 8 bits a weight, and what each head does in three numbers."""

import base64
import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.report.tokens import shown, visible
from attnprobe.site import Site

# Bytes of weights that a page carries in all (4/3 of that in base64). A map beyond POOLED tokens a side is
# averaged over blocks where a single text would not fit otherwise.
BUDGET = 3_300_000
POOLED = 64
LEVELS = 255
TOO_LARGE = (
    "This text’s attention is too large to be kept for a page; capture() with the layers that you want gives it."
)
WORDS = {"self": "self-attention", "cross": "cross-attention"}


class Budget:
    """Bytes that are left for weights."""

    def __init__(self, left: int = BUDGET) -> None:
        self.left = left

    def take(self, size: int) -> bool:
        """Whether that many bytes are left; they are then spent."""
        fits = size <= self.left
        self.left -= size if fits else 0
        return fits


def stacks(capture: Capture, budget: Budget) -> tuple[list[dict[str, Any]], str]:
    """Each stack of one text, and why there is none where there is none."""
    sites = [s for s in capture.sites if s.weights is not None]
    if not sites:
        return (
            [],
            TOO_LARGE,
        )
    sizes = [s.weights[0].shape for s in sites if s.weights is not None]
    pool = sum(math.prod(size) for size in sizes) > BUDGET
    size = sum(h * (min(q, POOLED) * min(k, POOLED) if pool else q * k) for h, q, k in sizes)
    if not budget.take(size):
        return [], "The maps of the texts before this one fill the page; a report of this text alone shows its maps."
    found = []
    for stack, kind in capture.stacks():
        mine = [s for s in sites if (s.place.stack, s.place.kind) == (stack, kind) and s.place.step == 0]
        if mine:
            found.append(_stack(capture, stack, kind, mine, pool))
    return found, ""


def _stack(capture: Capture, stack: str, kind: str, sites: Sequence[Site], pool: bool) -> dict[str, Any]:
    queries, keys = sites[0].need("weights").shape[-2:]
    layers = [_layer(capture, site, pool) for site in sites]
    return {
        "name": f"{stack.capitalize()}, {WORDS[kind]}",
        "kind": kind,
        "queries": queries,
        "keys": keys,
        "query_names": axis_names(capture, stack, kind, "query", queries),
        "key_names": axis_names(capture, stack, kind, "key", keys),
        "layers": layers,
        "least_step": max((head["step"] for layer in layers for head in layer["heads"]), default=0.0),
    }


def axis_names(capture: Capture, stack: str, kind: str, side: str, n: int) -> list[str]:
    """What stands along one side of a map: the text's tokens where they are it, else positions."""
    example = capture.example
    of_text = stack != "decoder" or "decoder_input_ids" not in example.inputs or (kind == "cross" and side == "key")
    if of_text and n == example.n_tokens:
        return shown(example)
    answer = example.notes.get("decoder_tokens", ())
    if not of_text and len(answer) == n:
        return [visible(str(token)) for token in answer]
    return [f"answer {i}" if not of_text else f"position {i}" for i in range(n)]


def _layer(capture: Capture, site: Site, pool: bool) -> dict[str, Any]:
    weights = site.need("weights")[0].detach().float()
    special = torch.tensor(capture.example.is_special) if weights.shape[-1] == capture.example.n_tokens else None
    causal = bool((weights.triu(1) == 0).all()) and weights.shape[-1] > 1 and weights.shape[-2] == weights.shape[-1]
    facts = [
        _facts(head, special if site.place.kind == "self" or special is not None else None, causal) for head in weights
    ]
    small = (
        torch.nn.functional.adaptive_avg_pool2d(
            weights[None], (min(weights.shape[-2], POOLED), min(weights.shape[-1], POOLED))
        )[0]
        if pool
        else weights
    )
    heads = []
    for head, fact in zip(small, facts, strict=True):
        data, step = quantised(head)
        heads.append({"data": data, "step": step, **fact})
    return {"layer": site.place.layer, "rows": small.shape[-2], "columns": small.shape[-1], "heads": heads}


def quantised(head: Float[Tensor, "query key"]) -> tuple[str, float]:
    """Weights as base64 bytes, and the weight of one step: weight = byte × step, off by half a step at most.

    >>> data, step = quantised(torch.tensor([[0.0, 0.5], [0.25, 0.51]]))
    >>> list(base64.b64decode(data)), round(step, 4)
    ([0, 250, 125, 255], 0.002)
    """
    step = float(head.max()) / LEVELS
    if step <= 0 or not math.isfinite(step):
        return base64.b64encode(bytes(head.numel())).decode(), 0.0
    levels = (head / step).round().clamp(0, LEVELS).to(torch.uint8)
    return base64.b64encode(levels.contiguous().numpy().tobytes()).decode(), step


def _facts(weights: Float[Tensor, "query key"], special: Tensor | None, causal: bool) -> dict[str, float | None]:
    """What a head does on this text: spread (0: one token, 1: even), and its mass on three kinds of token."""
    queries, keys = weights.shape
    square = queries == keys
    return {
        "spread": round(spread(weights, causal), 4),
        "special": None
        if special is None or not bool(special.any())
        else round(float(weights[:, special].sum(-1).mean()), 4),
        "previous": round(float(weights.diagonal(-1).mean()), 4) if square and queries > 1 else None,
        "itself": round(float(weights.diagonal().mean()), 4) if square else None,
    }


def spread(weights: Float[Tensor, "query key"], causal: bool) -> float:
    """Entropy of the rows over that of an even row, mean; a causal row is compared with what it can see.

    >>> spread(torch.tensor([[0.5, 0.5], [0.5, 0.5]]), causal=False)
    1.0
    """
    p = weights.double().clamp(min=0)
    p = p / p.sum(-1, keepdim=True).clamp(min=1e-12)
    entropy = -(p * p.clamp(min=1e-30).log()).sum(-1)
    visible_keys = torch.arange(1, p.shape[0] + 1) if causal else torch.full((p.shape[0],), p.shape[1])
    rows = visible_keys > 1
    if not bool(rows.any()):
        return 0.0
    return float((entropy[rows] / visible_keys[rows].double().log()).mean())
