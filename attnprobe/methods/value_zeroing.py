"""What changes when a token's values are zeroed while all attention weights stay."""

import warnings
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Edit
from attnprobe.errors import InputError, NumericsError
from attnprobe.example import Example
from attnprobe.intervention import patch, zero_value
from attnprobe.methods import Scores, methods
from attnprobe.methods.attention import roll_out
from attnprobe.models.evaluator import count, targets
from attnprobe.models.layers import layer_calls, rerun
from attnprobe.models.model import Model, Stack
from attnprobe.models.reading import explained_stack, read_rows
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget


def rounding(dtype: torch.dtype) -> float:
    """Below this, 1 − cosine is rounding of the states and no effect (the cosine itself is taken in float64)."""
    return max(float((10 * torch.finfo(dtype).eps) ** 2), 1e-14)  # of the cosine itself: some 2e-16


@methods.add(
    family="attention",
    source="Mohebbi et al. 2023, sec. 3",
    formula="C^l_{ij} = 1 − cos(x̃_i, x_i), v_j = 0 in layer l; rows to 1; ∏_l C^l, row r",
    cost="n F",
    signed=False,
    passes=lambda size, o: (size.n_tokens + 1 + (o["read"] == "target" and o["attention"] == "frozen"), 0),
)
def value_zeroing(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    read: Literal["rollout", "target"] = "rollout",
    attention: Literal["recomputed", "frozen"] = "recomputed",
) -> Scores:
    """How much each token's values change what a layer gives on, through all layers; a share of 1 a row.

    Of an encoder-decoder, decoder layers share a row out over the source and the answer so far, and what lies on the
    source is followed through the encoder (joined as in Ferrando et al. 2022, ALTI+); the rest of 1 is the answer's.
    read="target" instead zeroes a token's values in all layers at once (of an encoder-decoder in its encoder and its
    cross-attention) and gives the fall of the target: signed, target units. attention: what later layers then look at
    is "recomputed", or "frozen" as it was; each layer alone is always frozen.
    """
    if read not in ("rollout", "target"):
        raise InputError(f"read is 'rollout' or 'target', got '{read}'")
    if attention not in ("recomputed", "frozen"):
        raise InputError(f"attention is 'recomputed' or 'frozen', got '{attention}'")
    if read == "target":
        return _fall_of_target(model, example, target, attention == "frozen")
    if attention == "frozen":
        raise InputError("attention='frozen' belongs to read='target'; through the layers each one is zeroed alone")
    stack = explained_stack(model, example)
    if stack.kind == "cross":
        whole = source_changes(model, example, stack)
    else:
        whole = roll_out(layer_changes(model, example, stack.name), identity=0.0)
    position = read_rows(model, example, target, stack.kind)
    return Scores(whole[position].mean(0), map=whole)


def _fall_of_target(model: Model, example: Example, target: ResolvedTarget, frozen: bool) -> Scores:
    """y − y with the values of a token at 0 in every layer that its stack has."""
    stack = explained_stack(model, example)
    stacks = [stack] if stack.kind == "self" else [*_encoder_of(model, stack), stack]
    before: tuple[Edit, ...] = (patch(model.capture(example), "weights"),) if frozen else ()
    rows = [
        Row(example, edits=(*before, *(zero_value(j, stack=s.name, kind=s.kind) for s in stacks)))
        for j in range(example.n_tokens)
    ]
    answers = targets(model, [Row(example), *rows], target, progress="value zeroing")
    where = ", ".join(f"{s.name} {s.kind}-attention" for s in stacks)
    used: dict[str, object] = {"read": "target", "attention": "frozen" if frozen else "recomputed", "zeroed": where}
    return Scores((answers[0] - answers[1:]).float(), used=used)


def _encoder_of(model: Model, cross: Stack) -> list[Stack]:
    """The stack of self-attention over the source that a decoder looks at, if there is one."""
    return [s for s in model.stacks if s.kind == "self" and s.name != cross.name][:1]


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
        distance = _distances(rerun(model, call, rows), call.output, example.n_tokens)
        maps.append(_shares(distance, torch.eye(example.n_tokens), call.output.dtype, len(maps)))
    count(forward=example.n_tokens)
    return maps


def source_changes(model: Model, example: Example, cross: Stack) -> Float[Tensor, "answer source"]:
    """For each position of the answer, its share of each source token, by zeroing values in decoder and encoder."""
    encoder = _encoder_of(model, cross)
    n_source, own = example.n_tokens, torch.eye(example.n_tokens)
    below = roll_out(layer_changes(model, example, encoder[0].name), identity=0.0) if encoder else own
    calls = layer_calls(model, example, cross.name, "cross")
    n_answer = calls[0].output.shape[1]
    edits = [zero_value(j, kind="cross") for j in range(n_source)]
    edits += [zero_value(i, kind="self") for i in range(n_answer)]
    rows = [Row(example, edits=(edit,)) for edit in edits]
    keeps = torch.cat([torch.zeros(n_answer, n_source), torch.eye(n_answer)], dim=1)
    between = torch.zeros(n_answer, n_source)
    for number, call in enumerate(calls):
        distance = _distances(rerun(model, call, rows), call.output, n_answer)
        source, answer = _shares(distance, keeps, call.output.dtype, number).split([n_source, n_answer], dim=1)
        between = answer @ between + source @ below
    count(forward=len(rows))
    return between


def _distances(changed: Tensor, output: Tensor, n_queries: int) -> Float[Tensor, "query row"]:
    """1 − cosine of the states of each query (a layer may have got more, padded to whole windows)."""
    states = changed[:, :n_queries].double(), output[:, :n_queries].double()
    distance = 1 - torch.cosine_similarity(*states, dim=-1).T
    return distance.where(distance > rounding(changed.dtype), 0.0).cpu()


def _shares(distance: Tensor, own: Tensor, dtype: torch.dtype, layer: int) -> Float[Tensor, "query row"]:
    """Distances with rows summing to 1; a row of zeros becomes that of `own`."""
    total = distance.sum(-1, keepdim=True)
    _warn_if_lost(total, dtype, layer)
    return (distance / total.where(total > 0, 1.0)).where(total > 0, own.to(distance)).float()
