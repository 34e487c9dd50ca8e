"""Layer-wise relevance as a gradient with coefficients held fast: AttnLRP and CP-LRP."""

from typing import Literal

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.gradient import SOUNDS
from attnprobe.models.model import Model
from attnprobe.models.relevance.gradient_rules import GradientRules
from attnprobe.models.relevance.passing import Back, check_logits, hand_back
from attnprobe.target import ResolvedTarget

Gate = Literal["half", "detach"]


@methods.add(
    family="gradient",
    source="Achtibat et al. 2024, sec. 3",
    formula="Σ_d E_{jd} ∂̃y/∂E_{jd}; ∂̃: norms' σ fixed, activations f(x)/x, products ½ each, softmax as it is",
    cost="2 F, 1 B",
    signed=True,
    passes=lambda size, options: (2, 1),
    lacks=SOUNDS,
)
def attn_lrp(model: Model, example: Example, target: ResolvedTarget, *, gate: Gate = "half") -> Scores:
    """Embedding times the gradient under rules of relevance that go through attention's softmax; target units, signed.

    Half of a gradient goes into weights and half into values, and half of the former into queries and keys each. gate:
    "half" to each factor of a gated product, or all to the one that is not the activation ("detach"). Biases and the
    softmax absorb relevance: the residual says how much, used["absorbed"] where it stays.
    """
    return _scores("attn_lrp", hand_back_checked(model, example, target, frozen=False, gate=gate))


@methods.add(
    family="gradient",
    source="Ali et al. 2022, sec. 3 (CP-LRP), in the form of Achtibat et al. 2024",
    formula="Σ_d E_{jd} ∂̃y/∂E_{jd}; ∂̃: norms' σ and attention weights fixed, activations f(x)/x, products ½ each",
    cost="2 F, 1 B",
    signed=True,
    passes=lambda size, options: (2, 1),
    lacks=SOUNDS,
)
def cp_lrp(model: Model, example: Example, target: ResolvedTarget, *, gate: Gate = "half") -> Scores:
    """Embedding times the gradient with norms and attention weights as constants; target units, signed.

    gate: "half" to each factor of a gated product, or all to the one that is not the activation ("detach"). In networks
    without biases the scores add up to the target; else the residual says by how much they do not, and used["absorbed"]
    what keeps it.
    """
    return _scores("cp_lrp", hand_back_checked(model, example, target, frozen=True, gate=gate))


def hand_back_checked(model: Model, example: Example, target: ResolvedTarget, *, frozen: bool, gate: Gate) -> Back:
    """The way back under rules, with the logits and the sum of all shares checked."""
    if gate not in ("half", "detach"):
        raise InputError(f"gate is 'half' or 'detach', got '{gate}'")
    back = hand_back(model, example, target, GradientRules(frozen=frozen), gate)
    check_logits(model, example, back.logits, back.rounding)
    back.check_sum(model.name)
    return back


def _scores(name: str, back: Back) -> Scores:
    kinds = sorted({kind for kind, _ in back.absorbed})
    kept = {kind: round(sum(v for (k, _), v in back.absorbed.items() if k == kind), 6) for kind in kinds}
    most = sorted(back.absorbed.items(), key=lambda item: -abs(item[1]))[:3]
    where = {path or "the model itself": round(amount, 6) for (_, path), amount in most}
    values = back.scores
    used = {"absorbed": kept, "most_in": where, "rules": back.applied}
    return Scores(values, residual=float(values.sum()) - back.answer, used=used)
