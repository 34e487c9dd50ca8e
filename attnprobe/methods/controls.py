"""Controls: scores that know nothing of the model."""

import zlib

import torch

from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget


@methods.add(
    family="control", source="control: what knowing nothing gives", formula="N(0, 1), seeded", cost="none", signed=True
)
def random_scores(model: Model, example: Example, target: ResolvedTarget, *, seed: int = 0) -> Scores:
    """Random numbers, the same for the same seed and text; a method must do better than this."""
    generator = torch.Generator().manual_seed(seed + zlib.crc32(example.text.encode()))
    return Scores(torch.randn(example.n_tokens, generator=generator))
