"""Of an encoder-decoder: what each token of its answer owes to each token of the text, to be held beside attention.

The number of a step is the log-probability of the token that the answer has there, given the text and the answer's
tokens before it. All steps of a text are asked for at once, which takes few passes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.capture import finite
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods.gradient import precise
from attnprobe.metrics.ranks import kendall_tau
from attnprobe.models.evaluator import (
    Meter,
    batch_rows,
    batch_size,
    differentiable,
    even_batches,
    halving,
    of_each,
)
from attnprobe.models.model import Model
from attnprobe.models.reading import explained_stack
from attnprobe.models.rows import Row

# Answers with more steps, and texts with more tokens to take away, are left out: they would no longer cost little.
MOST_STEPS, MOST_TAKEN = 64, 256
# A step whose log-probability no single token moves by this much does not depend on the text: its order is noise.
LEAST = 0.01
# By name of the method, in the order in which a reader should trust them as a yardstick.
LEAVE_ONE_OUT, INPUT_X_GRADIENT = MATRICES = ("leave_one_out", "input_x_gradient")
PLAIN = ("ids", "operator", "forward_passes", "backward_passes", "seconds")


@dataclass(frozen=True, eq=False)
class AnswerSteps:
    """Attributions [step token] of the log-probability of each token of an answer, CPU float32.

    ids: of the answer's tokens. log_probabilities: of each. input_x_gradient: embedding times gradient, summed over
    dimensions, signed; its rows add up to that method's scores of the whole answer. leave_one_out: by how much a step
    falls when a token is taken away by `operator`, 0 for special and hidden tokens; None where there is no operator
    that puts one thing in a token's place, or the text is longer than `MOST_TAKEN`.
    """

    ids: tuple[int, ...]
    log_probabilities: Float[Tensor, " step"] = field(repr=False)
    input_x_gradient: Float[Tensor, "step token"] = field(repr=False)
    leave_one_out: Float[Tensor, "step token"] | None = field(default=None, repr=False)
    operator: str = ""
    forward_passes: int = 0
    backward_passes: int = 0
    seconds: float = 0.0

    @property
    def maps(self) -> dict[str, Float[Tensor, "step token"]]:
        """The attributions by method, removal first: it is what the model itself does without a token."""
        found = {name: getattr(self, name) for name in MATRICES}
        return {name: matrix for name, matrix in found.items() if matrix is not None}

    @property
    def dependent(self) -> Bool[Tensor, " step"]:
        """Which steps fall or rise by `LEAST` when some token is taken away; all of them where none was."""
        if self.leave_one_out is None:
            return torch.ones(len(self.ids), dtype=torch.bool)
        return self.leave_one_out.abs().amax(-1) >= LEAST

    def facts(self) -> dict[str, Any]:
        """Everything but the tensors, as JSON holds it."""
        return {name: getattr(self, name) for name in PLAIN}

    def tensors(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {"log_probabilities": self.log_probabilities, **self.maps}

    @classmethod
    def of(cls, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> "AnswerSteps":
        """What `facts` and `tensors` make again."""
        known: dict[str, Any] = {**facts, **tensors}
        return cls(**{**known, "ids": tuple(facts["ids"])})


def answer_ids(model: Model, example: Example) -> tuple[int, ...]:
    """The answer whose steps can be explained; empty where there is none, or it is longer than `MOST_STEPS`.

    There is one where what is explained has a vector for each token (no sound has), and the model writes an answer to
    it, looking back at it.
    """
    written, ids = example.inputs.get("decoder_input_ids"), tuple(example.notes.get("answer_ids", ()))
    if not isinstance(written, Tensor) or written.shape[-1] != len(ids) or len(ids) > MOST_STEPS:
        return ()
    if example.axis == "target" or not ids or explained_stack(model, example).kind != "cross":
        return ()
    try:
        model.embed(example)
    except InputError:
        return ()
    return ids


def answer_steps(model: Model, example: Example, operator: str | None = None) -> AnswerSteps | None:
    """The attributions of each step; None where the example has no answer to explain (`answer_ids`).

    operator: how a token is taken away, one that draws nothing (None: only the gradient). Costs a forward and a
    backward pass a step, in batches, and with an operator a forward pass a token and one more. Errors: `InputError`
    where no gradient reaches the answer or the operator does not work here; `NumericsError` for a NaN.
    """
    ids = torch.tensor(answer_ids(model, example), dtype=torch.long)
    if not len(ids):
        return None
    units = units_of(example)
    taken = operator if int(units.sum()) <= MOST_TAKEN else None
    with Meter() as meter, batch_rows(batch_size(example.n_tokens + len(ids))):
        values, gradient = by_gradient(model, example, ids)
        removed = None if taken is None else by_removal(model, example, ids, units, taken)
    return AnswerSteps(
        ids=tuple(ids.tolist()),
        log_probabilities=values.float().cpu(),
        input_x_gradient=finite("input x gradient of the answer's steps", gradient.float().cpu()),
        leave_one_out=None if removed is None else finite("removal at the answer's steps", removed.float().cpu()),
        operator=taken or "",
        forward_passes=meter.forward,
        backward_passes=meter.backward,
        seconds=meter.seconds,
    )


def units_of(example: Example) -> Bool[Tensor, " token"]:
    """The tokens that attributions are compared on: not special, not hidden."""
    return ~(torch.tensor(example.is_special) | torch.tensor(example.hidden))


def log_probability(logits: Float[Tensor, "*row output"], ids: Int[Tensor, "*row"]) -> Float[Tensor, "*row"]:
    """Of one output each. In float64: in less, that of a step that a model is sure of is 0, and so is its gradient."""
    return logits.double().log_softmax(-1).gather(-1, ids.to(logits.device)[..., None])[..., 0]


def by_gradient(
    model: Model, example: Example, ids: Int[Tensor, " step"]
) -> tuple[Float[Tensor, " step"], Float[Tensor, "step token"]]:
    """The log-probability of each step, and its gradient at the embeddings times the embeddings."""
    embeddings, values, products, done = model.embed(example), [], [], 0
    size = even_batches(len(ids), batch_size(example.n_tokens + len(ids)))
    while done < len(ids):
        steps = torch.arange(done, min(done + size, len(ids)))
        value, gradient = halving(partial(_rows, model, example, ids, embeddings, steps), len(steps), "rows")
        values.append(value)
        products.append((gradient * precise(embeddings)).sum(-1))
        done, size = done + len(value), min(size, len(value))
    return torch.cat(values), torch.cat(products)


def _rows(
    model: Model, example: Example, ids: Tensor, embeddings: Tensor, steps: Tensor, n: int
) -> tuple[Tensor, Tensor]:
    """The first n steps, a row each in one pass: a row's number depends on its own embeddings alone."""
    steps = steps[:n]
    leaf = precise(embeddings)[None].repeat(n, 1, 1).detach().requires_grad_()
    with torch.enable_grad():
        logits, _ = differentiable(model, [Row(example, embeddings=row.to(embeddings.dtype)) for row in leaf])
        own = logits[torch.arange(n, device=logits.device), steps.to(logits.device)]
        value = log_probability(own, ids[steps])
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


