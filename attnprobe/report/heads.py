"""Attention maps for the page: 8 bits a weight, and what each head does by the registered head scores."""

import base64
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.heads import head_scores, score_heads
from attnprobe.heads.whole import whole
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
        return [], TOO_LARGE
    capture = whole(replace(capture, sites=tuple(sites)))
    sites = list(capture.sites)
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
    scores = score_heads(replace(capture, sites=tuple(sites)))
    layers = [_layer(site, scores[scores.layer == site.place.layer], pool) for site in sites]
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


def _layer(site: Site, scores: pd.DataFrame, pool: bool) -> dict[str, Any]:
    weights = site.need("weights")[0].detach().float()
    if pool:
        size = (min(weights.shape[-2], POOLED), min(weights.shape[-1], POOLED))
        weights = torch.nn.functional.adaptive_avg_pool2d(weights[None], size)[0]
    heads = []
    for head, row in zip(weights, scores.to_dict("records"), strict=True):
        data, step = quantised(head)
        known = {name: None if math.isnan(row[name]) else round(row[name], 4) for name in head_scores}
        heads.append({"data": data, "step": step, "scores": known})
    return {"layer": site.place.layer, "rows": weights.shape[-2], "columns": weights.shape[-1], "heads": heads}


def score_names() -> list[dict[str, str]]:
    """The registered head scores, for the page: name, label, unit, description."""
    entries = head_scores.values()
    return [
        {"name": e.name, "label": e.facts["label"], "unit": e.facts["unit"], "description": e.description}
        for e in entries
    ]


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


def scored(captures: Sequence[Capture]) -> pd.DataFrame:
    """A row a text, stack, layer and head, a column a head score; no row for a text whose maps were not kept."""
    kept = [(i, c) for i, c in enumerate(captures) if any(s.weights is not None for s in c.sites)]
    columns = ["example_index", "stack", "kind", "layer", "head", *head_scores]
    parts = [score_heads(capture).assign(example_index=index) for index, capture in kept]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)
