"""Vectors of every token from the first layer to the answer (DecompX, Modarressi et al. 2023)."""

import warnings
from typing import Literal

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.value_norms import NO_ENCODER_DECODER
from attnprobe.models.model import Model
from attnprobe.models.vectors.whole import decompose
from attnprobe.target import ResolvedTarget

# Constants beyond this share of the target that no token took are told.
TOLERANCE = 1e-3


@methods.add(
    family="attention",
    source="Modarressi et al. 2023, sec. 3",
    formula="y_{⇐j}: x_i = Σ_j x_{i⇐j} through all layers and the head; Σ_j y_{⇐j} = y",
    cost="n F",
    signed=True,
    passes=lambda size, o: (size.n_tokens + 2, 0),
    lacks={"seq2seq": NO_ENCODER_DECODER},
)
def decompx(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    head_bias: Literal["jointly", "by class"] = "jointly",
) -> Scores:
    """What of the target comes from each token that goes into the first layer; target units; adds up to the target.

    Attention weights and the σ of norms are held fast, an activation is the slope from 0 to its value, a product of two
    states (a gate) is shared half and half, what is not 0 at 0 (a sigmoid) is a factor held fast. Biases go to tokens
    by |bias · vector| where they join; those of values and of the attention's output together, behind the residual and
    before the next norm, as the authors have it. head_bias: that of the classifier for all classes "jointly" (theirs),
    or "by class". The target is a logit, or a difference of logits.
    """
    if head_bias not in ("jointly", "by class"):
        raise InputError(f"head_bias is 'jointly' or 'by class', got '{head_bias}'")
    found = decompose(model, example, target, head_bias=head_bias)
    gap = float(found.values.double().sum()) - found.total
    if abs(found.constant) > TOLERANCE * max(abs(found.total), TOLERANCE):
        warnings.warn(
            f"decompx: the scores add up to {found.total + gap:.4g}, the target is {found.total:.4g}: constants of "
            f"{found.constant:.4g} met no vector that they could go with",
            stacklevel=2,
        )
    used: dict[str, object] = {"total": found.total, "held_back_biases": list(found.waiting)[:8]}
    used["head_bias"] = head_bias if found.has_bias else "none"
    return Scores(found.values, residual=gap, used=used)
