"""Linformer: keys and values of n tokens are mixed into a few slots, and attention looks at the slots.

    P    = softmax(q (E K)^T / sqrt(d_head))          [*batch query slot]    E [slot key]: mixes keys
    z    = P (F V)                                                           F [slot key]: mixes values
    A    = P F                                        [*batch query key]     the map that this implies

P says nothing about tokens: a slot is a mixture of all of them. What a token's value counts for is A, through the
projection F *of the values*, not E. A may have negative entries, and its rows need not sum to 1. E and F are learned
in a trained Linformer: give them as `E` and `F` (E alone serves for both); a shorter text uses their first columns.
Else one is drawn for both, N(0, 1/n_slots): the column of a position is the same in a text of any length.

Cost n n_slots d_head. There is no causal form: every slot mixes all tokens.

Source: Wang, Li, Khabsa, Fang, Ma 2020, "Linformer: self-attention with linear complexity", section 4.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.mechanisms import mechanisms
from attnprobe.attention.scores import scaled_dot_scores
from attnprobe.errors import InputError

BLOCK = 64  # keys whose columns are drawn at a time


def linformer_projections(
    key: Float[Tensor, "*batch key d_head"], E: Tensor | None, F: Tensor | None, n_slots: int, seed: int
) -> tuple[Float[Tensor, "*#batch slot key"], Float[Tensor, "*#batch slot key"]]:
    """E and F as given, checked against the keys; else drawn from the seed, the same matrix for both."""
    n_keys = key.shape[-2]
    if E is None and F is not None:
        raise InputError("linformer was given F without E; give E (it serves for both), or both")
    if E is None:
        if n_slots < 1:
            raise InputError(f"linformer needs at least one slot, got n_slots = {n_slots}; give 1 or more")
        E = drawn_projection(n_keys, n_slots, seed).to(key)
    F = E if F is None else F
    if E.ndim < 2 or E.shape[-1] < n_keys or E.shape[-2:] != F.shape[-2:]:
        raise InputError(
            f"E and F of linformer are both [slot key] with at least the {n_keys} keys of this text, got "
            f"{tuple(E.shape)} and {tuple(F.shape)}; a longer text needs more columns"
        )
    return E[..., :n_keys], F[..., :n_keys]


def drawn_projection(n_keys: int, n_slots: int, seed: int) -> Float[Tensor, "{n_slots} {n_keys}"]:
    """N(0, 1/n_slots), drawn some keys at a time, so that a longer text has the columns of a shorter one (float64)."""
    generator = torch.Generator().manual_seed(seed)
    n_blocks = -(-n_keys // BLOCK)
    columns = [torch.randn(BLOCK, n_slots, generator=generator, dtype=torch.float64) for _ in range(n_blocks)]
    return torch.cat(columns)[:n_keys].mT / n_slots**0.5


def slot_weights(
    query: Float[Tensor, "*batch query d_head"], key: Float[Tensor, "*batch key d_head"], E: Tensor
) -> Float[Tensor, "*batch query slot"]:
    """P: softmax over the slots."""
    return torch.softmax(scaled_dot_scores(query, E @ key), dim=-1)


def linformer_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    E: Tensor | None = None,
    F: Tensor | None = None,
    n_slots: int = 16,
    seed: int = 0,
) -> Float[Tensor, "*batch query key"]:
    """The map pulled back from slots to tokens: P F."""
    E, F = linformer_projections(key, E, F, n_slots, seed)
    return slot_weights(query, key, E) @ F


@mechanisms.add(
    family="low rank",
    source="Wang et al. 2020, section 4",
    weights=linformer_weights,
    row_sum="any",
    cost="n",
    formula="z = softmax(q (E K)ᵀ / √d) F V, E and F [slot key]",
    meaning="slots pulled back to tokens by F; may be negative, rows sum to anything",
)
def linformer(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    E: Tensor | None = None,
    F: Tensor | None = None,
    n_slots: int = 16,
    seed: int = 0,
) -> Float[Tensor, "*batch query d_value"]:
    """Linformer: attention over a few mixtures of all keys and values."""
    E, F = linformer_projections(key, E, F, n_slots, seed)
    return slot_weights(query, key, E) @ (F @ value)
