"""One call of a function of the states, tried on a few other numbers: what kind of function it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from attnprobe.models.anatomy import ROUNDING, alike, coarsest, goes_through_origin, is_entrywise, noise_like, norm_of

# nothing: gives no numbers. constant: the same whatever the states are (of their size, their type). copy: its entries
# are entries of the states. affine: linear in the states but for a constant. part: affine in one of them (a quotient in
# its numerator). product: of two states. homogeneous: f(2x) = 2 f(x), straight around x (a maximum). held: all else.
Kind = Literal[
    "nothing", "constant", "copy", "affine", "part", "product", "softmax", "activation", "norm", "homogeneous", "held"
]

FAILURES = (RuntimeError, TypeError, ValueError, IndexError)
# Numbers as large as these are masks.
HIDING = 1e20


class Found(NamedTuple):
    """The kind of a call, and which of its leaves the rule is about."""

    kind: Kind
    sources: tuple[int, ...]


def is_state(leaf: Any) -> bool:
    """Whether this depends on the embeddings: all else is computed without gradients, and parameters are leaves."""
    return isinstance(leaf, Tensor) and leaf.requires_grad and not leaf.is_leaf


def numbers(out: Any) -> list[Tensor]:
    """The tensors of real or complex numbers in what a function gave."""
    leaves = tree_flatten(out)[0]
    return [t for t in leaves if isinstance(t, Tensor) and (t.is_floating_point() or t.is_complex())]


@dataclass(frozen=True, eq=False)
class Call:
    """One call of a function, so that it can be made again with other tensors in the place of some.

    live: which leaves of its arguments are states. in_place: it changes its first argument, and is made on a copy.
    """

    func: Callable[..., Any]
    leaves: list[Any]
    spec: Any
    live: tuple[int, ...]
    in_place: bool = False
    name: str = field(default="")

    @classmethod
    def of(cls, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> "Call":
        """The call of a function with these arguments."""
        leaves, spec = tree_flatten((args, kwargs))
        live = tuple(index for index, leaf in enumerate(leaves) if is_state(leaf))
        name = getattr(func, "__name__", "")
        return cls(func, leaves, spec, live, _changes_its_argument(name), name)

    def only(self, sources: Sequence[int]) -> "Call":
        """The same with the other states held fast."""
        held = [leaf.detach() if i in self.live and i not in sources else leaf for i, leaf in enumerate(self.leaves)]
        return replace(self, leaves=held, live=tuple(sources))

    def states(self) -> dict[int, Tensor]:
        """The states as plain numbers."""
        return {index: self.leaves[index].detach() for index in self.live}

    def outputs(self, given: dict[int, Tensor]) -> list[Tensor]:
        """The numbers that come out with other tensors in the place of some leaves; gradients reach those."""
        leaves = [leaf.detach() if is_state(leaf) else leaf for leaf in self.leaves]
        return numbers(self._run({**dict(enumerate(leaves)), **given}))

    def native(self, given: dict[int, Tensor] | None = None) -> Any:
        """What the function gives, with torch's own gradients."""
        with torch.enable_grad():
            return self._run({**dict(enumerate(self.leaves)), **(given or {})})

    def _run(self, given: dict[int, Any]) -> Any:
        leaves = [given[index] for index in range(len(self.leaves))]
        if self.in_place:
            leaves[0] = leaves[0].clone()
        args, kwargs = tree_unflatten(leaves, self.spec)
        out = self.func(*args, **kwargs)
        return leaves[0] if self.in_place else out

    def at_zero(self) -> list[Tensor]:
        """What comes out where the states are 0: what the function adds by itself."""
        with torch.no_grad():
            return self.outputs({index: torch.zeros_like(state) for index, state in self.states().items()})

    def constants(self) -> list[int]:
        """The leaves that are tensors of numbers and no states."""
        return [i for i, leaf in enumerate(self.leaves) if i not in self.live and numbers(leaf)]

    def key(self) -> tuple[object, ...]:
        """Equal for calls that are of one kind."""
        plain = tuple("tensor" if isinstance(leaf, Tensor) else repr(leaf) for leaf in self.leaves)
        return self.func, self.live, str(self.spec), plain


def _changes_its_argument(name: str) -> bool:
    """Whether a function changes its first argument, as torch names such functions."""
    if name.startswith("__"):
        operators = ("add", "sub", "mul", "truediv", "matmul", "pow", "div")
        return name == "__setitem__" or (name.startswith("__i") and name[3:-2] in operators)
    return name.endswith("_")


def kind_of_call(call: Call) -> Found:
    """What kind of function of the states this is, by numbers; only softmax is known by its name."""
    with torch.no_grad():
        try:
            whole = call.outputs({})
        except FAILURES:
            return Found("nothing", ())
        if not whole:
            return Found("nothing", ())
        if call.name in ("softmax", "_softmax") and len(call.live) == 1:
            return Found("softmax", call.live)
        if not call.in_place and _constant(call, whole):
            return Found("constant", call.live)
        if is_affine_in(call, call.live):
            return Found("copy" if _copies(call, whole) else "affine", call.live)
        return _of_several(call) if len(call.live) > 1 else _of_one(call, whole)


