"""Nyström attention: the map between all tokens is put together from maps to and from a few landmarks.

    Q~, K~ = means of n_landmarks segments of queries, of keys           [*batch landmark d_head]
    A = softmax(Q K~^T) · pinv(softmax(Q~ K~^T)) · softmax(Q~ K^T)       scores divided by sqrt(d_head)
    z = A V, multiplied from the right                                   cost n n_landmarks d_head

With as many landmarks as tokens it is softmax attention. Else A is *signed*: entries may be negative. Its rows sum to
1 as far as the middle map has an inverse and the inverse was found. inverse="exact" is the pseudo-inverse by singular
values; "iterative" nears it by matrix products alone, as in the paper (six steps there). The middle map is close to
singular wherever landmarks are alike, as in an untrained network: the factors are computed in float64, and singular
values that the precision of the inputs cannot tell from 0 are 0.

Source: Xiong et al. 2021, "Nyströmformer", section 3.
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.mechanisms import mechanisms
from attnprobe.attention.scores import scaled_dot_scores
from attnprobe.errors import InputError

Inverse = Literal["exact", "iterative"]


def segment_means(x: Float[Tensor, "*batch token width"], n_segments: int) -> Float[Tensor, "*batch segment width"]:
    """The mean of each of n_segments neighbouring stretches, as equal in length as can be.

    >>> segment_means(torch.tensor([[1.0], [3.0], [10.0]]), 2).tolist()
    [[2.0], [10.0]]
    """
    n_tokens = x.shape[-2]
    segment = torch.arange(n_tokens, device=x.device) * n_segments // n_tokens
    members = torch.nn.functional.one_hot(segment, n_segments).to(x).T
    return members @ x / members.sum(-1, keepdim=True)


def iterative_inverse(
    matrix: Float[Tensor, "*batch landmark landmark"], n_steps: int
) -> Float[Tensor, "*batch landmark landmark"]:
    """The pseudo-inverse by products alone; a step takes the error e = I - M Z to (3 e³ + e⁴) / 4."""
    sizes = matrix.abs().sum(-1).amax(-1) * matrix.abs().sum(-2).amax(-1)
    Z = matrix.mT / sizes[..., None, None]
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(n_steps):
        MZ = matrix @ Z
        Z = Z @ (13 * identity - MZ @ (15 * identity - MZ @ (7 * identity - MZ))) / 4
    return Z


def precision(dtype: torch.dtype, n_landmarks: int) -> float:
    """The part of the largest singular value below which one is rounding of inputs of this dtype."""
    return max(1e-12, n_landmarks * torch.finfo(torch.promote_types(dtype, torch.float32)).eps)


def nystrom_factors(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    n_landmarks: int,
    inverse: str,
    n_steps: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The three factors of the map: [*batch query landmark], [*batch landmark landmark], [*batch landmark key]."""
    if n_landmarks < 1 or n_steps < 0:
        raise InputError(
            f"nystrom needs n_landmarks of 1 or more and n_steps of 0 or more, got {n_landmarks} and {n_steps}"
        )
    n_landmarks = min(n_landmarks, query.shape[-2], key.shape[-2])
    rtol, query, key = precision(query.dtype, n_landmarks), query.double(), key.double()
    query_marks, key_marks = segment_means(query, n_landmarks), segment_means(key, n_landmarks)
    pairs = ((query, key_marks), (query_marks, key_marks), (query_marks, key))
    first, middle, last = (torch.softmax(scaled_dot_scores(a, b), dim=-1) for a, b in pairs)
    inverted = torch.linalg.pinv(middle, rtol=rtol) if inverse == "exact" else iterative_inverse(middle, n_steps)
    return first, inverted, last


def nystrom_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    n_landmarks: int = 16,
    inverse: Inverse = "exact",
    n_steps: int = 6,
) -> Float[Tensor, "*batch query key"]:
    """The map that the three factors make; signed."""
    first, inverted, last = nystrom_factors(query, key, n_landmarks, inverse, n_steps)
    return (first @ inverted @ last).to(query.dtype)


@mechanisms.add(
    family="low rank",
    source="Xiong et al. 2021, section 3",
    weights=nystrom_weights,
    row_sum="any",
    cost="n",
    formula="z = softmax(Q K̃ᵀ/√d) pinv(softmax(Q̃ K̃ᵀ/√d)) softmax(Q̃ Kᵀ/√d) V, tilde: means of segments",
    meaning="product of three maps through landmarks; may be negative",
)
def nystrom(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    n_landmarks: int = 16,
    inverse: Inverse = "exact",
    n_steps: int = 6,
) -> Float[Tensor, "*batch query d_value"]:
    """Nyström attention: softmax attention through a few landmark tokens, each the mean of a segment."""
    first, inverted, last = nystrom_factors(query, key, n_landmarks, inverse, n_steps)
    return (first @ (inverted @ (last @ value.double()))).to(value.dtype)
