"""Scaled dot-product attention, the usual one (Vaswani et al. 2017, section 3.2.1), and its near kin.

weights_i = normalizer((score(q_i, k_j) + bias_ij) / T)     over the keys j that query i may look at
z_i       = sum_j weights_ij v_j

score: q·k / sqrt(d) or q·k; T: the temperature; normalizer: softmax and others (`attnprobe.attention.normalizers`).
query [*batch query d], key [*batch key d], value [*batch key d_value] -> z [*batch query d_value]. A query that may
look at nothing gets zeros.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.masks import blind_rows, causal_mask, fitting_mask
from attnprobe.attention.mechanisms import mechanisms
from attnprobe.attention.normalizers import above_zero, get_normalizer
from attnprobe.attention.scores import SCORES, full_scores
from attnprobe.errors import InputError, nearest

ScoreName = Literal["scaled_dot", "dot"]
NormalizerName = Literal["softmax", "sparsemax", "entmax15", "sigmoid", "softmax_plus_one"]

# Queries that are mixed together under a mask: few enough to skip keys, enough for a fast product.
BLOCK = 128


def scaled_dot_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    score: ScoreName = "scaled_dot",
    temperature: float = 1.0,
    normalizer: NormalizerName = "softmax",
    causal: bool = False,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
) -> Float[Tensor, "*batch query key"]:
    """The map of `scaled_dot`, which is what it computes with."""
    if score not in SCORES:
        raise InputError(f"no score is named '{score}'; {nearest(score, SCORES)}")
    seen = also_causal(visible, query, key) if causal else visible
    scores = full_scores(query, key, score=SCORES[score], visible=seen, bias=bias)
    return get_normalizer(normalizer, temperature=temperature)(scores)


@mechanisms.add(
    family="softmax",
    source="Vaswani et al. 2017, section 3.2.1",
    weights=scaled_dot_weights,
    row_sum=lambda options: get_normalizer(options["normalizer"]).row_sum,
    cost="n²",
    formula="softmax(QKᵀ/√d) V",
    meaning="softmax of the scores; also sparsemax, entmax, sigmoid, …",
)
def scaled_dot(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    score: ScoreName = "scaled_dot",
    temperature: float = 1.0,
    normalizer: NormalizerName = "softmax",
    causal: bool = False,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """Each query's average of the values, weighted by how well it fits their keys."""
    if normalizer == "softmax" and bias is None and score in SCORES:
        scale = 1 / math.sqrt(query.shape[-1]) if score == "scaled_dot" else 1.0
        seen = also_causal(visible, query, key) if causal else visible
        return softmax_mix(query, key, value, scale / above_zero(temperature), seen)
    weights = scaled_dot_weights(
        query,
        key,
        score=score,
        temperature=temperature,
        normalizer=normalizer,
        causal=causal,
        visible=visible,
        bias=bias,
    )
    return weights @ value


def softmax_mix(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    scale: float,
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """softmax(QKᵀ scale) V alone, fast: about the time of torch's own fused kernel on a CPU.

    The scale goes to the query, which is smaller than the map. Under a mask, queries go in blocks, and a block reads
    no key behind the last one that any of its queries may see: causal attention does half of the work.
    """
    query = query * scale
    if visible is None:
        return torch.softmax(query @ key.mT, dim=-1) @ value
    n_queries, n_keys = query.shape[-2], key.shape[-2]
    visible = fitting_mask(visible, (*query.shape[:-1], n_keys))
    visible = visible.expand(*visible.shape[:-2], n_queries, n_keys)  # type: ignore[union-attr]
    # A blind row sees all; its z is set to 0. Filling, not adding: a hidden score may be inf or NaN.
    blind = blind_rows(visible)[..., None]
    hidden = ~(visible | blind)
    ends = _ends(visible)
    parts = []
    for first, end in zip(range(0, n_queries, BLOCK), ends, strict=True):
        rows = slice(first, first + BLOCK)
        scores = (query[..., rows, :] @ key[..., :end, :].mT).masked_fill_(hidden[..., rows, :end], -torch.inf)
        parts.append(torch.softmax(scores, dim=-1) @ value[..., :end, :])
    return torch.cat(parts, dim=-2).masked_fill(blind, 0.0)


def also_causal(visible: Tensor | None, query: Tensor, key: Tensor) -> Tensor:
    """The mask, and keys behind the query's own position hidden as well."""
    shape = (*query.shape[:-1], key.shape[-2])
    causal = causal_mask(*shape[-2:], device=query.device)
    mask = fitting_mask(visible, shape)
    return causal if mask is None else mask & causal


def _ends(visible: Tensor) -> list[int]:
    """For each block of queries, one past the last key that any of them may see."""
    seen = visible.flatten(0, -3).any(0) if visible.ndim > 2 else visible
    blocks = [block.any(0) for block in seen.split(BLOCK)]
    positions = torch.arange(1, seen.shape[-1] + 1, device=seen.device)
    return torch.stack([(positions * block).amax() for block in blocks]).tolist()