def _of_several(call: Call) -> Found:
    affine = tuple(index for index in call.live if is_affine_in(call, (index,)))
    if len(affine) == 1:
        return Found("part", affine)
    if len(affine) == len(call.live) == 2:
        return Found("product", affine)
    return Found("homogeneous" if _homogeneous(call) else "held", call.live)


def _of_one(call: Call, whole: list[Tensor]) -> Found:
    x = call.states()[call.live[0]]
    if len(whole) == 1 and not x.is_complex():
        function = of_its_state(call)
        try:
            if is_entrywise(function, x):
                return Found("activation" if goes_through_origin(function, x) else "held", call.live)
            if norm_of(function, x) is not None:
                return Found("norm", call.live)
        except FAILURES:
            pass
    return Found("homogeneous" if _homogeneous(call) else "held", call.live)


def of_its_state(call: Call) -> Callable[[Tensor], Tensor]:
    """A call of one state as a function of it."""
    (index,) = call.live
    return lambda x: call.outputs({index: x})[0]


def _noise(x: Tensor, seed: int) -> Tensor:
    """Numbers of the size of x."""
    if x.is_complex():
        return torch.complex(_noise(x.real, seed), _noise(x.imag, seed + 100))
    return noise_like(x, seed)


def _unmasked(call: Call, sources: Sequence[int]) -> dict[int, Tensor]:
    """The states with 0 where they are as large as masks, whose sums would round all else away."""
    states = call.states()
    return {index: torch.where(states[index].abs() < HIDING, states[index], 0.0) for index in sources}


def _constant(call: Call, whole: list[Tensor]) -> bool:
    try:
        other = call.outputs({index: _noise(state, index + 1) for index, state in call.states().items()})
        zero = call.at_zero()
    except FAILURES:
        return False
    same = (torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(whole, other, zero, strict=True))
    return all(same) and any(t.numel() for t in whole)


def is_affine_in(call: Call, sources: Sequence[int]) -> bool:
    """Whether the function is linear but for a constant in these leaves together, the others held fast."""
    states = _unmasked(call, sources)
    part = {index: _noise(state, index + 1) for index, state in states.items()}
    rest = {index: state - part[index] for index, state in states.items()}
    zero = {index: torch.zeros_like(state) for index, state in states.items()}
    try:
        pieces = [call.outputs(given) for given in (part, rest, zero, states)]
    except FAILURES:
        return False
    rounding = coarsest(states.values())
    part_of, rest_of, at_zero, whole = pieces
    together = zip(part_of, rest_of, at_zero, whole, strict=True)
    return all(_adds_up(a, b, zero, both, rounding) for a, b, zero, both in together)


def _adds_up(a: Tensor, b: Tensor, zero: Tensor, whole: Tensor, rounding: float) -> bool:
    """Whether (a − zero) + (b − zero) = whole − zero but for rounding; what is not finite must be so in all."""
    if a.shape != zero.shape or b.shape != zero.shape or whole.shape != zero.shape:
        return False
    finite = torch.isfinite(zero)
    if any(not torch.equal(torch.isfinite(t), finite) for t in (a, b, whole)):
        return False
    first, second, both = (torch.where(finite, t - zero, 0.0) for t in (a, b, whole))
    if not both.numel():
        return True
    rounding = max(rounding, ROUNDING.get(zero.dtype, 1e-4))
    size = max(float(first.abs().max()), float(second.abs().max()), float(both.abs().max()), 1e-30)
    lost = torch.where(finite, zero.abs(), 0.0) * (8 * torch.finfo(zero.dtype).eps)
    return bool(((first + second - both).abs() <= rounding * size + lost).all())


def _copies(call: Call, whole: list[Tensor]) -> bool:
    """Whether each entry of the output is an entry of the states, or 0: f(a b) = f(a) f(b)."""
    if call.constants():
        return False
    given = [{i: _noise(torch.ones_like(s), i + seed) for i, s in call.states().items()} for seed in (1, 21)]
    first, second = (call.outputs(one) for one in given)
    both = call.outputs({i: a * given[1][i] for i, a in given[0].items()})
    rounding = coarsest((*call.states().values(), *whole))
    return all(alike(a * b, c, rounding=rounding) for a, b, c in zip(first, second, both, strict=True))


def _homogeneous(call: Call) -> bool:
    states = _unmasked(call, call.live)
    try:
        once, twice = call.outputs(states), call.outputs({index: 2 * state for index, state in states.items()})
    except FAILURES:
        return False
    return all(alike(2 * a, b) for a, b in zip(once, twice, strict=True)) and any(bool(a.any()) for a in once)
