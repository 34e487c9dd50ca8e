"""What a site proves of itself, measured on the tensors that the model used."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnprobe.site import Place, Site

# Random directions that a long input is compared along (Freivalds 1977): every row, at a cost that leaves out d_value.
N_DIRECTIONS = 4
# Largest error that rounding explains, relative to the size of the numbers compared.
TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


@dataclass(frozen=True)
class SiteProof:
    """Row sums of the weights against 1 (over visible keys), and |weights @ value - z|, as the model made them.

    Both errors are 0-dimensional tensors until read, so that a GPU is not waited for in the middle of a pass.
    along: how many random directions of z were compared, None for z itself.
    """

    place: Place
    row_sum: str
    row_error: Tensor | None
    z_error: Tensor | None
    z_size: Tensor | None
    tolerance: float
    along: int | None = None

    @classmethod
    def of(cls, site: Site) -> "SiteProof":
        """Measure a site before any edit."""
        with torch.no_grad():
            row_error, z_error, z_size, along = _row_error(site), None, None, None
            if site.weights is not None and site.value is not None and site.z is not None:
                value, z, along = _compared(site.value, site.z)
                z_error, z_size = (site.weights.to(value.dtype) @ value - z).abs().max(), site.z.abs().max()
        dtype = site.z.dtype if site.z is not None else torch.float32
        tolerance = TOLERANCE.get(dtype, 1e-2)
        return cls(site.place, site.normalizer.row_sum, row_error, z_error, z_size, tolerance, along)


def _compared(value: Tensor, z: Tensor) -> tuple[Tensor, Tensor, int | None]:
    """Value and z whole; of a long input, where that would cost as much as the layer, their sums with random signs."""
    _, n_heads, n_keys, d_value = value.shape
    if 2 * n_keys <= n_heads * d_value or d_value <= N_DIRECTIONS:
        return value, z, None
    # Seeded by shape, so that a capture gives the same numbers again, and the user's random state is left alone.
    draw = torch.rand(d_value, N_DIRECTIONS, generator=torch.Generator().manual_seed(n_keys))
    signs = (draw > 0.5).to(value) * 2 - 1
    return value @ signs, z @ signs, N_DIRECTIONS


def _row_error(site: Site) -> Tensor | None:
    if site.weights is None or site.normalizer.row_sum == "any":
        return None
    sums = site.weights.float().sum(-1) - 1
    if site.normalizer.row_sum == "at_most_one":
        return sums.clamp(min=0).max()
    if site.visible is not None:
        # A row with nothing to look at has no sum to keep.
        sums = sums.masked_fill(~site.visible.any(-1).expand_as(sums), 0.0)
    return sums.abs().max()
