"""Controls: scores that know nothing of the model."""

import zlib

import torch
from torch import Tensor

from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget


def seed_of(example: Example) -> int:
    """A number that follows from what is read: the text, its pair, the picture, the sound."""
    parts = [example.text, *([] if example.pair is None else [example.pair])]
    seed = zlib.crc32("\0".join(parts).encode())
    for name, given in sorted(example.inputs.items()):
        if isinstance(given, Tensor) and given.is_floating_point() and "mask" not in name:
            seed = zlib.crc32(given.detach().cpu().contiguous().float().numpy().tobytes(), seed)
    return seed


@methods.add(
    family="control",
    source="control: what knowing nothing gives",
    formula="N(0, 1), seeded",
    cost="none",
    signed=True,
    passes=lambda size, o: (0, 0),
)
def random_scores(model: Model, example: Example, target: ResolvedTarget, *, seed: int = 0) -> Scores:
    """Random numbers, the same for the same seed and input; a method must do better than this."""
    generator = torch.Generator().manual_seed(seed + seed_of(example))
    return Scores(torch.randn(example.n_tokens, generator=generator))
