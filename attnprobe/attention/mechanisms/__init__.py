"""Mechanisms of attention: each a plain function (query, key, value) -> z, beside the map that it implies.

    @mechanisms.add(family="kernel", source="…", weights=linear_weights, cost="n", formula="…", meaning="…")
    def linear(query, key, value, *, causal=False) -> z

All tensors are [*batch token width]; leading axes are rows and heads. `weights` is a function (query, key) with the
same options that gives the map [*batch query key] *for interpretation*, also where the mechanism itself never forms
one: z = weights @ value. A mechanism names `visible` (boolean, True = may look) and `bias` (added to the scores) among
its arguments where it can take them; any other combination is refused by `Mechanism`, which says what goes together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from attnprobe.attention.masks import causal_mask
from attnprobe.attention.mechanism_names import unknown_mechanism
from attnprobe.attention.remaking import Remade
from attnprobe.errors import InputError, nearest
from attnprobe.registry import Entry, Registry
from attnprobe.site import Normalizer, Place, RowSum, Site

# weights: the map as a function; row_sum: what its rows sum to ("one", "at_most_one", "any"), or a function of the
# options that says it; cost: in n; formula, and meaning (what a weight is): for people; shared: keys are the queries.
mechanisms = Registry(
    "mechanism", "attnprobe.attention.mechanisms", ("weights", "row_sum", "cost", "formula", "meaning", "shared")
)

# Arguments that every mechanism may take; whatever else it names is an option of its own.
ASKED = ("visible", "bias")


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A mechanism with its options chosen: `z` runs it, `weights` shows its map, `site` passes both to the seam."""

    entry: Entry
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, mechanism: Any, **options: Any) -> "Mechanism":
        """From a name or a function, options checked; `InputError` names the nearest. A mask or a bias is no option."""
        if isinstance(mechanism, Mechanism):
            if not options:
                return mechanism
            name, given = mechanism.entry.name, ", ".join(options)
            raise InputError(f"the mechanism '{name}' has its options already, got {given}; begin with its name")
        if isinstance(mechanism, str) and mechanism not in mechanisms:
            raise unknown_mechanism(mechanism, mechanisms)
        entry = mechanisms.get_entry(mechanism)
        able = [name for name in entry.options if name not in ASKED]
        for name in options:
            if name in ASKED:
                raise InputError(f"{name} is no option: it goes with a query and a key, weights(query, key, {name}=…)")
            if name not in able:
                raise InputError(f"'{entry.name}' has no option '{name}'; {nearest(name, able or ['(none)'])}")
        chosen = entry.check_options({name: value for name, value in options.items() if value is not None})
        return cls(entry, {name: value for name, value in chosen.items() if name not in ASKED})

    def __repr__(self) -> str:
        """As it is made: the name, and the options that are not the default."""
        usual = self.entry.options
        values = {k: v for k, v in self.options.items() if isinstance(v, Tensor) or v != usual.get(k)}
        shown = [f"{k}={tuple(v.shape) if isinstance(v, Tensor) else repr(v)}" for k, v in values.items()]
        return f"Mechanism.of({', '.join([repr(self.entry.name), *shown])})"

    @property
    def row_sum(self) -> RowSum:
        """What the rows of its map sum to, with these options."""
        said = self.entry.facts.get("row_sum", "one")
        found: RowSum = said(self.options) if callable(said) else said
        return found

    def z(
        self, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        """The mixed values [*batch query d_value], computed as the mechanism does it."""
        if value.shape[-2] != key.shape[-2] or not key.shape[-2]:
            raise InputError(f"one value a key is needed, got {value.shape[-2]} values and {key.shape[-2]} keys")
        found: Tensor = self.entry.function(query, key, value, **self._asked(visible, bias), **self.options)
        return found

    def weights(self, query: Tensor, key: Tensor, visible: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """The map [*batch query key] that the mechanism implies: z = weights @ value."""
        if (function := self.entry.facts.get("weights")) is None:
            raise InputError(f"the mechanism '{self.entry.name}' was given without its map (weights=)")
        if not key.shape[-2]:
            raise InputError(f"'{self.entry.name}' needs one key or more to look at, got none")
        found: Tensor = function(query, key, **self._asked(visible, bias), **self.options)
        return found

    def site(
        self,
        place: Place,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        visible: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Site:
        """A site whose weights are the implied map and whose z is the mechanism's own."""
        weights = self.weights(query, key, visible, bias)
        z = self.z(query, key, value, visible, bias)
        asked = None if bias is None else bias.expand(weights.shape)
        source = Site(place, query, key, scores=asked, visible=visible)
        known = Remade.of(Normalizer(self.entry.name, self._refuse, self.row_sum), source, self._again, weights)
        return Site(place, query, key, value, None, weights, z, visible, known)

    def under(self, visible: Tensor | None, n_queries: int, n_keys: int) -> "tuple[Mechanism, Tensor | None]":
        """The mechanism and the mask to ask it with, so that this mask holds; `InputError` where it cannot.

        A mask that hides nothing falls away, a causal one becomes causal=True beside the keys that nobody sees.
        """
        if visible is None or bool(visible.all()):
            return self, None
        takes = "visible" in self.entry.options
        if "causal" in self.entry.options and n_keys >= n_queries:
            keys = visible.any(-2, keepdim=True)
            shared, whole = causal_mask(n_queries, n_keys, device=visible.device) & keys, bool(keys.all())
            if (whole or takes) and bool((visible == shared).all()):
                return replace(self, options={**self.options, "causal": True}), None if whole else keys
        if not takes:
            self._asked(visible, None)
        return self, visible

    def _again(self, source: Site) -> Tensor:
        query, key = source.need("query"), source.need("key")
        mechanism, mask = self.under(source.visible, query.shape[-2], key.shape[-2])
        return mechanism.weights(query, key, mask, source.scores)

    def _refuse(self, scores: Tensor) -> Tensor:
        raise InputError(f"'{self.entry.name}' has no scores before a normalizer; edit weights, value or z")

    def _asked(self, visible: Tensor | None, bias: Tensor | None) -> dict[str, Tensor]:
        """Mask and bias as far as they are given; one that the mechanism cannot take is refused by name."""
        given = {name: tensor for name, tensor in (("visible", visible), ("bias", bias)) if tensor is not None}
        takes = [name for name in ASKED if name in self.entry.options]
        for name in given:
            if name not in takes:
                able = [known for known in mechanisms if name in mechanisms[known].options]
                what = "a mask" if name == "visible" else "a bias on scores"
                own = [option for option in self.entry.options if option not in ASKED]
                least = " but a causal one" if name == "visible" and "causal" in own else ""
                raise InputError(
                    f"'{self.entry.name}' takes no {what.removeprefix('a ')}{least} ({name}); {what} goes with "
                    f"{', '.join(able) or 'no mechanism'}; options of '{self.entry.name}': {', '.join(own) or 'none'}"
                )
        return given
