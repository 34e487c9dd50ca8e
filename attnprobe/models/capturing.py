"""capture(): one forward pass with its attention on record, and the proof that nothing was disturbed."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnprobe.attention.proof import TOLERANCE, SiteProof
from attnprobe.attention.seam import Edit, Keep, Tape
from attnprobe.capture import Capture, Check, require
from attnprobe.errors import CaptureError, InputError, NumericsError, nearest
from attnprobe.example import Example
from attnprobe.models.evaluator import count
from attnprobe.models.model import Model
from attnprobe.models.rows import Row

CHECKS = ("once", "full", "warn", "off")


def capture(
    model: Model,
    example: Any,
    *,
    edits: Sequence[Edit] = (),
    keep: Keep | None = None,
    check: str = "once",
    differentiable: bool = False,
) -> Capture:
    """One forward pass of one example, recorded.

    example: an `Example`, or anything that this model reads. check: "once" compares the logits with and without
    capture once per model and configuration; "full" every time; "warn" like "once" but warns instead of raising;
    "off" measures nothing. differentiable: keep live tensors and let gradients reach the weights.
    Errors: `CaptureError` for attention that was not seen or a failed check, `EditError` for an edit that
    never fired.
    """
    if check not in CHECKS:
        raise InputError(f"check is one of {', '.join(CHECKS)}; got '{check}'; {nearest(check, CHECKS)}")
    if not isinstance(example, Example):
        example = model.example(example)
    tape = Tape(
        edits=[edits] if callable(edits) else list(edits),
        n_rows=1,
        keep=Keep() if keep is None else keep,
        differentiable=differentiable,
        check=check != "off",
    )
    count(forward=1, backward=int(differentiable))
    drawn = torch.get_rng_state()
    with torch.set_grad_enabled(differentiable):
        logits = model.forward([Row(example)], tape)
    _refuse_nothing(model, tape, logits)
    checks: tuple[Check, ...] = ()
    if check != "off":
        checks = (*_unseen(model), *summarize(tape.proofs), *_logits_check(model, example, tape, logits, check, drawn))
    _judge(checks, check)
    return Capture(
        example=example,
        model=model.name,
        sites=tuple(tape.sites),
        logits=logits if differentiable else logits.detach(),
        checks=checks,
        edits=tuple(str(edit) for edit in tape.edits),
        reduced=tuple(tape.reduced),
    )


def _refuse_nothing(model: Model, tape: Tape, logits: Tensor) -> None:
    """Raise where no attention was seen, or where the answer is no number."""
    if not tape.seen:
        raise CaptureError(f"no attention of {model.name} was seen")
    if bool(logits.isnan().any()):
        raise NumericsError(
            f"the logits of {model.name} hold NaN although its attention is finite: an overflow behind "
            f"{tape.seen[-1]}; try float32 or bfloat16"
        )


def _judge(checks: Sequence[Check], check: str) -> None:
    try:
        require(checks)
    except CaptureError as error:
        if check != "warn":
            raise
        warnings.warn(str(error), stacklevel=3)


def _unseen(model: Model) -> list[Check]:
    """Attention that ran outside of the seam, as a failed check."""
    where = ", ".join(model.unseen)
    checks = [Check("attention outside of the seam", where, float(len(model.unseen)), 0.0)] if model.unseen else []
    if model.blank:  # stated, no failure: what calls itself attention may be something else
        name = "modules that call themselves attention and showed no weights"
        checks.append(Check(name, ", ".join(model.blank), float(len(model.blank)), float("inf")))
    return checks


def summarize(proofs: Sequence[SiteProof]) -> list[Check]:
    """The measurements of the sites as checks, one a site and kind of check."""
    checks = []
    for proof in proofs:
        if proof.row_error is not None:
            checks.append(
                Check(
                    "weights rows sum to 1" if proof.row_sum == "one" else "weights rows sum to at most 1",
                    str(proof.place),
                    proof.row_error,
                    proof.tolerance,
                )
            )
        if proof.z_error is not None and proof.z_size is not None:
            checks.append(
                Check(
                    "|weights @ value - z|",
                    f"{proof.place}{'' if proof.along is None else ', along a random direction'}",
                    proof.z_error,
                    proof.tolerance * max(1.0, proof.z_size),
                )
            )
    return checks


def _logits_check(model: Model, example: Example, tape: Tape, logits: Tensor, check: str, drawn: Tensor) -> list[Check]:
    """|logits with capture - logits without|: once per model and configuration, or each time for "full"."""
    implementation = getattr(getattr(model.module, "config", None), "_attn_implementation", None)
    # A kernel may differ for long inputs only: each doubling of the length is measured anew.
    length = example.n_tokens.bit_length()
    key = (tape.differentiable, bool(tape.edits), tuple(sorted(example.inputs)), implementation, logits.dtype, length)
    proved = model.__dict__.setdefault("_proved", {})
    if key in proved and check != "full":
        return [replace(proved[key], reused=True)]
    with torch.random.fork_rng(devices=[]):  # a model that draws (samples of keys) draws the same again
        torch.set_rng_state(drawn)
        proved[key] = compare_logits(model, example, tape, logits)
    return [proved[key]]


def compare_logits(model: Model, example: Example, tape: Tape, logits: Tensor) -> Check:
    """The largest difference of the logits with a recording without edits and without any recording."""
    with torch.no_grad():
        count(forward=1)
        without = model.forward([Row(example)])
        if tape.edits:
            count(forward=1)
            again = Tape(keep=tape.keep, differentiable=tape.differentiable, check=False, n_rows=1)
            with torch.set_grad_enabled(tape.differentiable):
                logits = model.forward([Row(example)], again)
        difference = float((logits.detach() - without).abs().max())
        size = max(1.0, float(without.abs().max()))
    return Check(
        "|logits with capture - logits without|",
        f"{model.name}, all outputs",
        difference,
        TOLERANCE.get(logits.dtype, 1e-2) * size,
    )
