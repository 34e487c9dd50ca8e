"""What changes when a token's values are zeroed while all attention weights stay."""

import warnings
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError, NumericsError
from attnprobe.example import Example
from attnprobe.intervention import zero_value
from attnprobe.methods import Scores, methods
from attnprobe.methods.attention import roll_out
from attnprobe.models.evaluator import count, targets
from attnprobe.models.layers import layer_calls, rerun
from attnprobe.models.model import Model
from attnprobe.models.reading import explained_stack, read_rows
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget


def rounding(dtype: torch.dtype) -> float:
    """Below this, 1 − cosine is rounding of the states and no effect (the cosine itself is taken in float64)."""
    return float((10 * torch.finfo(dtype).eps) ** 2)


@methods.add(
    family="attention",
    source="Mohebbi et al. 2023, sec. 3",
    formula="C^l_{ij} = 1 − cos(x̃_i, x_i), v_j = 0 in layer l; rows to 1; ∏_l C^l, row r",
    cost="n F",
    signed=False,
)
def value_zeroing(
    model: Model, example: Example, target: ResolvedTarget, *, read: Literal["rollout", "target"] = "rollout"
) -> Scores:
    """How much each token's values change what a layer gives on, through all layers; a share of 1 a row.

    read="target" instead zeroes a token's values in all layers at once, later attention recomputed, and gives
    the fall of the target: signed, target units.
    """
    if read == "target":
        rows = [Row(example, edits=(zero_value(j, kind="self"),)) for j in range(example.n_tokens)]
        answers = targets(model, [Row(example), *rows], target, progress="value zeroing")
        return Scores((answers[0] - answers[1:]).float(), used={"read": "target"})
    if read != "rollout":
        raise InputError(f"read is 'rollout' or 'target', got '{read}'")
    stack = explained_stack(model, example, "self")
    if explained_stack(model, example).kind == "cross":
        raise InputError("value_zeroing through layers is not defined for an encoder-decoder; use read='target'")
    whole = roll_out(layer_changes(model, example, stack.name), identity=0.0)
    position = read_rows(model, example, target)
    return Scores(whole[position].mean(0), map=whole)


def _warn_if_lost(total: Tensor, dtype: torch.dtype, layer: int) -> None:
    """Say where a change is too small to be told from rounding; those rows keep to themselves."""
    lost = int((total == 0).sum())
    if lost == len(total):
        raise NumericsError(
            f"value_zeroing: in layer {layer} zeroing values changes nothing beyond the rounding of {dtype}, so there "
            "is no map of it; try float32, or another layer"
        )
    if lost and dtype in (torch.float16, torch.bfloat16):
        warnings.warn(
            f"value_zeroing: in layer {layer} zeroing values changes nothing beyond the rounding of {dtype} for {lost} "
            f"of {len(total)} tokens" + ("; use float32" if dtype in (torch.float16, torch.bfloat16) else ""),
            stacklevel=2,
        )


def layer_changes(model: Model, example: Example, stack: str) -> list[Float[Tensor, "query key"]]:
    """For each layer, 1 − cosine between its output with and without the values of a token, rows summing to 1.

    A row in which nothing changes keeps to itself (identity), since no token's values reached it.
    """
    rows = [Row(example, edits=(zero_value(j, kind="self"),)) for j in range(example.n_tokens)]
    maps: list[Tensor] = []
    for call in layer_calls(model, example, stack):
        changed = rerun(model, call, rows)
        n_tokens = example.n_tokens  # a layer may have got more, padded to whole windows
        states = changed[:, :n_tokens].double(), call.output[:, :n_tokens].double()
        distance = 1 - torch.cosine_similarity(*states, dim=-1).T
        distance = distance.where(distance > rounding(changed.dtype), 0.0)
        total = distance.sum(-1, keepdim=True)
        _warn_if_lost(total, changed.dtype, len(maps))
        own = torch.eye(example.n_tokens, device=distance.device, dtype=distance.dtype)
        maps.append((distance / total.where(total > 0, 1.0)).where(total > 0, own).float())
    count(forward=example.n_tokens)
    return maps
