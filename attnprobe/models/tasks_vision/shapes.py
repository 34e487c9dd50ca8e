"""Questions about coloured shapes with two towers: `python -m attnprobe.models.tasks_vision.shapes [--seed N]`.

The words look at the patches by cross-attention. Since it is known which patch holds the answer (drawing.py), it can
be measured whether the attention lies there (`pointing`), and whether the answer hangs on it (`answers_without`).
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnprobe.attention.seam import NOTHING, Edit, Keep, Tape, recording
from attnprobe.attention.two_towers import TwoTowers
from attnprobe.intervention import Intervention
from attnprobe.models.tasks.training import arguments as arguments_of
from attnprobe.models.tasks.training import at_least_one, keep_network
from attnprobe.models.tasks_vision.drawing import (
    ANSWERS,
    CELL,
    LONGEST,
    N_CELLS,
    VOCABULARY,
    Scenes,
    make_scenes,
)
from attnprobe.models.tasks_vision.fitting import Batch, Recipe, fit, one_thread
from attnprobe.site import Site

RECIPE = Recipe(steps=3000, rate=3e-3, decay=0.01)
SIZES: dict[str, Any] = {"d_model": 64, "n_heads": 4, "vision_layers": 1, "text_layers": 1}
N_HELD_OUT, SEED_OF_HELD_OUT, SEED_OF_UNSEEN = 1000, 1002, 1003  # of the scenes that no training draws


def network_of(**sizes: Any) -> TwoTowers:
    """Two towers of the size that these scenes need, with random weights."""
    side = N_CELLS * CELL
    return TwoTowers(len(VOCABULARY.tokens), len(ANSWERS), (side, side), CELL, max_length=LONGEST, **{**SIZES, **sizes})


def train(recipe: Recipe = RECIPE, **sizes: Any) -> tuple[TwoTowers, list[float]]:
    """Two towers fitted to scenes that are drawn anew in every step, and the loss of every step."""
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(recipe.seed)

        def answers(network: nn.Module, generator: torch.Generator) -> Batch:
            scenes = make_scenes(recipe.batch, generator)
            return network(scenes.ids, scenes.pictures, scenes.is_word), scenes.answers

        return fit(network_of(**sizes), answers, recipe)  # type: ignore[return-value]


@torch.no_grad()
def is_right(network: TwoTowers, scenes: Scenes, edits: Sequence[Edit] = ()) -> Bool[Tensor, " scene"]:
    """Which scenes are answered rightly, with edits of the attention if given."""
    with recording(Tape(edits, keep=NOTHING, check=False, locate=network.locate)):
        return network(scenes.ids, scenes.pictures, scenes.is_word).argmax(-1) == scenes.answers


@torch.no_grad()
def looks(network: TwoTowers, scenes: Scenes) -> list[Float[Tensor, "scene head word patch"]]:
    """The cross-attention of each text layer."""
    keep = Keep.of("weights", stack="text", kind="cross")
    with recording(Tape(keep=keep, locate=network.locate)) as tape:
        network(scenes.ids, scenes.pictures, scenes.is_word)
    return [site.need("weights") for site in tape.sites]


def pointing(network: TwoTowers, scenes: Scenes) -> pd.DataFrame:
    """How well cross-attention points at the patch asked for; a row for each layer and looking word.

    word: "read" ([CLS], where the answer is read) or "name" (the word that names the thing). accuracy: how often the
    largest weight (mean of heads) is on the right patch, by chance 1/16; best_head: the same of the best single head;
    mass: mean weight on the right patch; mass_other: on another thing.
    """
    every, rows = torch.arange(len(scenes.answers)), []
    for layer, weights in enumerate(looks(network, scenes)):
        for name, word in (("read", torch.zeros_like(scenes.word)), ("name", scenes.word)):
            of_word = weights[every, :, word]  # [scene head patch]
            mean, by_head = of_word.mean(1), (of_word.argmax(-1) == scenes.patch[:, None]).double().mean(0)
            facts = {
                "accuracy": (mean.argmax(-1) == scenes.patch).double().mean().item(),
                "best_head": by_head.max().item(),
                "mass": mean[every, scenes.patch].mean().item(),
                "mass_other": mean[every, scenes.other].mean().item(),
            }
            rows.append({"layer": layer, "word": name, **facts})
    return pd.DataFrame(rows)


def hide_patch(patch: Int[Tensor, " scene"]) -> Intervention:
    """No word looks at the given patch of its own scene, in any layer; the other patches share its mass."""

    def change(site: Site) -> Site:
        scores = site.need("scores")
        cut = nn.functional.one_hot(patch, scores.shape[-1]).bool()[:, None, None]
        return site.replace(scores=scores.masked_fill(cut, -torch.inf))

    return Intervention("hide a patch from the words", change, stack="text", kind="cross")


def answers_without(network: TwoTowers, scenes: Scenes) -> dict[str, float]:
    """Share of right answers: as it is, with the asked patch hidden from the words, with another thing's hidden."""
    edits = {"whole": (), "asked hidden": (hide_patch(scenes.patch),), "other hidden": (hide_patch(scenes.other),)}
    return {name: is_right(network, scenes, some).double().mean().item() for name, some in edits.items()}


def main() -> None:
    """Train, and print how many answers are right, and where the words look."""
    parser = arguments_of("Train two towers to answer questions about coloured shapes.", RECIPE.steps)
    layers = SIZES["vision_layers"]
    parser.add_argument("--vision-layers", type=at_least_one, default=layers, help="(default %(default)s)")
    parser.add_argument("--apart", action="store_true", help="patches do not mix in the picture tower")
    arguments = parser.parse_args()
    started = time.perf_counter()
    recipe = replace(RECIPE, steps=arguments.steps, seed=arguments.seed)
    sizes = {"vision_layers": arguments.vision_layers, "mixing": not arguments.apart}
    network, losses = train(recipe, **sizes)
    print(f"{recipe.steps * recipe.batch} scenes, {time.perf_counter() - started:.0f} s, loss {losses[-1]:.3f}")
    keep_network(network, arguments.out)
    held_out = make_scenes(N_HELD_OUT, SEED_OF_HELD_OUT)
    unseen = make_scenes(N_HELD_OUT, SEED_OF_UNSEEN, unseen=True)
    for name, scenes in (("held out", held_out), ("of pairs never seen", unseen)):
        print(f"right answers to {N_HELD_OUT} questions {name}: {is_right(network, scenes).double().mean():.4f}")
    print("without a patch:", {name: round(share, 3) for name, share in answers_without(network, held_out).items()})
    print(pointing(network, held_out).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
