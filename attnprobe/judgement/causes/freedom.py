"""Non-identifiability: other weights that give the same output, on this input and on others."""

import numpy as np
import torch
from jaxtyping import Float
from scipy.optimize import linprog
from torch import Tensor

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import CaptureError
from attnprobe.judgement.causes import Sign, causes, sign_of
from attnprobe.judgement.causes.case import Case
from attnprobe.judgement.resampling import source_of
from attnprobe.methods.mixing import visible_keys
from attnprobe.models.evaluator import count, edits_of
from attnprobe.models.rows import Row

# Other inputs, so many at a time, until they tell no more weights apart; at most so many times.
INPUTS_AT_ONCE, MOST_ROUNDS = 16, 8
# Directions of less than this share of the largest are rounding.
RANK_TOLERANCE = 1e-6
N_CORNERS = 4


@causes.add(
    family="attention", source="Brunner et al. 2020, sec. 3, of all heads and inputs", look_at="attention_x_gradient"
)
def non_identifiability(case: Case, *, threshold: float = 0.1) -> Sign:
    """Other attention gives the same output whatever the tokens say, so the map is one of many.

    measure: the largest total variation by which the mean of the heads (last layer, position read) can be changed by
    weights that are at least 0 and sum to what they did, while what all heads write together stays the same on this
    input and on inputs with other content in every token's place. Present from `threshold` on. That other weights give
    the same output on one input alone is so wherever there are more tokens than directions of value, and is no cause.
    """
    last = len(case.sites) - 1
    row = next((r for r in case.read if r < case.attention(last).shape[1]), 0)
    seen = visible_keys(case.sites[last]).cpu()[:, row].any(0).nonzero().flatten()
    weights = case.attention(last)[:, row, seen]
    fixed, free_here = _told_apart(case, last, seen)
    moved = _furthest(weights, fixed, case.seed)
    share = 0.0 if moved is None else float((moved - weights).mean(0).abs().sum() / 2)
    present = share >= threshold
    top = [int(seen[weights.mean(0).argmax()])]
    said = (
        f"Other weights with the same output on every input that was tried move {share:.2f} of the map (total "
        f"variation of the mean of {len(weights)} heads). On this input alone {free_here} of {weights.numel()} weights "
        "are free, which the number of tokens brings about."
    )
    if present and moved is not None:
        other = case.example.pieces[int(seen[moved.mean(0).argmax()])]
        said += f" One of them looks most at '{other}'; this one at {{units}}. The output cannot tell which is right."
    return sign_of(case, present, share, threshold, top, said)


def _told_apart(case: Case, layer: int, seen: Tensor) -> tuple[Float[Tensor, "weight direction"], int]:
    """An orthonormal basis of the changes of weights (head by head, key by key) that show in the output of some input
    or in a head's sum, and how many directions this input alone leaves free."""
    n_heads, n_keys = case.sites[layer].n_heads, len(seen)
    sums = torch.eye(n_heads, dtype=torch.float64).repeat_interleave(n_keys, 0)
    known = case.written(layer, case.sites[layer].need("value")[0])[:, seen].flatten(0, 1)
    basis = _basis(known, sums)
    free_here = n_heads * n_keys - basis.shape[1]
    source = source_of(case.model, case.example, case.units, case.data)
    draws = source.draws(INPUTS_AT_ONCE * MOST_ROUNDS, torch.Generator().manual_seed(case.seed))
    taken = torch.ones(case.example.n_tokens, dtype=torch.bool)
    taken[case.units] = False
    gram = known @ known.T
    for start in range(0, len(draws), INPUTS_AT_ONCE):
        rank = basis.shape[1]
        if rank == n_heads * n_keys:
            break
        rows = [
            Row(case.example, kept=taken, operator="resample", stand_ins=draw)
            for draw in draws[start : start + INPUTS_AT_ONCE]
        ]
        found = case.written(layer, _values(case, layer, rows))[:, :, seen].flatten(1, 2)
        gram = gram + (found @ found.mT).sum(0)
        basis = _basis(_root(gram), sums)
        if basis.shape[1] == rank:
            break
    return basis, free_here


def _root(gram: Float[Tensor, "weight weight"]) -> Float[Tensor, "weight direction"]:
    """Columns that span what a Gram matrix does, each as long as its share."""
    sizes, vectors = torch.linalg.eigh(gram)
    return vectors * sizes.clamp(min=0).sqrt()


def _basis(
    shown: Float[Tensor, "weight direction"], sums: Float[Tensor, "weight head"]
) -> Float[Tensor, "weight direction"]:
    """An orthonormal basis of both, each by its own size."""
    parts = [part / torch.linalg.matrix_norm(part, 2).clamp(min=1e-30) for part in (shown, sums)]
    left, sizes, _ = torch.linalg.svd(torch.cat(parts, 1), full_matrices=False)
    return left[:, sizes > RANK_TOLERANCE * sizes.max()]


def _values(case: Case, layer: int, rows: list[Row]) -> Float[Tensor, "row head key d_value"]:
    """The values of one layer on other inputs."""
    keep = Keep.of("value", layers=layer, stack=case.stack.name, kind=case.stack.kind)
    tape = Tape(**edits_of(rows), keep=keep, check=False)
    count(forward=len(rows))
    with torch.no_grad():
        case.model.forward(rows, tape)
    if len(tape.sites) != 1:
        raise CaptureError(f"{case.model.name} keeps parts of layer {layer} apart, so there is no value of each token")
    return tape.sites[0].need("value")


def _furthest(
    weights: Float[Tensor, "head key"], fixed: Float[Tensor, "weight direction"], seed: int
) -> Float[Tensor, "head key"] | None:
    """Weights that show nowhere in the output and are furthest from these in the mean of heads; None: there are none.

    Corners of the set of all such weights, found by linear programs: one leaves as little as possible where most was,
    the others go into random directions of the mean.
    """
    if fixed.shape[1] >= weights.numel():
        return None
    start = weights.flatten()
    generator = np.random.default_rng(seed)
    costs = [weights.mean(0).numpy(), *generator.standard_normal((N_CORNERS - 1, weights.shape[1]))]
    best, most = None, -1.0
    for cost in costs:
        solved = linprog(
            np.tile(cost, len(weights)),
            A_eq=fixed.T.numpy(),
            b_eq=(fixed.T @ start).numpy(),
            bounds=(0, None),
            method="highs",
        )
        if solved.status == 0:
            other = torch.from_numpy(solved.x).reshape(weights.shape)
            far = float((other - weights).mean(0).abs().sum())
            if far > most:
                best, most = other, far
    return best
