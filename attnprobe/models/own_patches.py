"""Pictures: a token is a patch, and its embedding what the network's `embed` makes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.seam import silent
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.modes import evaluating, version_of
from attnprobe.models.own_inputs import Inputs

Embed = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Patches(Inputs):
    """Pictures [channel height width]; embed: pictures [batch channel height width] -> [batch token d_model].

    pictures: some that the network reads, whose mean patch stands in for one that is taken away. A network may say
    `picture_shape`, `grid` (rows and columns of patches) and `special_tokens` (those before the patches).
    """

    name: str
    network: nn.Module
    embed_pictures: Embed
    pictures: Float[Tensor, "picture channel height width"] | None = None
    _fillers: dict[int, Mapping[str, Tensor]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, name: str, network: nn.Module, embed: Embed | None, pictures: Any) -> "Patches":
        """Checked: there is something that embeds pictures, and their shape is known."""
        found = getattr(network, "embed", None) if embed is None else embed
        if not callable(found):
            raise InputError(
                f"{type(network).__name__} reads words with a vocabulary, or pictures with embed=, a function of "
                "pictures [batch channel height width] to embeddings [batch token d_model]; give one of the two"
            )
        shape = getattr(network, "picture_shape", None)
        if pictures is None and shape is None:
            raise InputError(f"{type(network).__name__} does not say how large its pictures are; give some: pictures=…")
        some = None if pictures is None else _floats(pictures, name)
        if some is not None and (some.ndim != 4 or len(some) == 0 or (shape and tuple(some.shape[1:]) != tuple(shape))):
            raise InputError(
                f"pictures are [picture channel height width]{'' if shape is None else f', each {list(shape)}'}, "
                f"got {list(some.shape)}"
            )
        return cls(name, network, found, some)

    @property
    def weight(self) -> Tensor:
        """The first parameter of the network."""
        return next((p for p in self.network.parameters() if p.is_floating_point()), torch.zeros(()))

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels, height and width of a picture."""
        return tuple(self.network.picture_shape if self.pictures is None else self.pictures.shape[1:])  # type: ignore[arg-type]

    @property
    def fillers(self) -> Mapping[str, Tensor]:
        """The "mean" patch of the known pictures, a patch of nothing but 0 ("mask"), and the vector "zero"."""
        version = version_of(self.network)  # trained on: embedded anew
        if version not in self._fillers:
            blank = self._patches(torch.zeros(1, *self.shape))
            known = {} if self.pictures is None else {"mean": self._patches(self.pictures)}
            self._fillers.clear()
            self._fillers[version] = {**known, "mask": blank, "zero": torch.zeros_like(blank)}
        return self._fillers[version]

    def example(self, given: Any, **options: Any) -> Example:
        """Read one picture: [channel height width], with a batch axis of 1, or [height width] of one channel."""
        if options:
            raise InputError(f"{self.name} reads one picture without options, got {list(options)}")
        pixels = _floats(given, self.name).to(self.weight)
        shape = (1, *self.shape)
        if tuple(pixels.shape) not in (shape, shape[1:], shape[2:] if shape[1] == 1 else shape):
            raise InputError(
                f"{self.name} reads one picture [channel height width] of {list(self.shape)}, got {list(pixels.shape)}"
            )
        return self._named(pixels.reshape(shape), given)

    def embed(self, example: Example) -> Float[Tensor, "token d_model"]:
        """Embeddings of the special tokens and of the patches."""
        if "pixel_values" not in example.inputs:
            raise InputError(f"{self.name} reads pictures (pixel_values), got {', '.join(example.inputs)}")
        return self._embedded(example.inputs["pixel_values"])[0]

    def probe(self, n_tokens: int) -> Example:
        """A picture of random grey."""
        return self.example(torch.rand(self.shape, generator=torch.Generator().manual_seed(0)))

    def _named(self, pixels: Tensor, given: Any) -> Example:
        n_tokens, grid = self._embedded(pixels).shape[1], getattr(self.network, "grid", None)
        special = self._special
        places = [f"{row},{column}" for row in range(grid[0]) for column in range(grid[1])] if grid else []
        if not grid:
            places = [f"position {index}" for index in range(n_tokens - len(special))]
        if len(special) + len(places) != n_tokens:
            raise InputError(
                f"{self.name}: {n_tokens} embeddings of a picture, but {len(special)} special tokens and "
                f"{len(places)} patches; let the network say grid and special_tokens as they are"
            )
        return Example(
            text=f"picture of {grid[0]} \N{MULTIPLICATION SIGN} {grid[1]} patches"
            if grid
            else f"picture of {n_tokens} positions",
            inputs={"pixel_values": pixels},
            tokens=(*special, *places),
            spans=(None,) * n_tokens,
            is_special=(*[True] * len(special), *[False] * len(places)),
            words=(*[None] * len(special), *range(len(places))),
            axis="patches" if grid else "positions",
            picture=given,
        )

    @property
    def _special(self) -> tuple[str, ...]:
        return tuple(getattr(self.network, "special_tokens", ()))

    def _patches(self, pictures: Tensor) -> Float[Tensor, " d_model"]:
        """The mean embedding of the patches of pictures, special tokens left out."""
        return self._embedded(pictures)[:, len(self._special) :].mean((0, 1))

    @torch.no_grad()
    def _embedded(self, pictures: Tensor) -> Float[Tensor, "picture token d_model"]:
        with evaluating(self.network), silent():
            found = self.embed_pictures(pictures.to(self.weight))
        if not isinstance(found, Tensor) or found.ndim != 3 or len(found) != len(pictures):
            got = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise InputError(f"{self.name}: embed gives [picture token d_model] of {len(pictures)} pictures, got {got}")
        return found


def _floats(given: Any, name: str) -> Tensor:
    """Pictures as a tensor of floats; whole numbers are refused, since nobody knows what they were divided by."""
    if not isinstance(given, Tensor | np.ndarray | list | tuple):
        raise InputError(f"{name} reads a picture as a tensor [channel height width], got {type(given).__name__}")
    pixels = torch.stack(list(given)) if _tensors(given) else torch.as_tensor(given)
    if not pixels.is_floating_point():
        kind = str(pixels.dtype).removeprefix("torch.")
        raise InputError(f"pixels are floats, on the scale that {name} was trained on, got {kind}")
    return pixels


def _tensors(given: Any) -> bool:
    return isinstance(given, list | tuple) and len(given) > 0 and all(isinstance(one, Tensor) for one in given)
