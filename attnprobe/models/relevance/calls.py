"""One call of a function of the states, tried on a few other numbers: what kind of function it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from attnprobe.models.anatomy import (
    FAILURES,
    LARGE,
    alike,
    coarsest,
    goes_through_origin,
    is_entrywise,
    is_straight,
    norm_of,
    probe,
    widened,
)

# nothing: gives no numbers. constant: the same whatever the states are (of their size, their type). copy: its entries
# are entries of the states. affine: linear in the states but for a constant. part: affine in one of them (a quotient in
# its numerator). product: of two states. homogeneous: f(2x) = 2 f(x), straight around x (a maximum). held: all else.
Kind = Literal[
    "nothing", "constant", "copy", "affine", "part", "product", "softmax", "activation", "norm", "homogeneous", "held"
]

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

    def wide(self) -> "Call":
        """The same in numbers of float32 at least; as it is where the function does not take those."""
        wide = replace(self, leaves=[widened(leaf.detach() if is_state(leaf) else leaf) for leaf in self.leaves])
        try:
            wide.outputs({})
        except FAILURES:
            return self
        return wide

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
    """What kind of function of the states this is, by numbers; only softmax is known by its name.

    Neither the size of the states nor their type has a say: what is smooth looks linear to small or coarse numbers.
    """
    with torch.no_grad():
        own, call = call, call.wide()
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
        return _of_several(call) if len(call.live) > 1 else _of_one(call, own, whole)


def _of_several(call: Call) -> Found:
    affine = tuple(index for index in call.live if is_affine_in(call, (index,)))
    if len(affine) == 1:
        return Found("part", affine)
    if len(affine) == len(call.live) == 2:
        return Found("product", affine)
    return Found("homogeneous" if _homogeneous(call) else "held", call.live)


def _of_one(call: Call, own: Call, whole: list[Tensor]) -> Found:
    """The kind of a call of one state that is not affine; own: in the numbers of the model, which norms are made in."""
    x = call.states()[call.live[0]]
    if len(whole) == 1 and not x.is_complex():
        function = of_its_state(call)
        try:
            if is_entrywise(function, x):
                return Found("activation" if goes_through_origin(function, x) else "held", call.live)
            if norm_of(of_its_state(own), own.states()[call.live[0]]) is not None:
                return Found("norm", call.live)
        except FAILURES:
            pass
    return Found("homogeneous" if _homogeneous(call) else "held", call.live)


def of_its_state(call: Call) -> Callable[[Tensor], Tensor]:
    """A call of one state as a function of it."""
    (index,) = call.live
    return lambda x: call.outputs({index: x})[0]


def _unmasked(call: Call) -> dict[int, Tensor]:
    """The states with 0 where they are as large as masks, whose sums would round all else away."""
    return {index: torch.where(state.abs() < HIDING, state, 0.0) for index, state in call.states().items()}


def _constant(call: Call, whole: list[Tensor]) -> bool:
    try:
        other = call.outputs({index: LARGE * probe(state, index + 1) for index, state in call.states().items()})
        zero = call.at_zero()
    except FAILURES:
        return False
    same = (torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(whole, other, zero, strict=True))
    return all(same) and any(t.numel() for t in whole)


def is_affine_in(call: Call, sources: Sequence[int]) -> bool:
    """Whether the function is linear but for a constant in these leaves together, the others held fast."""
    states = call.states()
    try:
        return is_straight(call.outputs, {index: states[index] for index in sources})
    except FAILURES:
        return False


def _copies(call: Call, whole: list[Tensor]) -> bool:
    """Whether each entry of the output is an entry of the states, or 0: f(a b) = f(a) f(b)."""
    if call.constants():
        return False
    given = [{i: probe(s, i + seed) for i, s in call.states().items()} for seed in (1, 21)]
    first, second = (call.outputs(one) for one in given)
    both = call.outputs({i: a * given[1][i] for i, a in given[0].items()})
    rounding = coarsest((*call.states().values(), *whole))
    return all(alike(a * b, c, rounding=rounding) for a, b, c in zip(first, second, both, strict=True))


def _homogeneous(call: Call) -> bool:
    """Whether f(2x) = 2 f(x), here and for numbers of size LARGE."""
    states = _unmasked(call)
    for given in (states, {index: LARGE * probe(state, index + 1) for index, state in states.items()}):
        try:
            once, twice = call.outputs(given), call.outputs({index: 2 * state for index, state in given.items()})
        except FAILURES:
            return False
        if not all(alike(2 * a, b) for a, b in zip(once, twice, strict=True)) or not any(bool(a.any()) for a in once):
            return False
    return True
