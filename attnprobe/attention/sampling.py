"""Hard attention by chance: one key is drawn, and gradients are estimated (Xu et al. 2015, section 4.1).

alpha = softmax(scores)     s ~ alpha     o = v_s: the weights are one-hot at s
REINFORCE         grad E[R(s)] = E[ grad R(s) + (R(s) - b) grad log alpha_s ]     unbiased for every baseline b
straight-through  forward one-hot, backward softmax                               biased unless R is linear in o
Gumbel-softmax    softmax((scores + g) / T), g = -log(-log u), u uniform          Jang et al. 2017; argmax ~ alpha

All [*batch query key] over the last axis; a row that may look at nothing (all scores -inf) gives zeros.
The normalizers `sampled` and `gumbel` draw once for all batch rows of [batch head query key], so that a row of a batch
is drawn as it would be alone, and rows under different edits are compared under the same chance.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.normalizers import above_zero, one_hot, straight_through
from attnprobe.errors import NumericsError
from attnprobe.site import Normalizer
from attnprobe.site import softmax as softmax_over_keys


class Drawn(NamedTuple):
    """Where a query might have looked, where it did, and how likely that was (0 in log where it sees nothing)."""

    probabilities: Float[Tensor, "*batch query key"]
    sample: Float[Tensor, "*batch query key"]
    log_probability: Float[Tensor, "*batch query"]


def draw(scores: Float[Tensor, "*batch query key"], *, generator: torch.Generator | None = None) -> Drawn:
    """One key a query, drawn from softmax(scores). The sample carries no gradient; `reinforce` makes one.

    >>> draw(torch.tensor([[-torch.inf, 1.0]])).sample.tolist()
    [[0.0, 1.0]]
    """
    if bool(scores.isnan().any()):
        raise NumericsError(f"{int(scores.isnan().any(-1).sum())} queries have a score that is NaN; none can be drawn")
    probabilities = softmax_over_keys(scores)
    blind = torch.isneginf(scores).all(-1)
    odds = probabilities.detach().masked_fill(blind[..., None], 1.0)
    index = torch.multinomial(odds.flatten(0, -2), 1, generator=generator).view(blind.shape)
    chosen = probabilities.gather(-1, index[..., None])[..., 0]
    return Drawn(probabilities, one_hot(index, scores), chosen.masked_fill(blind, 1.0).log())


def reinforce(
    reward: Float[Tensor, " *draw"], log_probability: Float[Tensor, " *draw"], baseline: Tensor | float = 0.0
) -> Float[Tensor, " *draw"]:
    """The reward, with a gradient whose mean over draws is the gradient of the expected reward.

    log_probability: of all that was drawn for this reward, summed over queries. baseline: anything that does not depend
    on the draw; near the mean reward it makes the estimate less noisy.
    """
    advantage = (reward - baseline).detach()
    return reward + advantage * (log_probability - log_probability.detach())


def gumbel_softmax(
    scores: Float[Tensor, "*batch query key"],
    *,
    temperature: float = 1.0,
    hard: bool = False,
    generator: torch.Generator | None = None,
) -> Float[Tensor, "*batch query key"]:
    """A draw made soft, one-hot in the limit of temperature 0. hard: one-hot, with the gradient of the soft draw."""
    return _noised(scores, _gumbel_noise(scores, scores.shape, generator), temperature, hard)


def _gumbel_noise(
    scores: Tensor, shape: Sequence[int], generator: torch.Generator | None
) -> Float[Tensor, "*batch query key"]:
    """g = -log(-log u) of this shape, in float32 at least: half precision is too coarse near 0."""
    dtype = torch.promote_types(scores.dtype, torch.float32)
    uniform = torch.rand(shape, generator=generator, device=scores.device, dtype=dtype)
    return -(-uniform.clamp(min=torch.finfo(dtype).tiny).log()).log()


def _noised(scores: Tensor, noise: Tensor, temperature: float, hard: bool) -> Float[Tensor, "*batch query key"]:
    """Softmax of scores with noise; hard: one-hot at the largest, with softmax's gradient."""
    noisy = scores + noise
    soft = softmax_over_keys(noisy / above_zero(temperature)).to(scores.dtype)
    return straight_through(one_hot(noisy.argmax(-1), scores), soft) if hard else soft


def sampled(seed: int) -> Normalizer:
    """A normalizer that draws one key a query. One seed, one draw: an edit is compared under the same chance.

    Drawn as the largest of the scores with Gumbel noise, so an edit that moves scores a little seldom moves the draw.
    """

    def weigh(scores: Tensor) -> Tensor:
        return one_hot((scores.detach() + _shared_noise(scores, seed)).argmax(-1), scores)

    return Normalizer("sampled", weigh)


def gumbel(seed: int, *, temperature: float = 1.0, hard: bool = False) -> Normalizer:
    """`gumbel_softmax` as a normalizer. One seed, one noise: an edit is compared under the same chance."""

    def weigh(scores: Tensor) -> Tensor:
        return _noised(scores, _shared_noise(scores, seed), temperature, hard)

    return Normalizer("gumbel_softmax", weigh)


def _shared_noise(scores: Tensor, seed: int) -> Tensor:
    """Noise for the heads, queries and keys of one batch row, the same for all of them."""
    generator = torch.Generator(scores.device).manual_seed(seed)
    return _gumbel_noise(scores, scores.shape[-3:], generator)
