"""What a build gives back, and what it raises."""

from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Built:
    """A tiny random model in eval mode, and keyword arguments of its `forward` for one example without padding."""

    model_type: str
    model_class: str
    module: nn.Module
    inputs: dict[str, Any]


class NotBuilt(Exception):  # noqa: N818  (it says why, and is nobody's mistake)
    """A model type has no tiny model; the message says in one line why."""
