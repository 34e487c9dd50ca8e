"""What a site proves of itself, measured on the tensors that the model used."""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from attnprobe.site import Place, Site

# Largest error that rounding explains, relative to the size of the numbers compared.
TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


@dataclass(frozen=True)
class Extent:
    """Smallest and largest of some numbers, as 0-dimensional tensors until read: no GPU is waited for inside a pass."""

    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, numbers: Tensor) -> "Extent":
        """In one look at the numbers."""
        return cls(*torch.aminmax(numbers))

    def farthest_from(self, center: float, *, above: bool = False) -> float:
        """How far any of the numbers is from `center` (above: how far above it); NaN where there is one."""
        low, high = float(self.low) - center, float(self.high) - center
        if low != low:
            return low
        return max(0.0, high) if above else max(abs(low), abs(high))


@dataclass(frozen=True)
class SiteProof:
    """Row sums of the weights against 1 (over visible keys), and |weights @ value - z|, as the model made them.

    along: how many random directions of z were compared, None for z itself.
    """

    place: Place
    row_sum: str
    rows: Extent | None
    errors: Extent | None
    sizes: Extent | None
    tolerance: float
    along: int | None = None

    @classmethod
    def of(cls, site: Site) -> "SiteProof":
        """Measure a site before any edit."""
        with torch.no_grad():
            rows, errors, sizes, along = _rows(site), None, None, None
            if site.weights is not None and site.value is not None and site.z is not None:
                difference, along = _difference(site.weights.to(site.value.dtype), site.value, site.z)
                errors, sizes = Extent.of(difference), Extent.of(site.z)
        dtype = site.z.dtype if site.z is not None else torch.float32
        return cls(site.place, site.normalizer.row_sum, rows, errors, sizes, TOLERANCE.get(dtype, 1e-2), along)

    @property
    def row_error(self) -> float | None:
        """Largest |row sum - 1|; of normalizers that keep a share back, how far a row exceeds 1."""
        return None if self.rows is None else self.rows.farthest_from(1.0, above=self.row_sum == "at_most_one")

    @property
    def z_error(self) -> float | None:
        """Largest |weights @ value - z|."""
        return None if self.errors is None else self.errors.farthest_from(0.0)

    @property
    def z_size(self) -> float | None:
        """Largest |z|."""
        return None if self.sizes is None else self.sizes.farthest_from(0.0)


def _difference(weights: Tensor, value: Tensor, z: Tensor) -> tuple[Tensor, int | None]:
    """weights @ value - z; of a long input, where that would cost as much as the layer, along one random direction.

    Every row is looked at (Freivalds 1977): with random signs no error of a single entry can hide.
    """
    _, n_heads, n_keys, d_value = value.shape
    if 2 * n_keys <= n_heads * d_value or d_value == 1:
        return weights @ value - z, None
    signs = _signs(d_value).to(value)
    return torch.einsum("bhqk,bhk->bhq", weights, value @ signs) - z @ signs, 1


@cache
def _signs(n: int) -> Tensor:
    """The same for each width, so that a capture gives the same numbers again, without the user's random state."""
    return (torch.rand(n, generator=torch.Generator().manual_seed(n)) > 0.5).float() * 2 - 1


def _rows(site: Site) -> Extent | None:
    if site.weights is None or site.normalizer.row_sum == "any":
        return None
    sums = site.weights.float().sum(-1)
    if site.visible is not None and site.normalizer.row_sum == "one":
        # A row with nothing to look at has no sum to keep.
        sums = sums.masked_fill(~site.visible.any(-1).expand_as(sums), 1.0)
    return Extent.of(sums)
