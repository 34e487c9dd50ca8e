"""One call of a function of states whose parts are followed, so that it can be made again with other tensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from attnprobe.models.anatomy import FAILURES, is_straight, widened
from attnprobe.models.nonlinear import CURVED
from attnprobe.models.vectors.parts import Carried


@dataclass(eq=False)
class Call:
    """One call of a function, so that it can be made again with other tensors in the place of some.

    carried: which of the leaves of its arguments depend on the states, and what is known of their parts. An in-place
    function is made again on a copy of its first argument. judged: what was found of calls that are alike.
    """

    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    in_place: bool = False
    lookup: Callable[[Tensor], Carried | None] = lambda _: None
    carried: dict[int, Carried] = field(default_factory=dict)
    judged: dict[tuple[object, ...], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.given, self.spec = tree_flatten((self.args, self.kwargs))
        self.leaves = list(self.given)
        for index, leaf in enumerate(self.leaves):
            found = self.lookup(leaf) if isinstance(leaf, Tensor) else None
            if found is not None:
                self.carried[index] = found
        if self.in_place and self.carried:
            self.leaves[0] = self.leaves[0].clone()
        self.versions = [leaf._version if isinstance(leaf, Tensor) else 0 for leaf in self.leaves]

    @cached_property
    def live(self) -> list[int]:
        """The leaves whose parts are known."""
        return [index for index, entry in self.carried.items() if entry.lost is None]

    @property
    def constants(self) -> list[Tensor]:
        """The other tensors of numbers among the arguments."""
        return [
            leaf
            for index, leaf in enumerate(self.leaves)
            if isinstance(leaf, Tensor) and leaf.is_floating_point() and index not in self.carried
        ]

    def again(self, given: dict[int, Tensor]) -> list[Tensor]:
        """The floating tensors that come out with others put in the place of some leaves."""
        leaves = [given.get(index, leaf) for index, leaf in enumerate(self.leaves)]
        if self.in_place:
            leaves[0] = leaves[0].clone()
        args, kwargs = tree_unflatten(leaves, self.spec)
        out = self.func(*args, **kwargs)
        return floats(leaves[0] if self.in_place else out)

    def is_affine_in(self, sources: Sequence[int]) -> bool:
        """Whether it is linear but for a constant in these leaves together, whatever their numbers and their type."""
        plain = tuple(leaf.ndim if isinstance(leaf, Tensor) else repr(leaf) for leaf in self.leaves)
        key = self.func, tuple(sources), str(self.spec), plain
        if key in self.judged:
            return self.judged[key]
        found = self._straight(sources)
        if name_of(self) not in CURVED and all(self.leaves[index].numel() for index in sources):
            self.judged[key] = found
        return found

    def _straight(self, sources: Sequence[int]) -> bool:
        def function(held: dict[int, Any], given: dict[int, Tensor]) -> list[Tensor]:
            return self.again({**held, **given})

        own = dict(enumerate(self.leaves))
        for leaves in ({index: widened(leaf) for index, leaf in own.items()}, own):
            try:
                return is_straight(partial(function, leaves), {index: leaves[index] for index in sources})
            except FAILURES:
                continue
        return False

    def changed(self) -> bool:
        """Whether a tensor that went in was changed in place since."""
        now = [leaf._version if isinstance(leaf, Tensor) else 0 for leaf in self.leaves]
        return now != self.versions


def floats(out: Any) -> list[Tensor]:
    """The tensors of numbers in what a function gave."""
    return [leaf for leaf in tree_flatten(out)[0] if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def others(out: Any) -> list[Tensor]:
    """The other tensors in it: places, choices, complex numbers."""
    return [leaf for leaf in tree_flatten(out)[0] if isinstance(leaf, Tensor) and not leaf.is_floating_point()]


def name_of(call: Call) -> str:
    """The name of the function."""
    return getattr(call.func, "__name__", type(call.func).__name__)
