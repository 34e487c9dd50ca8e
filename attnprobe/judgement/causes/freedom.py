"""Non-identifiability: other weights that give the same output, whatever the layer is given."""

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import linprog
from torch import Tensor

from attnprobe.errors import CaptureError
from attnprobe.judgement.causes import Sign, causes, sign_of
from attnprobe.judgement.causes.case import NOTHING, Case
from attnprobe.methods.effective_attention import reached
from attnprobe.methods.mixing import visible_keys

# Heads whose maps differ by less than this share are one, as far as the model's own precision can tell.
ALIKE, ROUNDING = 1e-6, 10
N_CORNERS = 4


@causes.add(family="attention", source="Brunner et al. 2020, sec. 3, for all inputs", look_at="attention_x_gradient")
def non_identifiability(case: Case, *, threshold: float = 0.1) -> Sign:
    """Heads that write the same, so that other weights give the same output and the map is one of many.

    measure: the largest total variation by which the mean of the heads (last layer, position read) can be changed by
    weights that are at least 0 and sum to what they did, while Σ_h α^h_j W_V^h W_O^h stays for every token: then what
    the layer writes is the same whatever it is given. Present from `threshold` on. That other weights give the same
    output on one input is so wherever there are more tokens than directions of value, and is no cause; it is told.
    """
    last = len(case.sites) - 1
    row = next((r for r in case.read if r < case.attention(last).shape[1]), 0)
    seen = visible_keys(case.sites[last]).cpu()[:, row].any(0).nonzero().flatten()
    weights = case.attention(last)[:, row, seen]
    shown = heads_told_apart(case, last)
    moved = furthest(weights, shown, case.seed)
    share = 0.0 if moved is None else float((moved - weights).mean(0).abs().sum() / 2)
    present = share >= threshold
    lengths = case.written(last, case.sites[last].need("value")[0])[:, seen]
    free = [len(seen) - reached(head, True)[1] for head in lengths]
    said = (
        f"The {len(weights)} heads read last write in {shown.shape[1]} independent ways; weights with the same output "
        f"whatever the layer is given move {share:.2f} of their mean (total variation). On this input alone "
        f"{sum(free)} of {weights.numel()} weights are free, which tokens bring about by being many."
    )
    if present and moved is not None:
        other = case.example.pieces[int(seen[moved.mean(0).argmax()])]
        said += f" One of them has '{other}' first, this one {{units}}; the output cannot tell which is right."
    return sign_of(case, present, share, threshold, [int(seen[weights.mean(0).argmax()])], said)


def heads_told_apart(case: Case, layer: int) -> Float[Tensor, "head way"]:
    """An orthonormal basis of the combinations of heads that show: those of W_V W_O (and b_V W_O) that are not 0.

    Errors: `CaptureError` where W_V or W_O was not found.
    """
    if case.projections is None:
        raise CaptureError(f"W_O of {case.model.name} was not found, so heads cannot be compared by what they write")
    projection = case.projections[layer]
    reads, bias, writes = (projection.need(name).detach() for name in ("W_V", "b_V", "W_O"))
    tolerance = max(ALIKE, ROUNDING * torch.finfo(reads.dtype).eps)
    reads, writes = torch.cat([reads, bias[:, None]], 1).double().cpu(), writes.double().cpu()
    # tr((W_V^g W_O^g)^T W_V^h W_O^h) of every two heads, without d_model x d_model matrices.
    inner = torch.einsum("gdi,hdj->ghij", reads, reads) * torch.einsum("gim,hjm->ghij", writes, writes)
    gram = inner.sum((2, 3))
    length = gram.diagonal().clamp(min=NOTHING).sqrt()
    sizes, vectors = torch.linalg.eigh(gram / length[:, None] / length)
    return torch.linalg.qr(length[:, None] * vectors[:, sizes > tolerance * sizes.max()]).Q


def furthest(
    weights: Float[Tensor, "head key"], shown: Float[Tensor, "head way"], seed: int
) -> Float[Tensor, "head key"] | None:
    """Weights that show nowhere in the output and are furthest from these in the mean of heads; None: there are none.

    Corners of the set of all such weights, found by linear programs: one leaves as little as possible where most was,
    the others go into random directions of the mean.
    """
    n_heads, n_keys = weights.shape
    if shown.shape[1] >= n_heads:
        return None
    by_key = torch.kron(shown.T.contiguous(), torch.eye(n_keys, dtype=torch.float64))
    sums = torch.kron(torch.eye(n_heads, dtype=torch.float64), torch.ones(1, n_keys, dtype=torch.float64))
    held, start = torch.cat([by_key, sums]), weights.flatten()
    generator = np.random.default_rng(seed)
    costs = [weights.mean(0).numpy(), *generator.standard_normal((N_CORNERS - 1, n_keys))]
    found = []
    for cost in costs:
        given = {"A_eq": held.numpy(), "b_eq": (held @ start).numpy(), "bounds": (0, None), "method": "highs"}
        solved = linprog(np.tile(cost, n_heads), **given)
        if solved.status == 0:
            found.append(torch.from_numpy(solved.x).reshape(weights.shape))
    return max(found, key=lambda other: float((other - weights).mean(0).abs().sum()), default=None)
