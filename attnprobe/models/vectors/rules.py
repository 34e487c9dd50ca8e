"""What becomes of parts in a function, told from the function by trying it on a few tensors."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.models.anatomy import (
    FAILURES,
    LARGE,
    Norm,
    alike,
    coarsest,
    goes_through_origin,
    is_entrywise,
    noise_like,
    norm_of,
    slope,
)
from attnprobe.models.vectors.calls import Call, name_of
from attnprobe.models.vectors.parts import Carried, fit

# What is not linear in the states: their slope (activations) and halves (products), or set aside as constants.
Bent = Literal["followed", "aside"]


@dataclass(frozen=True, eq=False)
class Passed:
    """What a function does with parts: `make` gives them for each output (None: lost, with the reason).

    sources: the leaves that parts come from. constant: whether constants join (a bias). kind: affine, product,
    activation, norm; or what is lost: constant (the same whatever the states are), factor, other. origin: where it was
    lost before. rounding: how exact the rule is, where that is known.
    """

    kind: str
    make: Callable[[], list[Tensor]] | None
    sources: tuple[int, ...] = ()
    constant: bool = False
    lost: str | None = None
    origin: Carried | None = None
    rounding: float = 0.0


def passed(call: Call, outputs: Sequence[Tensor], known: Callable[[Tensor], bool], bent: Bent) -> Passed:
    """The rule for one call; outputs: what it gave. known: whether a constant is one (made from no states)."""
    live = call.live
    if not live:
        entries = list(call.carried.values())
        first = next((entry for entry in entries if not entry.fixed), entries[0])
        return Passed("constant" if first.fixed else "factor", None, lost=first.lost, origin=first)
    together = _affine(call, live, outputs, known)
    if together is not None:
        return together
    if len(live) > 1:
        return _apart(call, outputs, known, bent)
    return _one(call, live[0], outputs, bent)


def _affine(
    call: Call, sources: Sequence[int], outputs: Sequence[Tensor], known: Callable[[Tensor], bool]
) -> Passed | None:
    """The rule of a function that is affine in these leaves, all others held fast; None where it is not."""
    if not call.is_affine_in(sources):
        return None
    whole = {index: call.leaves[index] for index in sources}
    part = {index: noise_like(leaf, seed=index, least=LARGE) for index, leaf in whole.items()}
    zero = {index: torch.zeros_like(leaf) for index, leaf in whole.items()}
    try:
        first, at_zero = call.again(part), call.again(zero)
        rest = call.again({index: leaf - part[index] for index, leaf in whole.items()})
    except FAILURES:
        return None
    rounding = coarsest(call.leaves[index] for index in call.carried)
    for a, b, c, out in zip(first, rest, at_zero, outputs, strict=True):
        if not alike(a + b - c, out, float(a.abs().max()) if a.numel() else 0.0, rounding):
            return None
    constant = any(bool(c.any()) for c in at_zero)
    if constant and all(alike(a, c) and alike(b, c) for a, b, c in zip(first, rest, at_zero, strict=True)):
        return Passed("constant", None, lost=f"{name_of(call)} gives the same whatever the states are")
    if constant:
        reason = _no_constant(call, sources, zero, at_zero, known)
        if reason is not None:
            return Passed("affine", None, lost=reason)
    sizes = [out.numel() for out in outputs]
    return Passed(
        "affine", lambda: _mapped(call, sources, sizes, at_zero if constant else None), tuple(sources), constant
    )


def _no_constant(
    call: Call, sources: Sequence[int], zero: dict[int, Tensor], at_zero: list[Tensor], known: Callable[[Tensor], bool]
) -> str | None:
    """Why what a function adds to the states is no constant; None where it is one."""
    held = [index for index, entry in call.carried.items() if index not in sources and not entry.fixed]
    if held and not _stays(call, held, zero, at_zero):
        lost = next((entry for index in held if (entry := call.carried[index]).lost), None)
        why = "" if lost is None else f" ({lost.path or 'the model'}: {lost.lost})"
        return f"adds to the states something that depends on them in no linear way{why}"
    if not all(known(constant) for constant in call.constants):
        return "adds to the states a tensor of which it is not known what it was made from"
    return None


def _stays(call: Call, held: Sequence[int], zero: dict[int, Tensor], at_zero: list[Tensor]) -> bool:
    """Whether what a function gives at zero is the same for other numbers in what is held fast."""
    if not all(call.leaves[index].is_floating_point() for index in held):
        return False  # complex numbers
    other = {index: noise_like(call.leaves[index], seed=index + 7) for index in held}
    try:
        return all(alike(a, b) for a, b in zip(call.again({**zero, **other}), at_zero, strict=True))
    except FAILURES:
        return False


def _mapped(call: Call, sources: Sequence[int], sizes: Sequence[int], at_zero: list[Tensor] | None) -> list[Tensor]:
    """The parts of each output of a function that is affine in the sources."""
    found = over_parts(call, sources, sizes)
    if at_zero is None:
        return found
    moved = [parts - constant for parts, constant in zip(found, at_zero, strict=True)]
    for parts, constant in zip(moved, at_zero, strict=True):
        parts[-1] += constant
    return moved


def over_parts(call: Call, sources: Sequence[int], sizes: Sequence[int]) -> list[Tensor]:
    """The function on every part of the sources together: [part *shape] of each output, of these sizes."""
    _refuse_changed(call, sources)
    given = [call.carried[index].parts() for index in sources]
    for size in sizes:
        fit(given[0].shape[0], size, given[0])

    def run(*leaves: Tensor) -> tuple[Tensor, ...]:
        return tuple(call.again(dict(zip(sources, leaves, strict=True))))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some functions run one part after the other, which is only slower
            return list(torch.func.vmap(run, randomness="same")(*given))
    except (RuntimeError, ValueError):  # a function that torch cannot run in this way at all
        rows = [run(*leaves) for leaves in zip(*given, strict=True)]
        return [torch.stack(parts) for parts in zip(*rows, strict=True)]


def _refuse_changed(call: Call, sources: Sequence[int]) -> None:
    if call.changed():
        path, name = call.carried[sources[0]].path, name_of(call)
        raise InputError(f"{path}: changes a tensor in place that {name} has used, so its parts cannot be made")


def _apart(call: Call, outputs: Sequence[Tensor], known: Callable[[Tensor], bool], bent: Bent) -> Passed:
    """A function of several states that is not affine in all of them together: in one, or a product of two."""
    each = {index: _affine(call, [index], outputs, lambda _: True) for index in call.live}
    linear = [index for index, rule in each.items() if rule is not None and not rule.constant and rule.lost is None]
    if len(linear) == 1:
        return _affine(call, linear, outputs, known) or Passed("affine", None, lost=_bent(call))
    if len(linear) == 2 == len(call.live):
        if bent == "aside":
            return aside(call.carried[linear[0]], outputs, "product", tuple(linear))
        sizes = [out.numel() for out in outputs]
        return Passed("product", lambda: _halves(call, linear, sizes), tuple(linear))
    affine = [index for index, rule in each.items() if rule is not None and rule.lost is None]
    if len(affine) == 1:  # an attention with a bias behind it
        return _affine(call, affine, outputs, known) or Passed("affine", None, lost=_bent(call))
    return Passed("other", None, lost=_bent(call))


def _bent(call: Call) -> str:
    return f"{name_of(call)} is no sum over the parts of its input"


def _halves(call: Call, pair: Sequence[int], sizes: Sequence[int]) -> list[Tensor]:
    """A product of two states: half for the parts of one with the other held fast, half the other way round."""
    first, second = (over_parts(call, [index], sizes) for index in pair)
    return [(a + b) / 2 for a, b in zip(first, second, strict=True)]


def aside(entry: Carried, outputs: Sequence[Tensor], kind: str, sources: tuple[int, ...]) -> Passed:
    """All of the output as a constant, which belongs to no source."""
    held = [out.detach() for out in outputs]  # another object: the output itself must be free to go

    def make() -> list[Tensor]:
        n_parts = entry.parts().shape[0]
        nothing = [out.new_zeros(n_parts - 1, *out.shape) for out in held]
        return [torch.cat([none, out[None]]) for none, out in zip(nothing, held, strict=True)]

    return Passed(kind, make, sources)


def _one(call: Call, index: int, outputs: Sequence[Tensor], bent: Bent) -> Passed:
    """A function of one state that is not affine: an activation, a norm, or nothing that has parts."""
    if len(outputs) != 1:
        return Passed("other", None, lost=_bent(call))
    return bent_rule(
        lambda x: call.again({index: x})[0], call.leaves[index], call.carried[index], name_of(call), bent, index
    )


def bent_rule(
    function: Callable[[Tensor], Tensor], x: Tensor, entry: Carried, name: str, bent: Bent, source: int = 0
) -> Passed:
    """The rule of a function of one tensor that is not affine; also used for modules that are activations."""
    try:
        if is_entrywise(function, x):
            if not goes_through_origin(function, x):
                return Passed("factor", None, lost=f"{name} is not 0 where its input is 0, so it is a factor held fast")
            return _activation(function, x, entry, bent, source)
        norm = norm_of(function, x)
    except FAILURES:
        norm = None
    if norm is None:
        return Passed("other", None, lost=f"{name} is no sum over the parts of its input")
    return Passed("norm", lambda: [_normed(norm, entry)], (source,), bool(norm.shift.any()), rounding=2 * norm.error)


def _activation(function: Callable[[Tensor], Tensor], x: Tensor, entry: Carried, bent: Bent, source: int) -> Passed:
    if bent == "aside":
        return aside(entry, [function(x)], "activation", (source,))
    steep = slope(function, x)
    return Passed("activation", lambda: [entry.parts() * steep], (source,))


def _normed(norm: Norm, entry: Carried) -> Tensor:
    parts = norm(entry.parts())
    parts[-1] += norm.shift
    return parts
