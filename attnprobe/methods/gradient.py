"""The gradient at the word embeddings, by captum: its size, and its product with the embeddings."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from captum.attr import InputXGradient, Saliency
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from tqdm.auto import tqdm

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.models.evaluator import batch_size, differentiable, even_batches, halving
from attnprobe.models.layer_inputs import LayerInput
from attnprobe.models.model import Model
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

Reduction = Literal["l2", "l1", "sum"]
SOUNDS = {"audio": "a sound has no word embeddings that a gradient could be taken at; use an attention method"}


def precise(vectors: Tensor) -> Tensor:
    """The same numbers in float32 at least: what is added up over steps and samples must not be rounded to 8 bits."""
    return vectors.to(torch.promote_types(vectors.dtype, torch.float32))


def answer(
    model: Model, example: Example, target: ResolvedTarget, entry: LayerInput | None = None, bar: tqdm | None = None
) -> Callable[[Tensor], Tensor]:
    """captum's forward function: the target of embeddings [row token d_model], in the model's own precision.

    entry: of states that go into a layer instead. The gradient is taken together with the answer, in batches that fit
    into memory, so that captum may ask for as many rows at once as it likes. bar: told of each row.
    """
    ask = partial(answer_in_one_pass, model, example, target, entry, model.embed(example).dtype)
    size = batch_size(example.n_tokens)

    def forward(rows: Tensor) -> Tensor:
        values: Tensor = _Answer.apply(rows, partial(_in_batches, ask, size, bar))  # type: ignore[no-untyped-call]
        return values

    return forward


def answer_in_one_pass(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    entry: LayerInput | None,
    dtype: torch.dtype,
    rows: Tensor,
) -> Tensor:
    """The target of embeddings (or of states that go into a layer), in one pass that gradients flow through.

    dtype: the model's own, of embeddings.
    """
    if entry is None:
        logits, _ = differentiable(model, [Row(example, embeddings=row.to(dtype)) for row in rows])
        return target(logits)
    with entry.through(lambda states: rows.to(states.dtype), len(rows)):
        logits, _ = differentiable(model, [Row(example)] * len(rows))
    return target(logits)


def _in_batches(
    ask: Callable[[Tensor], Tensor], size: int, bar: tqdm | None, rows: Tensor
) -> tuple[Float[Tensor, " row"], Float[Tensor, "row token d_model"]]:
    """The answer to each row and its gradient there."""
    size, values, gradients, done = even_batches(len(rows), size), [], [], 0
    while done < len(rows):
        part = rows[done : done + size]
        value, gradient = halving(partial(_with_gradient, ask, part), len(part), "rows")
        values.append(value)
        gradients.append(gradient)
        done += len(value)
        size = min(size, len(value)) if len(value) < len(part) else size
        if bar is not None:
            bar.update(len(value))
    return torch.cat(values), torch.cat(gradients)


def _with_gradient(ask: Callable[[Tensor], Tensor], part: Tensor, n: int) -> tuple[Tensor, Tensor]:
    leaf = part[:n].detach().requires_grad_()
    with torch.enable_grad():
        value = ask(leaf)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


class _Answer(torch.autograd.Function):
    """An answer whose gradient is known already."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, run: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        values, gradients = run(rows)
        ctx.save_for_backward(gradients)
        return values

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, above: Tensor) -> tuple[Tensor, None]:
        (gradients,) = ctx.saved_tensors
        return above.view(-1, 1, 1).to(gradients.dtype) * gradients, None


def reduced(gradient: Float[Tensor, "token d_model"], reduction: Reduction) -> Float[Tensor, " token"]:
    """One number a token: the length of its gradient ("l2"), the sum of sizes ("l1"), or the signed "sum"."""
    if reduction == "l2":
        return gradient.norm(dim=-1)
    if reduction not in ("l1", "sum"):
        raise InputError(f"reduction is 'l2', 'l1' or 'sum', got '{reduction}'")
    return (gradient.abs() if reduction == "l1" else gradient).sum(-1)


@methods.add(
    family="gradient",
    source="Simonyan et al. 2014; captum Saliency",
    formula="‖∂y/∂E_j‖₂",
    cost="1 F, 1 B",
    signed=False,
    passes=lambda size, options: (1, 1),
    lacks=SOUNDS,
)
def saliency(model: Model, example: Example, target: ResolvedTarget, *, reduction: Reduction = "l2") -> Scores:
    """How steep the target is at each word embedding, in target units a unit of embedding; no direction.

    reduction: "l2" or "l1" norm of the gradient, or the "sum" of its entries, which has a sign.
    """
    embeddings = precise(model.embed(example))[None].clone().requires_grad_()
    gradient = Saliency(answer(model, example, target)).attribute(embeddings, abs=False)[0]
    return Scores(reduced(gradient, reduction).detach())


@methods.add(
    family="gradient",
    source="Shrikumar et al. 2016; captum InputXGradient",
    formula="Σ_d E_{jd} ∂y/∂E_{jd}",
    cost="1 F, 1 B",
    signed=True,
    passes=lambda size, options: (1, 1),
    lacks=SOUNDS,
)
def input_x_gradient(model: Model, example: Example, target: ResolvedTarget) -> Scores:
    """Word embedding times the target's gradient, summed over its dimensions; target units, signed."""
    embeddings = precise(model.embed(example))[None].clone().requires_grad_()
    product = InputXGradient(answer(model, example, target)).attribute(embeddings)
    return Scores(product[0].sum(-1).detach())
