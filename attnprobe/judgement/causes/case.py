"""One prediction and what has been measured of it, each measured once however many causes ask."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.attention.seam import Edit, Keep
from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.judgement.effects import Effects, unit_effects
from attnprobe.judgement.resampling import source_of
from attnprobe.methods.mixing import visible_keys
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model, Stack
from attnprobe.models.projections import Projection, projections
from attnprobe.models.reading import explained_stack, read_rows
from attnprobe.models.removal import units
from attnprobe.models.rows import FILLING, FIXED, VALUE_ZERO, Row, StandIns, filler
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget

# A unit has an effect from this share of the largest on, and none below that one.
EFFECTIVE, IDLE = 0.3, 0.1
# Units whose pairs are looked at, the strongest first.
MOST_UNITS = 6
N_DRAWS = 24
# Orders in which values are zeroed where nobody did so before: beside zeroing each token alone, few are enough.
VALUE_ORDERS = 4
# Divided by instead of 0.
NOTHING = 1e-30


@dataclass(frozen=True, eq=False)
class Removals:
    """What removal says of one prediction.

    scores: a map [token]. effects: by operator. data: texts to resample from.
    """

    model: Model
    example: Example
    target: ResolvedTarget
    scores: Float[Tensor, " token"]
    effects: tuple[Effects, ...]
    data: Sequence[Any] | None = None
    seed: int = 0

    @cached_property
    def units(self) -> Int[Tensor, " unit"]:
        """Tokens that may be taken away."""
        return units(self.example, self.target)

    @property
    def content(self) -> tuple[Effects, ...]:
        """Effects under operators that leave the key in the softmax."""
        return tuple(e for e in self.effects if e.operator in FILLING)

    @cached_property
    def relative(self) -> Float[Tensor, "operator token"]:
        """Effects as shares of the largest, by content operator; 0 for what is no unit."""
        return torch.stack([self.on_tokens(e, e.relative) for e in self.content])

    @property
    def lead(self) -> Effects:
        """The operator that tokens are weighed by: "resample" where it is there, else the first of content.

        What other inputs have at a place is what a model may meet there; one embedding in every place is not, and
        several of them together may act where no token does.
        """
        return next((e for e in self.content if e.operator == "resample"), self.content[0])

    @cached_property
    def effective(self) -> list[int]:
        """The tokens that have an effect under the leading operator, the strongest first."""
        strength = self.on_tokens(self.lead, self.lead.relative)
        order = strength.argsort(descending=True, stable=True).tolist()
        return [token for token in order if float(strength[token]) >= EFFECTIVE]

    @cached_property
    def strength(self) -> Float[Tensor, " effective"]:
        """What each effective token does, mean over random orders, in target units."""
        return self.on_tokens(self.lead, self.lead.values)[self.effective].clamp(min=NOTHING)

    @cached_property
    def value_effects(self) -> Float[Tensor, " token"]:
        """Effect of zeroing each token's values in all layers, as a share of the largest effect of any content.

        The mean over random orders, or alone, whichever is larger: of a chain each link breaks it, and over random
        orders they share what one alone would do.
        """
        given = [e for e in self.effects if e.operator == VALUE_ZERO]
        found = given[0] if given else self._ask_value_effects()
        gone = [self._kept([int(j)]) for j in found.units]
        rows = [Row(self.example), *[Row(self.example, kept=kept, operator=VALUE_ZERO) for kept in gone]]
        answers = targets(self.model, rows, self.target).double()
        effect = torch.maximum(found.values.double(), (answers[1:] - answers[0]).abs())
        return self.on_tokens(found, effect / float(self.lead.values.max()) if self.lead.act else effect * 0)

    def _ask_value_effects(self) -> Effects:
        return unit_effects(
            self.model, self.example, self.target, VALUE_ZERO, n_orders=VALUE_ORDERS, seed=self.seed, tolerance=None
        )

    def on_tokens(self, effects: Effects, values: Float[Tensor, " unit"]) -> Float[Tensor, " token"]:
        """Numbers of units at their tokens, 0 elsewhere."""
        found = torch.zeros(self.example.n_tokens, dtype=torch.float64)
        found[effects.units] = values.double()
        return found

    def without(self, sets: Sequence[Sequence[int]], edits: tuple[Edit, ...] = ()) -> Float[Tensor, "draw set"]:
        """The target without each set of tokens, under the leading operator; a draw has one stand-in a token.

        Errors: `InputError` for an operator that draws in the company of others ("infill").
        """
        kept = [self._kept(tokens) for tokens in sets]
        rows = [
            Row(self.example, kept=one, operator=self.lead.operator, stand_ins=draw, edits=edits)
            for draw in self._draws
            for one in kept
        ]
        answers = targets(self.model, rows, self.target, progress="causes").double()
        return answers.reshape(len(self._draws), len(sets))

    def stand_ins(self) -> list[Float[Tensor, "#token d_model"]]:
        """For each draw, what stands in for each token under the leading operator."""
        return [
            filler(self.model.fillers, self.lead.operator, self.model.name).expand(self.example.n_tokens, -1)
            if draw is None
            else draw.vectors
            for draw in self._draws
        ]

    @cached_property
    def _draws(self) -> list[StandIns | None]:
        """Draws of what stands in; None for the one embedding of an operator that does not draw."""
        if self.lead.operator in FIXED:
            return [None]
        if self.lead.operator != "resample":
            raise InputError(
                f"pairs of tokens are not looked at under '{self.lead.operator}'; use 'mean' or 'resample'"
            )
        source = source_of(self.model, self.example, self.units, self.data)
        return list(source.draws(N_DRAWS, torch.Generator().manual_seed(self.seed)))

    def _kept(self, tokens: Sequence[int]) -> Bool[Tensor, " token"]:
        kept = torch.ones(self.example.n_tokens, dtype=torch.bool)
        kept[list(tokens)] = False
        return kept


@dataclass(frozen=True, eq=False)
class Case(Removals):
    """One prediction with what removal says of it, and its attention: weights, values and what heads write."""

    @cached_property
    def stack(self) -> Stack:
        """The stack whose keys are the explained tokens."""
        return explained_stack(self.model, self.example)

    @cached_property
    def read(self) -> list[int]:
        """The positions that the answer is read from."""
        return read_rows(self.model, self.example, self.target, self.stack.kind).tolist()

    @cached_property
    def sites(self) -> list[Site]:
        """Weights and values of each layer of the explained stack; `CaptureError` where parts of a layer lie apart."""
        keep = Keep.of("weights", "value", stack=self.stack.name, kind=self.stack.kind)
        found = self.model.capture(self.example, keep=keep).select(self.stack.name, self.stack.kind)
        if len(found) != self.stack.n_layers or any(s.n_parts > 1 or s.place.part for s in found):
            raise CaptureError(f"{self.model.name} keeps parts of a layer apart, so there is no weight on each token")
        return found

    @cached_property
    def projections(self) -> tuple[Projection, ...] | None:
        """W_O of each layer; None where one was not found, and the values are taken as they are."""
        try:
            found = projections(self.model, self.stack.name, self.stack.kind)
            for projection in found:
                projection.need("W_O")
        except CaptureError:
            return None
        return found

    def written(self, layer: int, value: Float[Tensor, "*row head key d_value"]) -> Float[Tensor, "*row head key d"]:
        """f(x) = v W_O: what each head would write for each key, in float64 on the CPU."""
        known = self.projections
        return (value if known is None else known[layer].transformed(value)).detach().double().cpu()

    def attention(self, layer: int) -> Float[Tensor, "head query key"]:
        """Weights of a layer, in float64 on the CPU."""
        return self.sites[layer].need("weights")[0].double().cpu()

    def lengths(self, layer: int) -> Float[Tensor, "head key"]:
        """|f(x_j)| of each head."""
        return self.written(layer, self.sites[layer].need("value")[0]).norm(dim=-1)

    def even(self, layer: int) -> Float[Tensor, "head query key"]:
        """Equal weights on what each query may look at."""
        seen = visible_keys(self.sites[layer]).cpu().double()
        return seen / seen.sum(-1, keepdim=True).clamp(min=1)
