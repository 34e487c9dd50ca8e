"""Reach: which positions L layers of masked attention connect, whatever the weights are.

M_l [query key] is the mask of layer l, one step: query i sees key j. The residual stream lets every position see
itself, so a step is M_l or I; without it, M_l alone. L layers connect i with j where a walk of L steps does:

    R_L = M_L ∘ … ∘ M_1       (A ∘ B)_ij = OR_k (A_ik AND B_kj)       the boolean matrix product

True says only that information *may* flow from input j to output i; False says that the gradient is exactly 0.
Heads of one layer join by OR (the output projection mixes them). Source: the receptive field argument of Child et al.
2019 (section 4.1) and Zaheer et al. 2020 (section 3), written as products of adjacency matrices.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import InputError


def reach(masks: Tensor | Sequence[Tensor], *, residual: bool = True) -> Bool[Tensor, "*batch query key"]:
    """Which inputs (keys) the output at each position (query) may depend on, after these layers, first layer first.

    A mask is [query key], [batch query key] or [batch head query key]; 1 where it is the same for all.

    >>> window = torch.ones(4, 4).tril().triu(-1).bool()           # itself and the one before
    >>> reach([window, window])[3].int().tolist()
    [0, 1, 1, 1]
    """
    layers = [masks] if isinstance(masks, Tensor) else list(masks)
    if not layers:
        raise InputError("reach needs the mask of at least one layer; give one a layer, or one alone")
    whole = one_step(layers[0], residual=residual)
    for mask in layers[1:]:
        step = one_step(mask, residual=residual)
        if step.shape[-1] != whole.shape[-1]:
            raise InputError(f"all layers have the same tokens, got masks of {whole.shape[-1]} and {step.shape[-1]}")
        whole = boolean_product(step, whole)
    return whole


def one_step(mask: Tensor, *, residual: bool = True) -> Bool[Tensor, "*batch token token"]:
    """What one layer connects: all of its heads together, and every position with itself where there is a residual."""
    if mask.dtype is not torch.bool or not 2 <= mask.ndim <= 4 or mask.shape[-2] not in (1, mask.shape[-1]):
        raise InputError(
            f"reach takes boolean masks of self-attention, [query key], [batch query key] or [batch head query key] "
            f"with as many queries as keys, got {mask.dtype} {tuple(mask.shape)}"
        )
    n_tokens = mask.shape[-1]
    step = mask.any(1) if mask.ndim == 4 else mask
    step = step.expand(*step.shape[:-2], n_tokens, n_tokens)
    return step | torch.eye(n_tokens, dtype=torch.bool, device=mask.device) if residual else step


def boolean_product(
    left: Bool[Tensor, "*#batch query middle"], right: Bool[Tensor, "*#batch middle key"]
) -> Bool[Tensor, "*batch query key"]:
    """True where some middle position joins the two: counts of the ways, more than none."""
    return left.float() @ right.float() > 0


def distances(mask: Tensor) -> Float[Tensor, "*batch query key"]:
    """The fewest layers with this mask through which a query sees a key: 0 for itself, inf where no depth helps.

    >>> distances(torch.tensor([[True, False, False], [True, True, False], [False, True, True]])).tolist()
    [[0.0, inf, inf], [1.0, 0.0, inf], [2.0, 1.0, 0.0]]
    """
    step = one_step(mask)
    seen = torch.eye(step.shape[-1], dtype=torch.bool, device=mask.device).expand_as(step)
    found = torch.zeros(step.shape, device=mask.device).masked_fill(~seen, torch.inf)
    for n_layers in range(1, step.shape[-1]):
        further = boolean_product(step, seen)
        if torch.equal(further, seen):
            break
        found, seen = found.masked_fill(further & ~seen, n_layers), further
    return found


def layers_until_reached(mask: Tensor, wanted: Tensor | None = None, *, residual: bool = True) -> int | None:
    """How many layers with this mask it takes until every wanted pair is connected at once; None: no number does.

    wanted: boolean, broadcast to the reach (default: all pairs); for causal patterns give `causal_mask(n)`.

    >>> layers_until_reached(torch.ones(5, 5).tril(1).triu(-1).bool())
    4
    """
    step = one_step(mask, residual=residual)
    whole, seen, n_layers = step, set[bytes](), 1
    while not (whole if wanted is None else whole | ~wanted).all():
        # Reaches follow from one another, so one that comes back comes back for ever.
        state = whole.cpu().numpy().tobytes()
        if state in seen:
            return None
        seen.add(state)
        whole, n_layers = boolean_product(step, whole), n_layers + 1
    return n_layers
