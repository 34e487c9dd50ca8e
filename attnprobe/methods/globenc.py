"""Lengths of vectors through all layers (GlobEnc, Modarressi et al. 2022)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import NumericsError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.value_norms import NO_ENCODER_DECODER
from attnprobe.models.model import Model
from attnprobe.models.reading import read_rows
from attnprobe.models.vectors.layers import through_layers
from attnprobe.target import ResolvedTarget


@methods.add(
    family="attention",
    source="Modarressi et al. 2022, sec. 3",
    formula="∏_l N^l, row r; N^l_{ij} = ‖g²_i(g¹_i(Σ_h A^h_{ij} f^h(x_j) + [i=j] x_i))‖",
    cost="n F",
    signed=False,
    passes=lambda size, o: (size.n_tokens + 1, 0),
    lacks={"seq2seq": NO_ENCODER_DECODER},
)
def globenc(model: Model, example: Example, target: ResolvedTarget) -> Scores:
    """Length of what each token writes into a layer's output, multiplied through the layers; a share of 1 a row.

    Both residuals and both norms (in pre-LN layers: the residuals) are followed; what the feed-forward part adds is
    left out, its effect on σ is not. No identity is added and rows are made to sum to 1 only at the end.
    """
    whole = multiplied(through_layers(model, example, lambda layer: layer.passed_on.norm(dim=-1)))
    rows = read_rows(model, example, target)
    return Scores(whole[rows].mean(0), map=whole, used={"read_rows": rows.tolist()[:8]})


def multiplied(maps: Sequence[Float[Tensor, "query key"]]) -> Float[Tensor, "query key"]:
    """The product of the maps, last leftmost, as shares of 1 a row; a row of nothing but 0 stays so.

    Each map is divided by its largest entry, which changes no share but keeps a product of many from growing without
    end.

    >>> multiplied([torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([[400.0, 0.0], [300.0, 100.0]])]).tolist()
    [[1.0, 0.0], [0.800000011920929, 0.20000000298023224]]
    """
    whole = torch.eye(len(maps[0]), dtype=torch.float64)
    for found in maps:
        largest = found.max()
        if not bool(largest > 0):
            raise NumericsError("the vectors of a layer all have length 0, so there is no map of it")
        whole = (found / largest).double().cpu() @ whole
        whole = whole / whole.max()
    total = whole.sum(-1, keepdim=True)
    return (whole / total.where(total > 0, 1.0)).float()
