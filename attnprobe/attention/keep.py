"""What a recording keeps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.site import TENSORS, Kind, Place, Site


@dataclass(frozen=True)
class Keep:
    """What a recording keeps: which tensors, of which layers, heads, stack and kind (None: all).

    reduce: instead of tensors, a function of the site whose named results are kept (statistics only).
    """

    tensors: frozenset[str] = frozenset({"weights"})
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None
    stack: str | None = None
    kind: Kind | None = None
    reduce: Callable[[Site], dict[str, Tensor]] | None = None

    def __post_init__(self) -> None:
        tensors = {self.tensors} if isinstance(self.tensors, str) else self.tensors
        object.__setattr__(self, "tensors", frozenset(tensors))
        object.__setattr__(self, "layers", _numbers(self.layers))
        object.__setattr__(self, "heads", _numbers(self.heads))
        for name in self.tensors:
            if name not in TENSORS:
                raise InputError(f"a site has no tensor '{name}'; {nearest(name, TENSORS)}")
        for name, chosen in (("layers", self.layers), ("heads", self.heads)):
            if chosen is not None and not chosen:
                raise InputError(f"{name} is empty, so nothing would be kept; leave it out for all")

    @classmethod
    def of(
        cls,
        *tensors: str,
        layers: int | Sequence[int] | None = None,
        heads: int | Sequence[int] | None = None,
        **where: object,
    ) -> "Keep":
        """Keep the named tensors (weights, scores, query, key, value, z); one number or a list of layers and heads."""
        unknown = [name for name in where if name not in ("stack", "kind", "reduce")]
        if unknown:
            raise InputError(
                f"Keep.of has no '{unknown[0]}'; {nearest(unknown[0], ('layers', 'heads', 'stack', 'kind'))}"
            )
        kept = frozenset(tensors or ("weights",))
        return cls(kept, _numbers(layers), _numbers(heads), **where)  # type: ignore[arg-type]

    @property
    def anything(self) -> bool:
        """Whether anything is kept at all."""
        return bool(self.tensors) or self.reduce is not None

    def wants(self, place: Place) -> bool:
        """Whether anything of this place is to be kept."""
        return (
            self.anything
            and (self.layers is None or place.layer in self.layers)
            and (self.stack is None or place.stack == self.stack)
            and (self.kind is None or place.kind == self.kind)
        )


def _numbers(given: int | Sequence[int] | None) -> tuple[int, ...] | None:
    return given if given is None else (given,) if isinstance(given, int) else tuple(given)


NOTHING = Keep(frozenset())
