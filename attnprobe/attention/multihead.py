"""Multi-head attention, self and cross, seen by the seam (Vaswani et al. 2017, section 3.2.2)."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.masks import to_visible, warn_blind_rows
from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.mechanisms.softmax import softmax_mix
from attnprobe.attention.positions import NONE, Positions, positions_of
from attnprobe.attention.scores import scaled_dot_product_attention
from attnprobe.attention.seam import observe, running
from attnprobe.errors import InputError
from attnprobe.site import SOFTMAX, Normalizer, Place, Site


def split_heads(x: Float[Tensor, "batch token width"], n_heads: int) -> Float[Tensor, "batch {n_heads} token d_head"]:
    """One slice of the width for each head: width = n_heads * d_head."""
    return x.unflatten(-1, (n_heads, -1)).transpose(1, 2)


def merge_heads(z: Float[Tensor, "batch head token d_head"]) -> Float[Tensor, "batch token width"]:
    """The heads side by side again; undoes `split_heads`."""
    return z.transpose(1, 2).flatten(2)


class MultiHeadAttention(nn.Module):
    """n_heads attentions side by side, each with its own projections: output = concat(z^1 … z^H) W_O + b_O.

    d_head: width of a query and key (default d_model / n_heads); d_value: width of a value (default d_head);
    d_context: width of what cross-attention looks at (default d_model); scale: default 1/sqrt(d_head). positions: a
    scheme that turns queries and keys or adds to their scores. mechanism: another way from query, key, value to z, by
    name (`attnprobe.attention.mechanisms`) or as a `Mechanism` with its options; default: the softmax of scaled scores.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_head: int | None = None,
        d_value: int | None = None,
        d_context: int | None = None,
        bias: bool = True,
        scale: float | None = None,
        normalizer: Normalizer = SOFTMAX,
        positions: Positions = NONE,
        mechanism: "str | Mechanism | None" = None,
    ) -> None:
        super().__init__()
        if mechanism is not None and (scale is not None or normalizer is not SOFTMAX):
            raise InputError("scale and normalizer go with the softmax; another mechanism has options of its own")
        self.positions = positions
        self.mechanism = None if mechanism is None else Mechanism.of(mechanism)
        if n_heads < 1 or (d_head is None and d_model % n_heads):
            raise InputError(
                f"d_model = {d_model} is not divisible by n_heads = {n_heads}; choose others or give d_head"
            )
        d_head = d_model // n_heads if d_head is None else d_head
        d_value = d_head if d_value is None else d_value
        d_context = d_model if d_context is None else d_context
        self.n_heads, self.d_head, self.d_value, self.scale, self.normalizer = (
            n_heads,
            d_head,
            d_value,
            scale,
            normalizer,
        )
        self.query = nn.Linear(d_model, n_heads * d_head, bias=bias)
        self.key = nn.Linear(d_context, n_heads * d_head, bias=bias)
        self.value = nn.Linear(d_context, n_heads * d_value, bias=bias)
        self.output = nn.Linear(n_heads * d_value, d_model, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        context: Float[Tensor, "batch key d_context"] | None = None,
        *,
        visible: Tensor | None = None,
        score_bias: Tensor | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """Every token of x looks at x itself, or at `context` (cross-attention).

        visible: boolean, True = may look, [query key], [batch query key] or [batch head query key].
        score_bias: added to the scores, broadcast to [batch head query key]; the scale does not touch it.
        A query that may look at nothing gets z = 0 (its output is b_O) and a `BlindRowsWarning`.
        """
        source = x if context is None else context
        query, key, value = (
            split_heads(projection(tokens), self.n_heads)
            for projection, tokens in ((self.query, x), (self.key, source), (self.value, source))
        )
        if self.positions.rotate is not None:
            places = positions_of(x.shape[1], source.shape[1], device=x.device)
            query, key = self.positions.rotate(query, places), self.positions.rotate(key, None)
        if self.positions.bias is not None:
            bias = self.positions.bias(x.shape[1], source.shape[1]).to(query)
            score_bias = bias if score_bias is None else score_bias + bias
        mask = to_visible(visible, (x.shape[0], self.n_heads, x.shape[1], source.shape[1]))
        warn_blind_rows(mask)
        z = observe(
            self,
            lambda place: self._site(place, query, key, value, mask, score_bias),
            cross=context is not None,
            fallback=lambda: self._mixed(query, key, value, mask, score_bias),
        )
        return self.output(merge_heads(z))

    def _site(
        self, place: Place, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Site:
        """What somebody asked to see. z is the one of `_mixed`, so that looking changes nothing."""
        if self.mechanism is not None:
            return self.mechanism.site(place, query, key, value, mask, bias)
        scores, weights, z = scaled_dot_product_attention(
            query, key, value, visible=mask, bias=bias, scale=self.scale, normalizer=self.normalizer
        )
        tape = running()
        if tape is None or not tape.differentiable:  # gradients reach the weights where z is made of them
            z = self._mixed(query, key, value, mask, bias)
        return Site(place, query, key, value, scores, weights, z, mask, self.normalizer)

    def _mixed(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Float[Tensor, "batch head query d_value"]:
        """z alone, the fastest way."""
        if self.mechanism is not None:
            return self.mechanism.z(query, key, value, mask, bias)
        if self.normalizer is SOFTMAX and bias is None:
            scale = query.shape[-1] ** -0.5 if self.scale is None else self.scale
            return softmax_mix(query, key, value, scale, mask)
        return scaled_dot_product_attention(
            query, key, value, visible=mask, bias=bias, scale=self.scale, normalizer=self.normalizer
        ).z

    def head_outputs(self, z: Float[Tensor, "batch head query d_value"]) -> Float[Tensor, "batch head query d_model"]:
        """What each head adds to the output: z^h W_O^h; their sum plus b_O is the output."""
        per_head = self.output.weight.unflatten(1, (self.n_heads, self.d_value))
        return torch.einsum("bhqv,mhv->bhqm", z, per_head)
