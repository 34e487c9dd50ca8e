"""One layer at a time: the vectors that each token writes into each other one, with the residual and the norm.

Within a layer every token is the only source of its own position. Behind the attention, state i is a sum of vectors
u_ij, one a token, and of constants (biases). A feed-forward part and its bias are constants here, as GlobEnc has it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from attnprobe.errors import InputError, NumericsError
from attnprobe.example import Example
from attnprobe.models.evaluator import count
from attnprobe.models.model import Model
from attnprobe.models.reading import explained_stack
from attnprobe.models.rows import Row
from attnprobe.models.vectors.calls import Call
from attnprobe.models.vectors.following import Follower
from attnprobe.models.vectors.parts import Carried
from attnprobe.models.vectors.rules import Passed
from attnprobe.models.vectors.whole import follower_of, refuse_unrun

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class LayerVectors:
    """One layer: what each source writes into each position, behind the attention and behind the whole layer.

    attended: behind the attention, the residual and the norm that follows the two (post-LN; `normed`), or without a
    norm where the sum itself goes on (pre-LN). result: the state there, constants included, without the output of a
    feed-forward part that was added before (parallel blocks). passed_on and output: the same behind the layer, its
    feed-forward part counted as a constant.
    """

    path: str
    normed: bool
    attended: Float[Tensor, "query source d_model"]
    result: Float[Tensor, "query d_model"]
    passed_on: Float[Tensor, "query source d_model"]
    output: Float[Tensor, "query d_model"]


def through_layers(model: Model, example: Example, reduce: Callable[[LayerVectors], T]) -> list[T]:
    """`reduce` of every layer of the explained self-attention stack, in one pass.

    Errors: `InputError` where a layer adds its attention to nothing that goes past it, or in a way that is not
    followed; `NumericsError` where vectors and constants do not add up to the model's own states.
    """
    stack = explained_stack(model, example, "self")
    follower = follower_of(model, example, stack, _Layers, each=True, bent="aside", constants="own")
    try:
        return _run(model, example, follower, reduce)
    except NumericsError:
        _run(model, example, replace(follower, checking=True), reduce)  # names the first module
        raise


def _run(model: Model, example: Example, follower: Follower, reduce: Callable[[LayerVectors], T]) -> list[T]:
    found: list[T] = []
    if isinstance(follower, _Layers):
        follower.given = lambda layer: found.append(reduce(layer))
    count(forward=example.n_tokens + 1)
    with torch.no_grad(), follower.watching():
        model.forward([Row(example)])
    refuse_unrun(model, follower)
    return found


def mixing_ratio(vectors: Float[Tensor, "query source d_model"]) -> Float[Tensor, " query"]:
    """How much of each state comes from other tokens, 0 to 1: |Σ_{j≠i} u_ij| against |u_ii| (Kobayashi et al. 2021).

    >>> mixing_ratio(torch.tensor([[[3.0], [1.0]], [[0.0], [2.0]]])).tolist()
    [0.25, 0.0]
    """
    index = torch.arange(len(vectors), device=vectors.device)
    own = vectors[index, index]
    others = (vectors.sum(1) - own).norm(dim=-1)
    total = others + own.norm(dim=-1)
    return others / total.where(total > 0, 1.0)


def mixing_ratios(model: Model, example: Example) -> list[Float[Tensor, " query"]]:
    """The mixing ratio of every token in every layer, behind attention, residual and the norm that follows."""
    return through_layers(model, example, lambda layer: mixing_ratio(layer.attended))


@dataclass(eq=False)
class _Place:
    """A state of a layer: the tensor, what is known of its parts, its numbers as they were, and those of them that
    came from a feed-forward part beside the attention.
    """

    tensor: Tensor
    entry: Carried
    numbers: Tensor
    beside: Tensor | None = None

    @classmethod
    def of(cls, tensor: Tensor, entry: Carried, beside: Tensor | None = None) -> "_Place":
        return cls(tensor, entry, tensor.detach().clone(), beside)


@dataclass(eq=False)
class _Layers(Follower):
    """A follower that starts anew in every layer and finds where the attention is added to what goes past it."""

    given: Callable[[LayerVectors], None] = field(default=lambda layer: None)

    def begin_layer(self, states: Tensor) -> None:
        self._states = states
        self._sum: _Place | None = None  # attention and residual added
        self._normed: _Place | None = None  # a norm of that sum
        self._goes_on = False  # whether the sum is also used without the norm
        self._beside = WeakTensorKeyDictionary()  # how much of a tensor came from a feed-forward part

    def called(self, call: Call, rule: Passed, outputs: list[Tensor]) -> None:
        if self._sum is None:
            self._note_beside(call, rule, outputs)
            if self._adds(call, rule, outputs):
                beside = self._beside.get(outputs[0])
                self._sum = _Place.of(outputs[0], self.need(outputs[0], self.path), beside)
        elif any(leaf is self._sum.tensor for leaf in call.given):
            if rule.kind == "norm":
                self.normed(self._sum.tensor, outputs[0])
            else:
                self._goes_on = True

    def _adds(self, call: Call, rule: Passed, outputs: list[Tensor]) -> bool:
        """Whether a call adds what came through the attention to what did not, and that is more than constants."""
        entries = [call.carried[index] for index in rule.sources]
        if rule.kind != "affine" or rule.lost or len(entries) != 2 or outputs[0].shape != self._states.shape:
            return False
        past = [entry for entry in entries if not entry.mixed]
        return len(past) == 1 and bool(past[0].parts()[:-1].any())

    def _note_beside(self, call: Call, rule: Passed, outputs: list[Tensor]) -> None:
        """How much of a sum is the output of a feed-forward part: a summand all of which is set aside as a constant.

        Parallel blocks add attention, feed-forward part and states in any order; behind the attention is without it.
        """
        if rule.kind != "affine" or rule.lost or len(outputs) != 1:
            return
        share = {i: self._beside[call.given[i]] for i in rule.sources if call.given[i] in self._beside}
        if len(rule.sources) == 2 and outputs[0].shape == self._states.shape:
            alone = (i for i in rule.sources if not call.carried[i].mixed and i not in share)
            share |= {i: call.leaves[i].detach().clone() for i in alone if not call.carried[i].parts()[:-1].any()}
        if share:
            zero = {i: torch.zeros_like(call.leaves[i]) for i in rule.sources}
            self._beside[outputs[0]] = call.again(zero | share)[0] - call.again(zero)[0]

    def normed(self, x: Tensor, output: Tensor) -> None:
        if self._sum is not None and x is self._sum.tensor and self._normed is None:
            self._normed = _Place.of(output, self.need(output, self.path))

    def end_layer(self, states: Tensor) -> None:
        if self._sum is None:
            raise InputError(
                f"{self.path}: no place was found where what its attention gives is added to the states that go past "
                "it, so there are no vectors with a residual; use value_norms"
            )
        normed = self._normed is not None and not self._goes_on
        place = self._normed if normed and self._normed is not None else self._sum
        place.entry.check()
        beside = None if normed else self._sum.beside
        whole = place.numbers if beside is None else place.numbers - beside
        layer = LayerVectors(
            self.path, normed, *self._vectors(place.entry, whole), *self._vectors(self.need(states, ""), states)
        )
        self.given(layer)

    def _vectors(self, entry: Carried, whole: Tensor) -> tuple[Tensor, Tensor]:
        """[query source d_model] and [query d_model], whatever axis the tokens are in."""
        sources = entry.parts()[:-1].movedim((self.axis or 0) + 1, 1)
        return sources.reshape(self.n_tokens, self.n_tokens, -1).transpose(0, 1), whole.reshape(self.n_tokens, -1)
