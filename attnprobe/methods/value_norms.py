"""How long the vectors are that attention writes: weight and value together (Kobayashi et al. 2020, 2021)."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.capture import Capture
from attnprobe.errors import InputError, NumericsError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.attention import check_layer
from attnprobe.models.anatomy import alike
from attnprobe.models.model import Model, Stack
from attnprobe.models.projections import Projection, projections
from attnprobe.models.reading import explained_stack, read_rows
from attnprobe.models.vectors.layers import mixing_ratio, through_layers
from attnprobe.models.vectors.parts import fit
from attnprobe.target import ResolvedTarget

NO_ENCODER_DECODER = (
    "it follows the self-attention of one stack to the answer, which the source of an encoder-decoder reaches through "
    "cross-attention; use value_norms (of its cross-attention)"
)


@methods.add(
    family="attention",
    source="Kobayashi et al. 2020, sec. 3",
    formula="‖Σ_h A^h_{rj} f^h(x_j)‖, f^h(x) = (x W_V^h + b_V^h) W_O^h, last layer",
    cost="1 F",
    signed=False,
    passes=lambda size, o: (1, 0),
)
def value_norms(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    layer: int | Literal["mean"] = -1,
    heads: Literal["together", "apart"] = "together",
) -> Scores:
    """Length of the vector that attention writes for each token, at the position that the answer is read from.

    layer: a number (negative: from the last), or "mean" of all. heads: the vectors of all heads are added "together"
    before the length is taken, as published for a layer, or their lengths are added ("apart"). The residual and b_O are
    left out. Of an encoder-decoder it is the cross-attention.
    """
    if heads not in ("together", "apart"):
        raise InputError(f"heads is 'together' or 'apart', got '{heads}'")
    stack = explained_stack(model, example)
    numbers = range(stack.n_layers) if layer == "mean" else [check_layer(layer, stack.n_layers)]
    keep = Keep.of("weights", "value", "z", layers=list(numbers), stack=stack.name, kind=stack.kind)
    capture = model.capture(example, keep=keep)
    found = projections(model, stack.name, stack.kind)
    whole = _mean([_lengths(capture, stack, i, found[n], heads) for i, n in enumerate(numbers)])
    rows = read_rows(model, example, target, stack.kind)
    return Scores(whole[rows].mean(0), map=whole, used={"read_rows": rows.tolist()[:8], "layer": layer})


def _lengths(
    capture: Capture, stack: Stack, index: int, projection: Projection, heads: str
) -> Float[Tensor, "query key"]:
    """The lengths of one layer; `NumericsError` where the vectors are not what the model's own z becomes."""
    weights, value, z = (capture.tensor(name, stack.name, stack.kind)[index] for name in ("weights", "value", "z"))
    if heads == "apart":
        return projection.weighted_norms(weights, value).sum(0)
    vectors = written(weights, projection.transformed(value))
    if not alike(vectors.sum(1), projection.head_outputs(z).sum(0), float(vectors.norm(dim=-1).max())):
        raise NumericsError(f"{projection}: what its keys write does not add up to what its z becomes")
    return vectors.norm(dim=-1)


def written(
    weights: Float[Tensor, "head query key"], transformed: Float[Tensor, "head key d_model"]
) -> Float[Tensor, "query key d_model"]:
    """Σ_h A^h_ij f^h(x_j): what each key writes into each query, all heads together."""
    fit(weights.shape[1] + 1, weights.shape[2] * transformed.shape[-1], transformed)
    return torch.einsum("hij,hjd->ijd", weights.to(transformed), transformed)


def _mean(maps: Sequence[Tensor]) -> Tensor:
    return torch.stack([found.to(maps[0].device).float() for found in maps]).mean(0)


@methods.add(
    family="attention",
    source="Kobayashi et al. 2021, sec. 3",
    formula="‖g_r(Σ_h A^h_{rj} f^h(x_j) + [r=j] x_r)‖, g_r: the norm behind it, σ of the whole; last layer",
    cost="n F",
    signed=False,
    passes=lambda size, o: (size.n_tokens + 1, 0),
    lacks={"seq2seq": NO_ENCODER_DECODER},
)
def value_norms_residual(
    model: Model, example: Example, target: ResolvedTarget, *, layer: int | Literal["mean"] = -1
) -> Scores:
    """Length of what each token writes at the position read, its own residual and the norm behind it included.

    layer as in value_norms. In a pre-LN layer no norm stands between the sum and the stream, so none is applied. Biases
    behind the values are left out. Told: the share of each layer's read position that comes from other tokens.
    """
    n_layers = explained_stack(model, example, "self").n_layers
    numbers = range(n_layers) if layer == "mean" else [check_layer(layer, n_layers)]
    found = through_layers(model, example, lambda at: (at.attended.norm(dim=-1), mixing_ratio(at.attended), at.normed))
    whole = _mean([found[number][0] for number in numbers])
    rows = read_rows(model, example, target)
    ratios = [round(float(ratio[rows.to(ratio.device)].mean()), 4) for _, ratio, _ in found]
    used: dict[str, object] = {"read_rows": rows.tolist()[:8], "layer": layer, "mixing_ratio": ratios}
    used["norm"] = "included" if found[numbers[-1]][2] else "none between the sum and the stream"
    return Scores(whole[rows].mean(0), map=whole, used=used)
