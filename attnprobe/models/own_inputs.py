"""What a network of ours reads: inputs become examples, examples become what the network is called with.

    words       network(embeddings, is_token)            `own_words.Words`
    pictures    network(embeddings, is_token)            `own_patches.Patches`
    sequences   network(embeddings, written, is_token)   `own_answers.Answers`

embeddings [batch token d_model], before positions are added, are what removal and gradients work on.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.errors import InputError
from attnprobe.example import Example


class Inputs(ABC):
    """The inputs of one network; `name` is the model's, for messages."""

    name: str
    network: nn.Module

    @property
    @abstractmethod
    def weight(self) -> Tensor:
        """A tensor of the embedding: its device and dtype are those of the inputs."""

    @property
    @abstractmethod
    def fillers(self) -> Mapping[str, Tensor]:
        """Embeddings [d_model] that can stand in for a removed token, by operator name, best first."""

    @abstractmethod
    def example(self, given: Any, **options: Any) -> Example:
        """Read one input; `InputError` for what the network does not read."""

    @abstractmethod
    def embed(self, example: Example) -> Float[Tensor, "token d_model"]:
        """The embeddings of the explained axis."""

    @abstractmethod
    def probe(self, n_tokens: int) -> Example:
        """A short input, of as many tokens where the network leaves the choice."""

    def beside(self, examples: Sequence[Example]) -> tuple[Tensor, ...]:
        """What the network is called with beside the embeddings of these examples."""
        return ()

    def check_length(self, length: int) -> None:
        """Refuse an input of another length than the network reads."""
        longest, fixed = getattr(self.network, "max_length", None), getattr(self.network, "fixed_length", None)
        if fixed is not None and length != fixed:
            raise InputError(f"{self.name} reads exactly {fixed} tokens, got {length}")
        if longest is not None and length > longest:
            raise InputError(f"the text has {length} tokens, {self.name} has {longest} positions; shorten it")
