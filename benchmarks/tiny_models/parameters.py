"""Random parameters under which attention is not uniform."""

import torch
from torch import nn

SPREAD = 1.4  # of a matrix: times 1 / sqrt(inputs)


@torch.no_grad()
def randomise(module: nn.Module) -> None:
    """Gives every parameter that is not finite, absurd, or all zero small random values."""
    for parameter in module.parameters():
        values = parameter.data
        if not values.is_floating_point() or not values.numel():
            continue
        odd = not bool(torch.isfinite(values).all()) or float(values.abs().max()) > 1e4
        if odd or not bool(values.any()):
            values.normal_(0.0, 0.1 if values.ndim > 1 else 0.02)


@torch.no_grad()
def spread(module: nn.Module) -> list[tuple[nn.Parameter, torch.Tensor]]:
    """Scales matrices up, so that scores differ; gives back the parameters that it changed, as they were."""
    changed = []
    for part in module.modules():
        weight = getattr(part, "weight", None)
        if not isinstance(weight, nn.Parameter) or weight.ndim != 2 or isinstance(part, nn.Embedding):
            continue
        now, wanted = float(weight.std()), SPREAD / min(weight.shape) ** 0.5
        if 0 < now < wanted:
            changed.append((weight, weight.clone()))
            weight.mul_(wanted / now)
    return changed
