"""The relevance of the embeddings for one answer: one pass there and back under rules."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import NOTHING, Tape
from attnprobe.errors import InputError, NumericsError
from attnprobe.example import Example
from attnprobe.models.anatomy import ROUNDING, alike
from attnprobe.models.evaluator import count, logits, refuse_unseen
from attnprobe.models.model import Model
from attnprobe.models.relevance.calls import is_state
from attnprobe.models.relevance.following import Follower, Gate
from attnprobe.models.relevance.rules import Rules
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget


@dataclass(frozen=True, eq=False)
class Back:
    """What came back to the embeddings [token d_model], and how the answer divides.

    answer: the number explained. absorbed: what else has a share in it, by kind and module; for rules that hand back
    gradients, embeddings times `handed` and all that was absorbed add up to the answer. applied: how often each kind of
    function was met.
    """

    embeddings: Float[Tensor, "token d_model"]
    handed: Float[Tensor, "token d_model"]
    logits: Float[Tensor, " 1 *rest"]
    answer: float
    absorbed: dict[tuple[str, str], float]
    applied: dict[str, int]
    rounding: float

    @property
    def scores(self) -> Float[Tensor, " token"]:
        """Embedding times what came back, summed over its dimensions."""
        return (self.embeddings.double() * self.handed.double()).sum(-1).cpu()

    def check_sum(self, name: str) -> None:
        """`NumericsError` where scores and what was absorbed do not add up to the answer: a rule was passed by."""
        scores, absorbed = self.scores, list(self.absorbed.values())
        found = float(scores.sum()) + sum(absorbed)
        size = abs(self.answer) + float(scores.abs().sum()) + sum(map(abs, absorbed))
        if not abs(found - self.answer) <= 10 * self.rounding * size:
            raise NumericsError(
                f"{name}: relevance ({float(scores.sum()):.6g}) and what constants absorbed ({sum(absorbed):.6g}) add "
                f"up to {found:.6g}, the target is {self.answer:.6g}: some function that is not linear was not seen; "
                "use a method by gradients or removal"
            )


def hand_back(model: Model, example: Example, target: ResolvedTarget, rules: Rules, gate: Gate = "half") -> Back:
    """One pass of the example under the rules, and what comes back to its embeddings from the target.

    Errors: `InputError` where a function that is not linear has no rule, with the module that computes it, or no
    embedding has a way to the answer.
    """
    leaf = model.embed(example).detach().clone().requires_grad_()
    with torch.enable_grad():
        start = leaf.clone()
    follower = Follower(model.module, rules, gate)
    count(forward=1, backward=1)
    with torch.enable_grad(), follower.following() as edit:
        tape = Tape(edits=(edit,), n_rows=1, keep=NOTHING, check=False)
        answers = model.forward([Row(example, embeddings=start)], tape)
    refuse_unseen(model)
    if not is_state(answers):
        raise InputError(_no_way(model, follower.why_held(answers)))
    with torch.enable_grad():
        value = target(answers)
        wanted = [answers, leaf, *rules.starts]
        steep, handed, *_ = torch.autograd.grad(value.sum(), wanted, allow_unused=True)
    if handed is None:
        raise InputError(_no_way(model, follower.why_held(answers)))
    answer = float(value.detach().sum().double())
    _count_scale(rules, answer, float((answers.detach().double() * steep.double()).sum()))
    rounding = max(follower.rounding, ROUNDING.get(leaf.dtype, 1e-4))
    return Back(leaf.detach(), handed, answers.detach(), answer, dict(rules.absorbed), dict(follower.applied), rounding)


def _no_way(model: Model, why: str) -> str:
    return (
        f"{model.name}: no rule of relevance leads from the answer to the embeddings{why and ': '}{why}; "
        "use a method by gradients or removal"
    )


def _count_scale(rules: Rules, answer: float, linear: float) -> None:
    """What a target that is not linear in the logits (a probability) keeps."""
    if abs(answer - linear) > 1e-12 * abs(answer):
        rules.absorbed["scale of the target", ""] += answer - linear


def check_logits(model: Model, example: Example, found: Tensor, rounding: float) -> None:
    """`NumericsError` where the logits under rules are not those of a plain pass; one pass."""
    with torch.no_grad():
        plain = logits(model, [Row(example)])
    if not alike(plain, found, rounding=rounding):
        raise NumericsError(
            f"{model.name}: under rules of relevance the logits are off by {float((plain - found).abs().max()):.3g}; "
            "rules may change what goes back, and nothing else"
        )
