"""Linear attention: similarity is a product of features, so keys and values are summed up once.

    phi(x) = elu(x) + 1 > 0                               [*batch token d_head]
    S = sum_j phi(k_j) v_j^T,   s = sum_j phi(k_j)        [*batch d_head d_value], [*batch d_head]
    z_i  = phi(q_i) S / phi(q_i)·s                        cost n d_head d_value; no map is formed
    A_ij = phi(q_i)·phi(k_j) / sum_l phi(q_i)·phi(k_l)    the map that this implies: >= 0, rows sum to 1

Causal: S and s are running sums over j <= i. Taken one token at a time they are the state of a recurrent network
(`linear_step`), of a size that does not grow with the text. A is not softmax attention, nor near to it: nothing here
can be as sharp as exp.

Source: Katharopoulos, Vyas, Pappas, Fleuret 2020, "Transformers are RNNs", section 3.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from attnprobe.attention.masks import causal_mask
from attnprobe.attention.mechanisms import mechanisms
from attnprobe.errors import InputError, NumericsError

# Tokens whose running sums are taken together: the causal form is fastest near the width of a head.
BLOCK = 64


def elu_features(x: Float[Tensor, "*batch token d_head"]) -> Float[Tensor, "*batch token d_head"]:
    """phi(x) = elu(x) + 1: x + 1 above zero, exp(x) below; always positive.

    >>> elu_features(torch.tensor([[2.0, 0.0]])).tolist()
    [[3.0, 1.0]]
    """
    return torch.relu(x) + torch.exp(x.clamp(max=0))  # elu(x) + 1 itself would round exp(-40) to 0


def linear_weights(
    query: Float[Tensor, "*batch query d_head"], key: Float[Tensor, "*batch key d_head"], *, causal: bool = False
) -> Float[Tensor, "*batch query key"]:
    """The map that linear attention implies; forming it costs n².

    >>> linear_weights(torch.zeros(1, 1), torch.tensor([[0.0], [2.0]])).tolist()
    [[0.25, 0.75]]
    """
    return kernel_map(elu_features(query), elu_features(key), causal)


@mechanisms.add(
    family="kernel",
    source="Katharopoulos et al. 2020, section 3",
    weights=linear_weights,
    row_sum="one",
    cost="n",
    formula="z_i = φ(q_i) Σ_j φ(k_j) v_jᵀ / φ(q_i)·Σ_j φ(k_j), φ = elu + 1",
)
def linear(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    causal: bool = False,
) -> Float[Tensor, "*batch query d_value"]:
    """Linear attention: features elu + 1, keys and values summed up once; causal by running sums."""
    return kernel_mix(elu_features(query), elu_features(key), value, causal)


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


def kernel_map(
    query_features: Float[Tensor, "*batch query feature"],
    key_features: Float[Tensor, "*batch key feature"],
    causal: bool = False,
) -> Float[Tensor, "*batch query key"]:
    """The map of any positive features: their products, each row divided by its sum."""
    products = query_features @ key_features.mT
    if causal:
        visible = causal_mask(products.shape[-2], products.shape[-1], device=products.device)
        products = products.masked_fill(~visible, 0.0)
    return _shares(products, products.sum(-1, keepdim=True))


def kernel_mix(
    query_features: Float[Tensor, "*batch query feature"],
    key_features: Float[Tensor, "*batch key feature"],
    value: Float[Tensor, "*batch key d_value"],
    causal: bool = False,
) -> Float[Tensor, "*batch query d_value"]:
    """The mixed values of any positive features, by sums over the keys; a column of ones makes the sum of fits."""
    with_ones = torch.cat([value, torch.ones_like(value[..., :1])], dim=-1)
    if causal:
        mixed = running_mix(query_features, key_features, with_ones)
    else:
        mixed = query_features @ (key_features.mT @ with_ones)
    return _shares(mixed[..., :-1], mixed[..., -1:])


def running_mix(
    query_features: Float[Tensor, "*batch query feature"],
    key_features: Float[Tensor, "*batch key feature"],
    value: Float[Tensor, "*batch key d_value"],
) -> Float[Tensor, "*batch query d_value"]:
    """phi(q_i) sum_(j <= i) phi(k_j) v_j^T, not yet divided; the last query is at the last key.

    Token by token the sums would be n matrices. Here they are one a block; within its block a query meets the keys.
    """
    n_queries, n_before = query_features.shape[-2], key_features.shape[-2] - query_features.shape[-2]
    if n_before < 0:
        raise InputError(
            f"causal attention needs at least as many keys as queries, got {key_features.shape[-2]} keys and "
            f"{n_queries} queries; the last query is at the last key"
        )
    start = key_features[..., :n_before, :].mT @ value[..., :n_before, :]
    rest = (query_features, key_features[..., n_before:, :], value[..., n_before:, :])
    queries, keys, values = (
        pad(x, (0, 0, 0, -n_queries % BLOCK)).unflatten(-2, (-1, BLOCK)) for x in rest
    )  # [*batch block token width]
    sums = torch.cat([start[..., None, :, :], (keys.mT @ values)[..., :-1, :, :]], dim=-3).cumsum(-3)
    within = (queries @ keys.mT).tril()
    return (queries @ sums + within @ values).flatten(-3, -2)[..., :n_queries, :]


def _shares(mixed: Tensor, mass: Float[Tensor, "*batch query 1"]) -> Tensor:
    if (mass == 0).any():
        raise NumericsError(
            f"{int((mass == 0).sum())} queries have features whose products with all keys are 0 in {mass.dtype}: "
            "queries and keys are too long; make them shorter, or use float64"
        )
    return mixed / mass
