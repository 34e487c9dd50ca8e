"""Weights without scores that can still be made anew under another mask: those of mechanisms, and of swapped ones.

Where a site has scores, a key is hidden by a score of -inf and the normalizer does the rest. A mechanism has no scores
of its own: hiding a key asks it again, with the mask. `Remade` stands in the normalizer's place and knows how.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from attnprobe.errors import EditError, InputError
from attnprobe.site import Normalizer, Site


@dataclass(frozen=True, eq=False)
class Remade(Normalizer):
    """A normalizer whose weights `made` came from `make(source)`, source being the site before they were made.

    A source without weights holds what the mechanism is asked with (its scores are then the bias).
    """

    source: Site | None = field(default=None, repr=False)
    make: Callable[[Site], Tensor] | None = field(default=None, repr=False)
    made: Tensor | None = field(default=None, repr=False)

    @classmethod
    def of(cls, normalizer: Normalizer, source: Site, make: Callable[[Site], Tensor], made: Tensor) -> "Remade":
        """A normalizer that also knows how the weights were made."""
        same = (normalizer.name, normalizer.function, normalizer.row_sum, normalizer.sinks, normalizer.hidden)
        return cls(*same, source, make, made)

    def rows(self, index: Tensor) -> Normalizer:
        """The normalizer of the batch rows `index`."""
        source = None if self.source is None else self.source.rows(index)
        made = None if self.made is None else self.made[index]
        return replace(super().rows(index), source=source, made=made)  # type: ignore[call-arg]

    def alone(self) -> Normalizer:
        """The normalizer without what it could ask again."""
        return Normalizer(self.name, self.function, self.row_sum, self.sinks, self.hidden)


def hide(site: Site, cut: Tensor, visible: Tensor) -> Site:
    """The site with the pairs `cut` [#batch head query key] hidden; visible: the whole mask that is left.

    Errors: `EditError` where its mechanism takes no mask, or an edit before put all of a query's weight on what is cut.
    """
    if site.weights is None:
        return replace(site, visible=visible)
    if site.scores is not None:
        return replace(site.replace(scores=site.scores.masked_fill(cut, -torch.inf)), visible=visible)
    known = site.normalizer
    if isinstance(known, Remade) and known.made is not None and torch.equal(known.made, site.weights):
        return _asked_again(site, known, cut, visible)
    return replace(site.replace(weights=_share_out(site, cut)), visible=visible)


def _asked_again(site: Site, known: Remade, cut: Tensor, visible: Tensor) -> Site:
    if known.source is None or known.make is None:
        raise EditError(f"{site.place}: nothing says how these weights were made, so no key can be hidden from them")
    source = hide(known.source, cut, visible)
    try:
        weights = known.make(source).to(site.need("weights").dtype)
    except InputError as error:
        raise EditError(f"{site.place}: hiding keys asks the mechanism again with a mask, and {error}") from None
    again = replace(known, source=source, made=weights)
    return replace(site.replace(weights=weights), normalizer=again, visible=visible)


def _share_out(site: Site, cut: Tensor) -> Tensor:
    """Weights that an edit put there: what is left of a row takes over its mass, as under the softmax."""
    weights = site.need("weights")
    left = weights.masked_fill(cut, 0.0)
    before, after = weights.sum(-1, keepdim=True), left.sum(-1, keepdim=True)
    # Parts that are off from their sum by more than rounding say nothing of how the rest should be shared.
    size = weights.abs().sum(-1, keepdim=True) * torch.finfo(weights.dtype).eps * 8
    lost = (after.abs() <= size) & (before.abs() > size)
    if bool(lost.any()):
        raise EditError(
            f"{site.place}: an edit before this one put all weight of {int(lost.sum())} queries on what is cut here, "
            "so nothing says who takes it over; cut first, or leave these queries out"
        )
    return left * torch.where(after == 0, 1.0, before / torch.where(after == 0, 1.0, after))
