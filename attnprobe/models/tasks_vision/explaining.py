"""Networks that look at pictures as models that can be asked: every method of attnprobe then scores patches."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor, nn

from attnprobe.attention.two_towers import PictureAsked, TwoTowers
from attnprobe.attention.vision import VisionTransformer
from attnprobe.example import Example
from attnprobe.models.own import OwnModel

Pictures = Float[Tensor, "picture channel height width"]


def explained_digits(
    network: VisionTransformer, pictures: Pictures, labels: Sequence[str]
) -> tuple[OwnModel, list[Example]]:
    """A model, and an example for each picture, whose tokens are [CLS] and the patches "row,column"."""
    return _explained(network, pictures, labels)


def explained_shapes(
    towers: TwoTowers, ids: Int[Tensor, " word"], pictures: Pictures, labels: Sequence[str]
) -> tuple[OwnModel, list[Example]]:
    """A model that answers one question (ids without padding), and an example of its patches for each picture."""
    return _explained(PictureAsked(towers, ids), pictures, labels)


def _explained(network: nn.Module, pictures: Pictures, labels: Sequence[str]) -> tuple[OwnModel, list[Example]]:
    """Removal puts the mean patch of these pictures in a patch's place ("mean"), or one of nothing but 0 ("mask")."""
    model = OwnModel(network, name=type(network).__name__, labels=labels, pictures=pictures)
    return model, [model.example(picture) for picture in pictures]
