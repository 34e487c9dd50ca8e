"""The part of attention that reaches the output: what the values cannot tell apart taken out (Brunner et al. 2020)."""

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.attention import Heads, check_layer, merged
from attnprobe.methods.mixing import visible_keys
from attnprobe.methods.sinks import Sink, handled
from attnprobe.models.model import Model
from attnprobe.models.projections import projections
from attnprobe.models.reading import explained_stack, read_rows
from attnprobe.target import ResolvedTarget

# Singular values below this share of the largest are rounding.
RANK_TOLERANCE = 1e-6


@methods.add(
    family="attention",
    source="Brunner et al. 2020, sec. 3",
    formula="A_r − P A_r; P: onto {δ: δ T = 0}, T_j = f(x_j) = v_j W_O, keys that r may look at",
    cost="1 F, H singular value decompositions",
    signed=False,
    passes=lambda size, o: (1, 0),
)
def effective_attention(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    layer: int = -1,
    heads: Heads = "mean",
    keep_sum: bool = False,
    rank_tolerance: float = RANK_TOLERANCE,
    sink: Sink = "keep",
) -> Scores:
    """The row of attention read, without what makes no difference to the head's output; entries may be below 0.

    Where a head has more keys than directions of value, many rows of attention give one output; this is the shortest of
    them, which says more about the values than about the attention. keep_sum: the row also keeps its sum (deviations
    that sum to 0 alone are taken out). rank_tolerance: singular values below this share of the largest count as 0.
    sink as in raw_attention. Told: how many directions of each head were free.
    """
    if not 0 <= rank_tolerance < 1:
        raise InputError(f"rank_tolerance is a share from 0 to below 1, got {rank_tolerance}")
    stack = explained_stack(model, example)
    number = check_layer(layer, stack.n_layers)
    keep = Keep.of("weights", "value", layers=number, stack=stack.name, kind=stack.kind)
    sites = model.capture(example, keep=keep).select(stack.name, stack.kind)
    if len(sites) != 1:
        raise InputError(f"{model.name} keeps parts of layer {number} apart, so there is no row over all its tokens")
    site, rows = sites[0], read_rows(model, example, target, stack.kind)
    projection = projections(model, stack.name, stack.kind)[number]
    values = _as_long(site.need("value")[0].double(), projection.need("W_O").detach().double())
    weights, seen = site.need("weights")[0].double(), visible_keys(site)
    # Rows that see the same keys share one decomposition; else only those that are read are worth it.
    alike = bool((seen == seen[:1, :1]).all())
    wanted = list(range(weights.shape[1])) if alike else rows.tolist()
    shown, ranks = torch.zeros_like(weights), {}
    for group in [wanted] if alike else [[row] for row in wanted]:
        for head in range(len(weights)):
            keys = seen[head, group[0]]
            basis, rank = reached(values[head, keys], keep_sum, rank_tolerance)
            within = weights[head, group][:, keys] @ basis @ basis.T
            shown[head, torch.tensor(group)[:, None], keys.nonzero().flatten()] = within
            ranks[head] = (rank, int(keys.sum()))
    (whole,) = merged([shown], heads)
    whole, told = handled(whole, sink, rows.tolist())
    used: dict[str, object] = {"read_rows": rows.tolist()[:8], "layer": number}
    used["free_directions"] = [n_keys - rank for rank, n_keys in ranks.values()]
    return Scores(whole[rows].mean(0), map=whole if alike else None, used=used | told)


def _as_long(value: Float[Tensor, "head key d_value"], W_O: Float[Tensor, "head d_value d_model"]) -> Tensor:
    """f(x_j) = v_j W_O of each head, in d_value coordinates: lengths and angles stay as they are."""
    return value @ torch.linalg.qr(W_O.mT).R.mT


def reached(
    values: Float[Tensor, "key d_value"], keep_sum: bool, rank_tolerance: float = RANK_TOLERANCE
) -> tuple[Float[Tensor, "key direction"], int]:
    """An orthonormal basis of the rows of attention that the values tell apart, and its size; the rest is free.

    keep_sum: the row of ones is in it too.
    """
    if not len(values):
        return values[:, :0], 0
    left, sizes, _ = torch.linalg.svd(values, full_matrices=False)
    basis = left[:, sizes > rank_tolerance * sizes.max().clamp(min=torch.finfo(sizes.dtype).tiny)]
    if keep_sum:
        ones = torch.ones(len(values), 1, dtype=values.dtype, device=values.device)
        rest = ones - basis @ (basis.T @ ones)
        if float(rest.norm()) > rank_tolerance * len(values) ** 0.5:
            basis = torch.cat([basis, rest / rest.norm()], dim=1)
    return basis, basis.shape[1]
