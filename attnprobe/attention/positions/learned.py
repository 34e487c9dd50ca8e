"""Learned positions (Gehring et al. 2017; BERT, GPT-2): one trained row a position, added to the embeddings.

x_p + P[p]        P [max_length d_model], parameters

Nothing relates neighbouring rows but training, and there is no row after the last: a longer input is an error, never
a repeated or a wrapped position.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.positions import Positions, at_least
from attnprobe.errors import InputError


class LearnedPositions(nn.Module):
    """The table P, drawn from a normal distribution of the given spread (BERT and GPT-2: 0.02)."""

    def __init__(self, max_length: int, d_model: int, *, spread: float = 0.02) -> None:
        super().__init__()
        at_least("max_length", max_length, 1)
        at_least("d_model", d_model, 1)
        self.weight = nn.Parameter(spread * torch.randn(max_length, d_model))

    @property
    def max_length(self) -> int:
        """How many positions there are."""
        return self.weight.shape[0]

    def forward(self, n_tokens: int, start: int = 0) -> Float[Tensor, "token d_model"]:
        """The rows of positions start to start + n_tokens − 1; `InputError` beyond the last."""
        at_least("n_tokens", n_tokens, 1)
        at_least("start", start, 0)
        if start + n_tokens > self.max_length:
            raise InputError(
                f"positions 0 to {self.max_length - 1} were learned, got position {start + n_tokens - 1}; "
                "shorten the input, or use a scheme without an end (sinusoidal, alibi, rotary)"
            )
        return self.weight[start : start + n_tokens]


def learned(max_length: int, d_model: int) -> Positions:
    """The scheme: a new table added to embeddings; its parameters are those of the scheme."""
    return Positions("learned", table=LearnedPositions(max_length, d_model))
