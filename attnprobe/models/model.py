"""Model: what every model offers, ours or anybody's; a question needs nothing more."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.seam import Edit, Keep, Tape
from attnprobe.capture import Capture
from attnprobe.example import Example
from attnprobe.models.rows import Row
from attnprobe.site import TENSORS, Kind, Site
from attnprobe.target import Outputs, ResolvedTarget, as_target


@dataclass(frozen=True)
class Stack:
    """Layers of attention that are numbered together; every tuple has an entry a layer.

    n_heads: query heads; n_kv_heads: keys and values that they share; n_parts: images, windows or blocks that a layer
    keeps apart on the input that was looked at; paths: of the attention modules; routes: how they are reached; missing:
    tensors that cannot be seen there (query and key of some, scores).
    """

    name: str
    kind: Kind
    n_heads: tuple[int, ...]
    paths: tuple[str, ...]
    n_kv_heads: tuple[int, ...] = ()
    n_parts: tuple[int, ...] = ()
    routes: tuple[str, ...] = ()
    missing: tuple[tuple[str, ...], ...] = ()

    @property
    def n_layers(self) -> int:
        """Number of layers (calls, where a layer is shared)."""
        return len(self.n_heads)

    @classmethod
    def of_pass(cls, tape: Tape) -> "tuple[Stack, ...]":
        """The stacks that a pass showed whose tape kept `facts_of` each site."""
        layers: dict[tuple[str, Kind], dict[int, dict[str, Any]]] = {}
        for place, facts in tape.reduced:
            layer = layers.setdefault((place.stack, place.kind), {}).setdefault(place.layer, {"n_parts": 0})
            layer["n_parts"] += int(facts["n_parts"])
            layer.setdefault("place", place)
            layer.update({name: value for name, value in facts.items() if name != "n_parts"})
        return tuple(cls._of_layers(name, kind, list(found.values())) for (name, kind), found in layers.items())

    @classmethod
    def _of_layers(cls, name: str, kind: Kind, layers: list[dict[str, Any]]) -> "Stack":
        found = [list(zip(TENSORS, layer["present"].tolist(), strict=True)) for layer in layers]
        return cls(
            name,
            kind,
            n_heads=tuple(int(layer["n_heads"]) for layer in layers),
            paths=tuple(layer["place"].path for layer in layers),
            n_kv_heads=tuple(int(layer["n_kv_heads"]) for layer in layers),
            n_parts=tuple(layer["n_parts"] for layer in layers),
            routes=tuple(layer["place"].route for layer in layers),
            missing=tuple(tuple(name for name, there in layer if not there) for layer in found),
        )


def facts_of(site: Site) -> dict[str, Tensor]:
    """What `Stack` wants to know of a site."""
    return {
        "n_heads": torch.tensor(site.n_heads),
        "n_kv_heads": torch.tensor(site.n_kv_heads or site.n_heads),
        "n_parts": torch.tensor(site.n_parts),
        "present": torch.tensor([getattr(site, name) is not None for name in TENSORS]),
    }


class Model(ABC):
    """A model whose attention can be seen and changed; its parameters are never touched."""

    name: str
    module: nn.Module
    outputs: Outputs
    unseen: tuple[str, ...] = ()  # paths of attention that ran outside of the seam
    blank: tuple[str, ...] = ()  # paths of modules that call themselves attention and showed no weights when they ran
    mapless: tuple[Any, ...] = ()  # layers that mix positions without attention weights, each with its reason

    @property
    @abstractmethod
    def stacks(self) -> tuple[Stack, ...]:
        """Stacks of attention with their layers and heads."""

    @property
    @abstractmethod
    def fillers(self) -> Mapping[str, Tensor]:
        """Embeddings [d_model] that can stand in for a removed token, by operator name, best first."""

    @abstractmethod
    def example(self, text: Any, pair: str | None = None, **options: Any) -> Example:
        """Read one input as this model does."""

    @abstractmethod
    def embed(self, example: Example) -> Float[Tensor, "token d_model"]:
        """The embeddings that removal and gradients work on, before positions are added."""

    @abstractmethod
    def forward(self, rows: Sequence[Row], tape: Tape | None = None) -> Float[Tensor, " row *rest"]:
        """Logits of rows of one length. Without a tape this is the model as if attnprobe were not there."""

    @abstractmethod
    def listening(self, tape: Tape) -> AbstractContextManager[Tape]:
        """Within the block, attention that runs in `module` (or a part of it) passes the tape."""

    def describe(self) -> dict[str, Any]:
        """Facts for reports: name, type, dtype, number of parameters."""
        return {"name": self.name}

    def capture(
        self,
        example: Example,
        *,
        edits: Sequence[Edit] = (),
        keep: Keep | None = None,
        check: str = "once",
        differentiable: bool = False,
    ) -> Capture:
        """One forward pass with its attention on record; see `attnprobe.models.capturing.capture`."""
        from attnprobe.models.capturing import capture

        return capture(self, example, edits=edits, keep=keep or Keep(), check=check, differentiable=differentiable)

    def resolve(self, example: Example, target: Any = None) -> ResolvedTarget:
        """A `Target`, or a label by name or number, with every choice made on this input: one forward pass."""
        from attnprobe.models.evaluator import logits

        answer = logits(self, [Row(example)])
        return as_target(target).resolve(answer, self.outputs, example)

    def targets(
        self, rows: Sequence[Row], target: ResolvedTarget, *, progress: str | None = None
    ) -> Float[Tensor, " row"]:
        """The explained number of each row, through the evaluator; no gradients."""
        from attnprobe.models.evaluator import targets

        return targets(self, rows, target, progress=progress)
