"""What a site proves of itself, measured on the tensors that the model used."""

from dataclasses import dataclass

import torch
from torch import Tensor

from attnprobe.site import Place, Site

# Largest error that rounding explains, relative to the size of the numbers compared.
TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


@dataclass(frozen=True)
class SiteProof:
    """Row sums of the weights against 1 (over visible keys), and |weights @ value - z|, as the model made them.

    Both errors are 0-dimensional tensors until read, so that a GPU is not waited for in the middle of a pass.
    row_excess: for normalizers that keep back a share (sinks), how far a row exceeds 1.
    """

    place: Place
    row_sum: str
    row_error: Tensor | None
    z_error: Tensor | None
    z_size: Tensor | None
    tolerance: float

    @classmethod
    def of(cls, site: Site) -> "SiteProof":
        """Measure a site before any edit."""
        with torch.no_grad():
            row_error, z_error, z_size = _row_error(site), None, None
            if site.weights is not None and site.value is not None and site.z is not None:
                mixed = site.weights.to(site.value.dtype) @ site.value
                z_error, z_size = (mixed - site.z).abs().max(), site.z.abs().max()
        dtype = site.z.dtype if site.z is not None else torch.float32
        return cls(site.place, site.normalizer.row_sum, row_error, z_error, z_size, TOLERANCE.get(dtype, 1e-2))


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