def by_removal(
    model: Model, example: Example, ids: Int[Tensor, " step"], units: Bool[Tensor, " token"], operator: str
) -> Float[Tensor, "step token"]:
    """By how much each step falls when a token is taken away: one pass a token tells it of all steps."""
    places = units.nonzero().flatten().tolist()
    staying = [torch.arange(example.n_tokens) != place for place in places]
    rows = [Row(example), *(Row(example, kept=kept, operator=operator) for kept in staying)]

    def read(logits: Tensor, _: Sequence[Row]) -> Sequence[Tensor]:
        return list(log_probability(logits[:, : len(ids)], ids.expand(len(logits), -1)).cpu())

    whole, *without = of_each(model, rows, read, progress="steps of the answer")
    found = torch.zeros(len(ids), example.n_tokens, dtype=torch.float64)
    for place, row in zip(places, without, strict=True):
        found[:, place] = whole - row
    return found


@dataclass(frozen=True)
class StepAgreement:
    """How far a map of attention and an attribution agree, an entry a step; NaN where the step is left out.

    kendall_tau: of the tokens' orders, -1 to 1. same_top: 1 where both are largest at the same token, else 0.
    """

    kendall_tau: tuple[float, ...]
    same_top: tuple[float, ...]


def step_agreement(
    weights: Float[Tensor, "step token"], answer: AnswerSteps, method: str, units: Bool[Tensor, " token"]
) -> StepAgreement:
    """A map [step token] beside what a method says of each step, by size: attention has no direction.

    units: the tokens that are compared. Left out are steps that do not depend on the text (`AnswerSteps.dependent`),
    and those at which one of the two orders nothing.
    """
    taus, tops = [], []
    pairs = zip(weights[:, units].double(), answer.maps[method][:, units].double().abs(), strict=True)
    for (row, found), counts in zip(pairs, answer.dependent.tolist(), strict=True):
        tau = kendall_tau(row, found) if counts else math.nan
        taus.append(tau)
        tops.append(math.nan if math.isnan(tau) else float(row.argmax() == found.argmax()))
    return StepAgreement(tuple(taus), tuple(tops))
