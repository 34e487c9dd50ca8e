"""How much nearer each token's vector brings the result (ALTI, Ferrando et al. 2022)."""

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.value_norms import NO_ENCODER_DECODER
from attnprobe.models.model import Model
from attnprobe.models.reading import read_rows
from attnprobe.models.vectors.layers import LayerVectors, through_layers
from attnprobe.target import ResolvedTarget


@methods.add(
    family="attention",
    source="Ferrando et al. 2022, sec. 3",
    formula="∏_l C^l, row r; C^l_{ij} ∝ max(0, ‖z_i‖₁ − ‖z_i − T_ij‖₁), T_ij = g_i(Σ_h A^h_{ij} f^h(x_j) + [i=j] x_i)",
    cost="n F",
    signed=False,
    passes=lambda size, o: (size.n_tokens + 1, 0),
    lacks={"seq2seq": NO_ENCODER_DECODER},
)
def alti(model: Model, example: Example, target: ResolvedTarget) -> Scores:
    """How much each token's vector brings the result of the attention nearer, rolled out; a share of 1 a row.

    z: the result of attention, residual and the norm that follows (in pre-LN layers: their sum), biases included.
    Distances are L1, rows of each layer sum to 1, no identity is added: the residual is inside. A row in which no token
    brings it nearer keeps to itself.
    """
    maps = through_layers(model, example, contributions)
    whole = torch.eye(example.n_tokens, dtype=torch.float64)
    for layer in maps:
        whole = layer @ whole
    rows = read_rows(model, example, target)
    return Scores(whole[rows].mean(0).float(), map=whole.float(), used={"read_rows": rows.tolist()[:8]})


def contributions(layer: LayerVectors) -> Float[Tensor, "query source"]:
    """The map of one layer."""
    return nearness(layer.attended, layer.result).double().cpu()


def nearness(
    vectors: Float[Tensor, "query source d_model"], result: Float[Tensor, "query d_model"]
) -> Float[Tensor, "query source"]:
    """max(0, ‖z‖₁ − ‖z − T‖₁) of each vector, as shares of 1 a row.

    >>> nearness(torch.tensor([[[1.0, 3.0], [3.0, 9.0]]]), torch.tensor([[4.0, 12.0]])).tolist()
    [[0.25, 0.75]]
    """
    distance = (result[:, None] - vectors).abs().sum(-1)
    nearer = (result.abs().sum(-1, keepdim=True) - distance).clamp(min=0)
    total = nearer.sum(-1, keepdim=True)
    own = torch.eye(*nearer.shape, dtype=nearer.dtype, device=nearer.device)
    return (nearer / total.where(total > 0, 1.0)).where(total > 0, own)
