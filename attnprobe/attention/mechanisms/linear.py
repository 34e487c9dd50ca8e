"""Linear attention: similarity is a product of features, so keys and values are summed up once.

    phi(x) = elu(x) + 1 > 0                               [*batch token d_head]
    S = sum_j phi(k_j) v_j^T,   s = sum_j phi(k_j)        [*batch d_head d_value], [*batch d_head]
    z_i  = phi(q_i) S / phi(q_i)·s                        cost n d_head d_value; no map is formed
    A_ij = phi(q_i)·phi(k_j) / sum_l phi(q_i)·phi(k_l)    the map that this implies: >= 0, rows sum to 1

A mask that all queries share takes keys out of S and s; one of another kind costs n². Causal: S and s are running sums
over j <= i. Taken one token at a time they are the state of a recurrent network (`linear_step`), of a size that does
not grow with the text. A is not softmax attention, nor near to it: nothing here can be as sharp as exp.

Source: Katharopoulos, Vyas, Pappas, Fleuret 2020, "Transformers are RNNs", section 3.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.blockwise import wide
from attnprobe.attention.kernels import kernel_map, kernel_mix, without_unseen
from attnprobe.attention.mechanisms import mechanisms


def elu_features(x: Float[Tensor, "*batch token d_head"]) -> Float[Tensor, "*batch token d_head"]:
    """phi(x) = elu(x) + 1: x + 1 above zero, exp(x) below; always positive.

    >>> elu_features(torch.tensor([[2.0, 0.0]])).tolist()
    [[3.0, 1.0]]
    """
    return torch.relu(x) + torch.exp(x.clamp(max=0))  # elu(x) + 1 itself would round exp(-40) to 0


def linear_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    causal: bool = False,
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query key"]:
    """The map that linear attention implies; forming it costs n².

    >>> linear_weights(torch.zeros(1, 1), torch.tensor([[0.0], [2.0]])).tolist()
    [[0.25, 0.75]]
    """
    return kernel_map(*_features(query, key, visible), causal, visible).to(query.dtype)


@mechanisms.add(
    family="kernel",
    source="Katharopoulos et al. 2020, section 3",
    weights=linear_weights,
    row_sum="one",
    cost="n",
    formula="z_i = φ(q_i) Σ_j φ(k_j) v_jᵀ / φ(q_i)·Σ_j φ(k_j), φ = elu + 1",
    meaning="share of a product of features; not softmax, and flat",
)
def linear(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    causal: bool = False,
    visible: Tensor | None = None,
) -> Float[Tensor, "*batch query d_value"]:
    """Linear attention: features elu + 1, keys and values summed up once; causal by running sums."""
    return kernel_mix(*_features(query, key, visible), value, causal, visible).to(value.dtype)


def _features(query: Tensor, key: Tensor, visible: Tensor | None) -> tuple[Tensor, Tensor]:
    """In float32 at least: sums over many keys overflow half precision."""
    return elu_features(wide(query)), elu_features(wide(without_unseen(key, query, visible)))


class LinearState(NamedTuple):
    """All that causal linear attention remembers of the tokens so far: sum of phi(k) v^T, and of phi(k)."""

    mixed: Float[Tensor, "*batch d_head d_value"]
    mass: Float[Tensor, "*batch d_head"]


def linear_step(
    state: LinearState | None,
    query: Float[Tensor, "*batch d_head"],
    key: Float[Tensor, "*batch d_head"],
    value: Float[Tensor, "*batch d_value"],
) -> tuple[Float[Tensor, "*batch d_value"], LinearState]:
    """One token of causal linear attention: its z, and the state for the next; None begins a text."""
    query_features, key_features = elu_features(query[..., None, :]), elu_features(key[..., None, :])
    mixed, mass = key_features.mT * value[..., None, :], key_features[..., 0, :]
    if state is not None:
        mixed, mass = state.mixed + mixed, state.mass + mass
    z = query_features @ mixed / (query_features @ mass[..., None])
    return z[..., 0, :], LinearState(mixed, mass)
