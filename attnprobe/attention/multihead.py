"""Multi-head attention, self and cross, seen by the seam (Vaswani et al. 2017, section 3.2.2)."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.attention.masks import fitting_bias, to_visible, warn_blind_rows
from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.mechanisms.softmax import softmax_mix
from attnprobe.attention.normalizers import get_normalizer
from attnprobe.attention.positions import NONE, Positions, positions_of
from attnprobe.attention.positions.named import as_positions
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


def _inside(positions: Positions) -> Positions:
    """The scheme, or an `InputError` for one that attention could only leave out."""
    if positions.inside is not positions:
        raise InputError(
            f"positions '{positions.name}' are added to the embeddings, before attention: x = positions.embed(x); "
            "attention itself takes those that turn queries and keys or add to scores (rotary, t5, alibi)"
        )
    return positions


class MultiHeadAttention(nn.Module):
    """n_heads attentions side by side, each with its own projections: output = concat(z^1 … z^H) W_O + b_O.

    d_head: width of a query and key (default d_model / n_heads); d_value: width of a value (default d_head);
    d_context: width of what cross-attention looks at (default d_model); scale: default 1/sqrt(d_head). normalizer: by
    name too ("sparsemax"). positions: a scheme that turns queries and keys or adds to their scores, by name too
    ("rotary"). mechanism: another way from query, key, value to z, by name (`attnprobe.attention.mechanisms`) or as a
    `Mechanism` with its options; default: the softmax of scaled scores. Where a mechanism's keys are its queries
    (`lsh`) there is no projection of keys, and no cross-attention. cross: whether it will only look at a context.
    Errors: `InputError` for what does not go together.
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
        normalizer: Normalizer | str = SOFTMAX,
        positions: Positions | str = NONE,
        mechanism: "str | Mechanism | None" = None,
        cross: bool = False,
    ) -> None:
        super().__init__()
        if n_heads < 1 or (d_head is None and d_model % n_heads) or 0 in (d_head, d_value):
            raise InputError(
                f"d_model = {d_model} is not divisible by n_heads = {n_heads}; choose others or give d_head"
            )
        self.normalizer = get_normalizer(normalizer) if isinstance(normalizer, str) else normalizer
        if mechanism is not None and (scale is not None or self.normalizer is not SOFTMAX):
            raise InputError("scale and normalizer go with the softmax; another mechanism has options of its own")
        self.positions = _inside(as_positions(positions, n_heads=n_heads, d_model=d_model))
        self._mechanism = None if mechanism is None else Mechanism.of(mechanism)
        self._hold_tensors()
        self.n_heads, self.scale = n_heads, scale
        self.d_head = d_model // n_heads if d_head is None else d_head
        self.d_value = self.d_head if d_value is None else d_value
        if self._shared and (cross or d_context is not None):
            raise InputError(f"in {self._mechanism} keys are the queries, so there is no cross-attention")
        d_context = d_model if d_context is None else d_context
        self.query = nn.Linear(d_model, n_heads * self.d_head, bias=bias)
        self.key = None if self._shared else nn.Linear(d_context, n_heads * self.d_head, bias=bias)
        self.value = nn.Linear(d_context, n_heads * self.d_value, bias=bias)
        self.output = nn.Linear(n_heads * self.d_value, d_model, bias=bias)

    @property
    def mechanism(self) -> Mechanism | None:
        """The mechanism; tensors among its options (E of linformer) are those of this module, on its device."""
        if self._mechanism is None:
            return None
        options = self._mechanism.options
        held = {name: getattr(self, f"mechanism_{name}") for name in options if isinstance(options[name], Tensor)}
        return replace(self._mechanism, options={**options, **held})

    def _hold_tensors(self) -> None:
        """Tensors among the options become this module's: parameters where they are learned, else buffers."""
        for name, option in () if self._mechanism is None else self._mechanism.options.items():
            if isinstance(option, nn.Parameter):
                self.register_parameter(f"mechanism_{name}", option)
            elif isinstance(option, Tensor):
                self.register_buffer(f"mechanism_{name}", option.clone())

    def extra_repr(self) -> str:
        """What is not among the parts: heads, widths, mechanism or normalizer, positions."""
        how = f"mechanism={self._mechanism}" if self._mechanism else f"normalizer='{self.normalizer.name}'"
        where = "" if self.positions.name == "none" else f", positions='{self.positions.name}'"
        return f"n_heads={self.n_heads}, d_head={self.d_head}, d_value={self.d_value}, {how}{where}"

    @property
    def _shared(self) -> bool:
        return self._mechanism is not None and bool(self._mechanism.entry.facts.get("shared"))

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
        score_bias: added to the scores, [query key] or [batch head query key] with 1 where all share it; the scale does
        not touch it.
        A query that may look at nothing gets z = 0 (its output is b_O) and a `BlindRowsWarning`.
        """
        source = self._source(x, context)
        query, value = (split_heads(p(tokens), self.n_heads) for p, tokens in ((self.query, x), (self.value, source)))
        key = query if self.key is None else split_heads(self.key(source), self.n_heads)
        shape = (x.shape[0], self.n_heads, x.shape[1], source.shape[1])
        if self.positions.rotate is not None:
            places = positions_of(x.shape[1], source.shape[1], device=x.device)
            query, key = self.positions.rotate(query, places), self.positions.rotate(key, None)
        bias = self._bias(score_bias, shape, query)
        mask = to_visible(visible, shape)
        warn_blind_rows(mask)
        z = observe(
            self,
            lambda place: self._site(place, query, key, value, mask, bias),
            cross=context is not None,
            fallback=lambda: self._mixed(query, key, value, mask, bias),
        )
        return self.output(merge_heads(z))

    def _source(self, x: Tensor, context: Tensor | None) -> Tensor:
        """What is looked at; `InputError` for inputs without a batch axis, and for a context that cannot be."""
        for name, given in (("x", x), ("context", context)):
            if given is not None and given.ndim != 3:
                raise InputError(
                    f"attention reads {name} [batch token width], got {tuple(given.shape)}; add {name}[None]"
                )
        if context is not None and self.key is None:
            raise InputError(f"in {self._mechanism} keys are the queries, so there is no cross-attention")
        return x if context is None else context

    def _bias(self, given: Tensor | None, shape: tuple[int, int, int, int], query: Tensor) -> Tensor | None:
        """What is added to the scores: the caller's bias, and that of the positions, which is one a head."""
        given = fitting_bias(given, shape)
        if self.positions.bias is None:
            return given
        own = self.positions.bias(*shape[2:]).to(query)
        if own.shape != shape[1:]:
            raise InputError(
                f"positions '{self.positions.name}' were made for {own.shape[0]} heads, this attention has "
                f"{self.n_heads}; make them anew"
            )
        return own[None] if given is None else given + own

    def _site(
        self, place: Place, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Site:
        """What somebody asked to see. z is the one of `_mixed`, so that looking changes nothing."""
        tape = running()
        of_weights = tape is not None and tape.differentiable  # gradients reach the weights where z is made of them
        if (mechanism := self.mechanism) is not None:
            mechanism, seen = mechanism.under(mask, query.shape[-2], key.shape[-2])
            site = replace(mechanism.site(place, query, key, value, seen, bias), visible=mask)
            return replace(site, z=site.need("weights") @ value) if of_weights else site
        scores, weights, z = scaled_dot_product_attention(
            query, key, value, visible=mask, bias=bias, scale=self.scale, normalizer=self.normalizer
        )
        if not of_weights:
            z = self._mixed(query, key, value, mask, bias)
        return Site(place, query, key, value, scores, weights, z, mask, self.normalizer)

    def _mixed(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None
    ) -> Float[Tensor, "batch head query d_value"]:
        """z alone, the fastest way."""
        if (mechanism := self.mechanism) is not None:
            mechanism, seen = mechanism.under(mask, query.shape[-2], key.shape[-2])
            return mechanism.z(query, key, value, seen, bias)
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
