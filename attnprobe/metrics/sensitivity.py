"""Robustness: how far an explanation moves when its input moves a little."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from captum.metrics import sensitivity_max
from torch import Tensor

from attnprobe.attributing import Method, attribute
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.metrics import robustness
from attnprobe.models import load
from attnprobe.models.evaluator import remembering
from attnprobe.models.moved import MovedModel
from attnprobe.target import ResolvedTarget


@robustness.add(
    family="robustness",
    source="Yeh et al. 2019 (SENS_MAX); captum.metrics.sensitivity_max",
    low=0,
    high=math.inf,
    better="lower",
    default=False,
)
def max_sensitivity(
    model: Any,
    method: Method,
    example: Any,
    target: Any = None,
    *,
    radius: float = 0.02,
    n_samples: int = 10,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> float:
    """Largest change of the scores, as a share of their length, when embeddings move a little; from 0, lower is better.

    max ‖φ(E + δ) − φ(E)‖ / ‖φ(E)‖ over random δ, each entry of every token's embedding uniform in ±radius (in units of
    the embedding's entries). Any method: the model is asked as if those were its word embeddings. Constant scores have
    0, so low sensitivity alone proves nothing. target: made definite on the input as it is. options: of the method.
    n_samples: moves. seed: of the moves. Errors: as `attribute`.
    """
    if not (radius >= 0 and math.isfinite(radius)) or n_samples < 1:
        raise InputError(f"radius is 0 or more, n_samples at least 1; got {radius} and {n_samples}")
    model = load(model)
    example = example if isinstance(example, Example) else model.example(example)
    resolved = target if isinstance(target, ResolvedTarget) else model.resolve(example, target)
    generator = torch.Generator().manual_seed(seed)

    def explain(rows: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        if isinstance(rows, tuple):  # captum asks so of the input itself, and reads the answer so
            return tuple(map(explain, rows))  # type: ignore[arg-type]
        found = []
        for row in rows:
            with torch.enable_grad(), remembering():  # captum turns gradients off; what is remembered is of this row
                found.append(attribute(MovedModel(model, example, row), example, method, resolved, **(options or {})))
        return torch.stack([one.scores.double() for one in found])

    def move(embeddings: Tensor) -> Tensor:
        draw = torch.rand(embeddings.shape, generator=generator, dtype=torch.float64) * 2 - 1
        return embeddings + (radius * draw).to(embeddings)

    return float(sensitivity_max(explain, model.embed(example).detach()[None], move, n_perturb_samples=n_samples))
