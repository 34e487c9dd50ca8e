"""Which stack a method explains, and from which position the model's answer is read: watched, not looked up."""

import warnings
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.models.evaluator import differentiable
from attnprobe.models.model import Model, Stack
from attnprobe.models.rows import Row
from attnprobe.site import BESIDE_TEXT, Kind
from attnprobe.target import ResolvedTarget


def explained_stack(model: Model, example: Example, kind: str = "any") -> Stack:
    """The stack whose keys are the explained tokens: of an encoder-decoder the cross-attention, else self-attention.

    kind: "self" or "cross" to insist on one.
    """
    stacks = [s for s in model.stacks if kind in ("any", s.kind)]
    if "input_ids" in example.inputs:
        stacks = [s for s in stacks if s.name not in BESIDE_TEXT] or stacks
    if example.axis != "target" and kind == "any":
        stacks = [s for s in stacks if s.kind == "cross"] or stacks
    if not stacks:
        raise InputError(
            f"{model.name} has no {kind}-attention; it has {', '.join(f'{s.name} {s.kind}' for s in model.stacks)}"
        )
    return stacks[0]


def kind_of(model: Model, example: Example) -> str:
    """What a model is on this input: "vision", "audio", "seq2seq" (the source is explained), "causal", "classifier"."""
    if "input_ids" not in example.inputs:
        return "audio" if {"input_features", "input_values"} & set(example.inputs) else "vision"
    if explained_stack(model, example).kind == "cross":
        return "seq2seq"
    return "causal" if model.outputs.causal and model.outputs.names is None else "classifier"


def read_rows(model: Model, example: Example, target: ResolvedTarget, kind: Kind = "self") -> Int[Tensor, " row"]:
    """Positions whose last-layer attention output the target depends on: one (first or last token), or all (pooling).

    Found by the gradient of the target: a position that is not read has a gradient of exactly 0. kind: "cross" for
    the positions of a decoder that look at the source.
    """
    known: WeakKeyDictionary[Example, dict[object, Tensor]] = model.__dict__.setdefault(
        "_read_rows", WeakKeyDictionary()
    )
    rows = known.setdefault(example, {})
    key = (kind, target.position, target.function)
    if key not in rows:
        rows[key] = _watch(model, example, target, kind)
    return rows[key]


def _watch(model: Model, example: Example, target: ResolvedTarget, kind: Kind) -> Tensor:
    stack = explained_stack(model, example, kind)
    keep = Keep.of("z", layers=[stack.n_layers - 1], stack=stack.name, kind=kind)
    # A saturated answer has no gradient anywhere; noise on the embeddings moves it off the plateau.
    for noise in (0.0, 0.1, 0.5, 1.0, 2.0) if model.fillers else (0.0,):
        row = Row(example) if noise == 0 else Row(example, embeddings=_noisy(model, example, noise))
        try:
            logits, tape = differentiable(model, [row], keep, required=False)
        except CaptureError:  # layers that run without gradients
            break
        if tape is None or not tape.sites:
            break
        parts = [site.need("z") for site in tape.sites]  # rows of one map may lie in several (Longformer's global rows)
        with torch.enable_grad():
            answer = target(logits).sum()
            if not answer.requires_grad:
                break
            gradients = torch.autograd.grad(answer, parts, allow_unused=True)
        read = [
            g[0].abs().sum((0, 2)).nonzero().flatten().cpu() for g in gradients if g is not None and g.shape[0] == 1
        ]
        rows = torch.cat(read).unique() if read else torch.tensor([])
        if len(rows):
            return rows
    position = target.position if target.position is not None else 0
    warnings.warn(
        f"{model.name}: no gradient tells which position is read; position {position} is assumed", stacklevel=3
    )
    return torch.tensor([position])


def _noisy(model: Model, example: Example, noise: float) -> Float[Tensor, "token d_model"]:
    embeddings = model.embed(example)
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(embeddings.shape, generator=generator, dtype=embeddings.dtype).to(embeddings.device)
    return embeddings + noise * embeddings.std() * draw
