"""Handwritten digits with a small Vision Transformer: `python -m attnprobe.models.tasks_vision.digits [--seed N]`.

1,797 digits of 8 x 8 pixels come with scikit-learn (the test part of Alpaydin & Kaynak 1998; `pip install
attnprobe[train]`), so nothing is fetched. Patches of 2 x 2 pixels make 16 tokens and [CLS]. A fifth is held out: by
chance ("random", as most do: the same hands write on both sides) or the last fifth of the file ("last", which is
harder). Jitter and dropout were chosen on a part of the random split's training digits.
"""

import time
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import affine_grid, grid_sample

from attnprobe.attention.vision import VisionTransformer
from attnprobe.errors import InputError, nearest
from attnprobe.models.tasks.training import arguments as arguments_of
from attnprobe.models.tasks.training import keep_network
from attnprobe.models.tasks_vision.fitting import Batch, Recipe, fit, one_thread

SPLITS = ("random", "last")
RECIPE = Recipe(steps=1500)
SIZES: dict[str, Any] = {"d_model": 48, "n_heads": 4, "n_layers": 3, "d_mlp": 96, "dropout": 0.1}
LABELS = tuple("0123456789")


@dataclass(frozen=True, eq=False)
class Digits:
    """Pictures, 0 (paper) to 1 (ink), and what they show."""

    pictures: Float[Tensor, "picture 1 8 8"]
    labels: Int[Tensor, " picture"]


def load_digits(split: str = "random", held_out: float = 0.2) -> tuple[Digits, Digits]:
    """Digits to train on and digits held out; the random split is the same for every seed of a training."""
    if split not in SPLITS:
        raise InputError(f"digits are split {' or '.join(SPLITS)}, got '{split}'; {nearest(split, SPLITS)}")
    try:
        from sklearn import datasets
    except ImportError as error:
        raise InputError("the digits come with scikit-learn; install it: pip install 'attnprobe[train]'") from error
    pixels, labels = datasets.load_digits(return_X_y=True)
    pictures = torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    n = len(pictures)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0)) if split == "random" else torch.arange(n)
    cut = n - round(held_out * n)
    parts = (order[:cut], order[cut:])
    return tuple(Digits(pictures[part], torch.as_tensor(labels)[part]) for part in parts)  # type: ignore[return-value]


def jittered(
    pictures: Float[Tensor, "picture 1 8 8"], generator: torch.Generator, strength: float = 1.0
) -> Float[Tensor, "picture 1 8 8"]:
    """Each picture a little turned (up to 6 degrees), stretched (7 %) and moved (half a pixel), as if written again."""

    def draw(width: float) -> Float[Tensor, " picture"]:
        return strength * width * (2 * torch.rand(len(pictures), generator=generator) - 1)

    turn, lean, x, y = draw(0.1), draw(0.075), draw(0.125), draw(0.125)
    wide, high = 1 + draw(0.075), 1 + draw(0.075)
    rows = [wide * turn.cos(), lean - turn.sin(), x, turn.sin(), high * turn.cos(), y]
    maps = torch.stack(rows, -1).unflatten(-1, (2, 3))
    grid = affine_grid(maps, list(pictures.shape), align_corners=False)
    return grid_sample(pictures, grid, align_corners=False)


def train(digits: Digits, recipe: Recipe = RECIPE, **sizes: Any) -> tuple[VisionTransformer, list[float]]:
    """A Vision Transformer fitted to digits, and the loss of every step."""
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(recipe.seed)  # of the first weights and of dropout
        network = VisionTransformer((8, 8), 2, len(LABELS), **{**SIZES, **sizes})

        def answers(network: nn.Module, generator: torch.Generator) -> Batch:
            chosen = torch.randint(len(digits.labels), (recipe.batch,), generator=generator)
            pictures = jittered(digits.pictures[chosen], generator)
            return network(network.embed(pictures)), digits.labels[chosen]  # type: ignore[operator]

        return fit(network, answers, recipe)  # type: ignore[return-value]


@torch.no_grad()
def accuracy(network: VisionTransformer, digits: Digits) -> float:
    """Share of digits that are named rightly."""
    return (network(network.embed(digits.pictures)).argmax(-1) == digits.labels).double().mean().item()


def main() -> None:
    """Train, and print the accuracy on the digits held out."""
    parser = arguments_of("Train a small Vision Transformer on handwritten digits.", RECIPE.steps)
    parser.add_argument("--split", choices=SPLITS, default="random", help="(default %(default)s)")
    positions = ("learned", "grid", "none")
    parser.add_argument("--positions", choices=positions, default="learned", help="(default %(default)s)")
    arguments = parser.parse_args()
    started = time.perf_counter()
    known, held_out = load_digits(arguments.split)
    recipe = Recipe(steps=arguments.steps, seed=arguments.seed)
    network, losses = train(known, recipe, positions=arguments.positions)
    seconds = time.perf_counter() - started
    keep_network(network, arguments.out)
    print(f"{len(known.labels)} digits, {recipe.steps} steps, {seconds:.0f} s, loss {losses[-1]:.3f}")
    print(f"accuracy on {len(held_out.labels)} held out: {accuracy(network, held_out):.4f}")


if __name__ == "__main__":
    main()
