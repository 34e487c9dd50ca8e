"""Networks that look at pictures as models that can be asked: every method of attnprobe then scores patches.

`OwnModel` looks tokens up by their ids in a table of embeddings. The table here holds the patches of the pictures that
are to be explained, [CLS] first where the network has one; positions are the network's own, and added later.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnprobe.attention.two_towers import PictureAsked, TwoTowers
from attnprobe.attention.vision import PictureEncoder, VisionTransformer
from attnprobe.example import Example
from attnprobe.models.own import OwnModel, Vocabulary

Pictures = Float[Tensor, "picture channel height width"]


def explained_digits(
    network: VisionTransformer, pictures: Pictures, labels: Sequence[str]
) -> tuple[OwnModel, list[Example]]:
    """A model, and an example for each picture, whose tokens are [CLS] and the patches "row,column"."""
    return _explained(network, network, pictures, labels)


def explained_shapes(
    towers: TwoTowers, ids: Int[Tensor, " word"], pictures: Pictures, labels: Sequence[str]
) -> tuple[OwnModel, list[Example]]:
    """A model that answers one question (ids without padding), and an example of its patches for each picture."""
    return _explained(PictureAsked(towers, ids), towers.vision, pictures, labels)


@torch.no_grad()
def _explained(
    network: nn.Module, encoder: PictureEncoder, pictures: Pictures, labels: Sequence[str]
) -> tuple[OwnModel, list[Example]]:
    """Removal puts the mean patch of these pictures in a patch's place ("mean"), or one of nothing but 0 ("mask")."""
    embeddings = encoder.embed(pictures)
    special = [] if encoder.class_embedding is None else ["[CLS]"]
    patches = embeddings[:, len(special) :]
    places = [f"{row},{column}" for row in range(encoder.grid[0]) for column in range(encoder.grid[1])]
    names = [f"{picture}:{place}" for picture in range(len(pictures)) for place in places]
    table = torch.cat([embeddings[0, : len(special)], patches.flatten(0, 1)])
    blank = encoder.embed(torch.zeros_like(pictures[:1]))[0, -1]
    model = OwnModel(
        network,
        Vocabulary((*special, *names), begin=special[0] if special else None, pattern=r"\S+"),
        name=type(network).__name__,
        labels=labels,
        embedding=nn.Embedding.from_pretrained(table),
        fillers={"mean": patches.mean((0, 1)), "mask": blank, "zero": torch.zeros_like(blank)},
    )
    text = f"picture of {encoder.grid[0]} x {encoder.grid[1]} patches"
    spans, words = (None,) * encoder.fixed_length, (*[None] * len(special), *range(len(places)))
    examples = []
    for start in range(0, len(names), len(places)):
        read = model.example([*special, *names[start : start + len(places)]])
        tokens = (*special, *places)
        examples.append(replace(read, text=text, tokens=tokens, spans=spans, words=words, axis="patches"))
    return model, examples
