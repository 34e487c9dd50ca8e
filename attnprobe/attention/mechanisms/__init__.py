"""Mechanisms of attention: each a plain function (query, key, value) -> z, beside the map that it implies.

    @mechanisms.add(family="kernel", source="…", weights=linear_weights, cost="n")
    def linear(query, key, value, *, causal=False) -> z

All tensors are [*batch token width]; leading axes are rows and heads. `weights` is a function (query, key) with the
same options that gives the map [*batch query key] *for interpretation*, also where the mechanism itself never forms
one: z = weights @ value. A mechanism names `visible` (boolean, True = may look) and `bias` (added to the scores) among
its arguments where it can take them; any other combination is refused by `Mechanism`, which says what goes together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.registry import Entry, Registry
from attnprobe.site import Normalizer, Place, RowSum, Site

# weights: the map as a function; row_sum: what its rows sum to ("one", "at_most_one", "any"), or a function of the
# options that says it; cost: in n; formula: for people.
mechanisms = Registry("mechanism", "attnprobe.attention.mechanisms", ("weights", "row_sum", "cost", "formula"))

# Arguments that every mechanism may take; whatever else it names is an option of its own.
ASKED = ("visible", "bias")


@dataclass(frozen=True, eq=False)
class Mechanism:
    """A mechanism with its options chosen: `z` runs it, `weights` shows its map, `site` passes both to the seam."""

    entry: Entry
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, mechanism: Any, **options: Any) -> "Mechanism":
        """From a name or a function, options checked; `InputError` names the nearest."""
        if isinstance(mechanism, Mechanism):
            return mechanism
        entry = mechanisms.get_entry(mechanism)
        chosen = entry.check_options({name: value for name, value in options.items() if value is not None})
        return cls(entry, {name: value for name, value in chosen.items() if name not in ASKED})

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
        found: Tensor = self.entry.function(query, key, value, **self._asked(visible, bias), **self.options)
        return found

    def weights(self, query: Tensor, key: Tensor, visible: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        """The map [*batch query key] that the mechanism implies: z = weights @ value."""
        function = self.entry.facts.get("weights")
        if function is None:
            raise InputError(f"the mechanism '{self.entry.name}' was given without its map (weights=)")
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
        normalizer = Normalizer(self.entry.name, self._refuse, self.row_sum)
        return Site(place, query, key, value, None, weights, z, visible, normalizer)

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
                raise InputError(
                    f"'{self.entry.name}' takes no {what.removeprefix('a ')} ({name}); {what} goes with "
                    f"{', '.join(able) or 'no mechanism'}; options of '{self.entry.name}': {', '.join(own) or 'none'}"
                )
        return given
