"""Controls: scores that know nothing of the model."""

import zlib

import torch

from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget


def seed_of(example: Example) -> int:
    """A number that follows from what is read: the text, its pair, the picture."""
    parts = [example.text, *([] if example.pair is None else [example.pair])]
    seed = zlib.crc32("\0".join(parts).encode())
    pixels = example.inputs.get("pixel_values")
    return seed if pixels is None else zlib.crc32(pixels.detach().cpu().contiguous().float().numpy().tobytes(), seed)


@methods.add(
    family="control", source="control: what knowing nothing gives", formula="N(0, 1), seeded", cost="none", signed=True
)
def random_scores(model: Model, example: Example, target: ResolvedTarget, *, seed: int = 0) -> Scores:
    """Random numbers, the same for the same seed and input; a method must do better than this."""
    generator = torch.Generator().manual_seed(seed + seed_of(example))
    return Scores(torch.randn(example.n_tokens, generator=generator))
