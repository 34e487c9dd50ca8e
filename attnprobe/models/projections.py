"""W_Q, W_K, W_V and W_O of every attention layer, found by watching one pass: no table of names.

W_O is the linear map whose input is z with its heads merged. W_V is the linear map whose output holds, column by
column, the columns of the values; so separate, packed and interleaved layouts are found alike. W_Q and W_K are found
in the same way, under RoPE by the first position, which is not turned. What something else went through (a norm, a
gate) is not found, and that is said. A clamp that did not act in that pass is not seen.
"""

from dataclasses import dataclass, field
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.errors import CaptureError, InputError, nearest
from attnprobe.example import Example
from attnprobe.models.model import Model
from attnprobe.models.projecting import Found, Use, find, order_of, pick_rows, probe
from attnprobe.models.query_keys import QueryKeys, by_head
from attnprobe.site import Kind, Place

NAMES = ("W_Q", "b_Q", "W_K", "b_K", "W_V", "b_V", "W_O", "b_O")


@dataclass(frozen=True, eq=False)
class Projection(QueryKeys):
    """What one attention layer reads from its input and writes to its output: values x W_V + b_V, output z W_O + b_O.

    Queries and keys: `QueryKeys`.

    groups: the value head of each query head. value_weight, value_bias: one entry a value head; `W_V` and `b_V`: one
    a query head. A bias is zeros where the map has none. None: not found, `reasons` say why. value_map, output_map:
    path of the module (or of the parameter, where a function uses it directly). output_order: how the heads lie in
    the input of the output map, "head d_value" (as usual), "d_value head" or "mixed". Weights are views of the model's
    own where that is possible: do not change them.
    """

    stack: str
    kind: Kind
    layer: int
    path: str
    groups: tuple[int, ...]
    value_weight: Float[Tensor, "group d_model_in d_value"] | None = field(default=None, repr=False)
    value_bias: Float[Tensor, "group d_value"] | None = field(default=None, repr=False)
    W_O: Float[Tensor, "head d_value d_model"] | None = field(default=None, repr=False)
    b_O: Float[Tensor, " d_model"] | None = field(default=None, repr=False)  # noqa: N815
    value_map: str | None = None
    output_map: str | None = None
    output_order: str | None = None
    reasons: tuple[str, ...] = ()

    def __str__(self) -> str:
        return str(Place(self.stack, self.kind, self.layer, self.path))

    @property
    def n_kv_heads(self) -> int:
        """Number of value heads; several query heads share one where it is smaller than the number of heads."""
        return max(self.groups) + 1

    @property
    def W_V(self) -> Float[Tensor, "head d_model_in d_value"] | None:  # noqa: N802
        """The value matrix of each query head; made when asked for where heads share one."""
        return by_head(self.value_weight, self.groups)

    @property
    def b_V(self) -> Float[Tensor, "head d_value"] | None:  # noqa: N802
        """The value bias of each query head, zeros where the map has none."""
        return by_head(self.value_bias, self.groups)

    def need(self, name: str) -> Tensor:
        """W_Q, b_Q, W_K, b_K, W_V, b_V, W_O or b_O; `CaptureError` with the reason where it was not found."""
        if name not in NAMES:
            raise InputError(f"a projection has no '{name}'; {nearest(name, NAMES)}")
        tensor: Tensor | None = getattr(self, name)
        return self._found(name, tensor)

    def _found(self, name: str, tensor: Tensor | None) -> Tensor:
        if tensor is None:
            which = f"W_{name[-1]}: "
            about = [reason.removeprefix(which) for reason in self._all_reasons if reason.startswith(which)]
            raise CaptureError(f"{self}: {name} was not found: {' '.join(about)}")
        return tensor

    @property
    def _all_reasons(self) -> tuple[str, ...]:
        return (*self.score_reasons, *self.reasons)

    def W_OV(self, head: int) -> Float[Tensor, "d_model_in d_model"]:  # noqa: N802
        """W_V W_O of one head: what it writes for what it reads."""
        if not 0 <= head < len(self.groups):
            raise InputError(f"{self} has heads 0 to {len(self.groups) - 1}, got head {head}")
        return self._found("W_V", self.value_weight)[self.groups[head]] @ self.need("W_O")[head]

    def head_outputs(self, z: Float[Tensor, "*row head query d_value"]) -> Float[Tensor, "*row head query d_model"]:
        """What each head writes, z^h W_O^h; their sum and b_O are the output of the projection."""
        return self._through("z", z)

    def transformed(self, value: Float[Tensor, "*row head key d_value"]) -> Float[Tensor, "*row head key d_model"]:
        """f(x) = v W_O: what each head would write for each key alone (Kobayashi et al. 2020)."""
        return self._through("value", value)

    def weighted_norms(
        self, weights: Float[Tensor, "*row head query key"], value: Float[Tensor, "*row head key d_value"]
    ) -> Float[Tensor, "*row head query key"]:
        """The length of what each key writes for each query, |weight f(x)|, head by head."""
        return weights.abs() * self.transformed(value).norm(dim=-1).unsqueeze(-2)

    def _through(self, name: str, given: Tensor) -> Tensor:
        W_O = self.need("W_O")
        expected = (W_O.shape[0], W_O.shape[1])
        if given.ndim < 3 or (given.shape[-3], given.shape[-1]) != expected:
            raise InputError(
                f"{self}: {name} is [... head token d_value] with {expected[0]} heads of {expected[1]}, "
                f"got {list(given.shape)}"
            )
        return given @ W_O.to(given)


def projections(
    model: Model, stack: str | None = None, kind: Kind | None = None, *, example: Example | None = None
) -> tuple[Projection, ...]:
    """The projections of every attention layer (call) of a model, or of one stack and kind, in order.

    Where they are is watched once and remembered; the numbers are read anew each time. example: watch the model on this
    input instead of a short one of its own making, for a model that does not run on that.
    Errors: `InputError` for a stack that the model does not have.
    """
    root = model.module
    if example is None:
        known = model.__dict__.setdefault("_projections", {})
        parts = tuple((path, type(part)) for path, part in root.named_modules())
        if known.get("parts") != parts:
            known.update(parts=parts, found=find(model, probe(model)))
        found = known["found"]
    else:
        found = find(model, example)
    wanted = [f for f in found if stack in (None, f.place.stack) and kind in (None, f.place.kind)]
    if not wanted:
        there = ", ".join(dict.fromkeys(f"{f.place.stack} {f.place.kind}" for f in found))
        named = f"{kind or 'attention'} stack" + ("" if stack is None else f" '{stack}'")
        raise InputError(f"{model.name} has no {named}; it has {there}")
    return tuple(_read(f, root) for f in wanted)


def _read(found: Found, root: nn.Module) -> Projection:
    """The projections of one layer with their numbers of now."""
    facts: dict[str, Any] = _scores(found, root)
    if isinstance(found.value, Use):
        facts["value_weight"], facts["value_bias"] = _columns_of(found.value, root)
        facts["value_map"] = found.value.linear.path
    if isinstance(found.output, Use):
        weight, bias = found.output.linear.read(root)
        facts |= {"output_map": found.output.linear.path, "output_order": order_of(found.output.index)}
        facts |= {"W_O": pick_rows(weight, found.output.index)}
        facts["b_O"] = weight.new_zeros(weight.shape[1]) if bias is None else bias
    place, reasons = found.place, tuple(part for part in (found.value, found.output) if isinstance(part, str))
    return Projection(place.stack, place.kind, place.layer, place.path, found.groups, reasons=reasons, **facts)


def _scores(found: Found, root: nn.Module) -> dict[str, Any]:
    """What queries and keys are made of."""
    query, key = found.query, found.key
    facts: dict[str, Any] = {"key_groups": key.groups, "turn": found.turn, "factor": query.factor * key.factor}
    facts["rotary"] = found.rotary
    if isinstance(query.use, Use):
        facts["W_Q"], facts["b_Q"] = _columns_of(query.use, root)
        facts["query_map"] = query.use.linear.path
    if isinstance(key.use, Use):
        facts["key_weight"], facts["key_bias"] = _columns_of(key.use, root)
        facts["key_map"] = key.use.linear.path
    return facts | {"score_reasons": tuple(use for use in (query.use, key.use) if isinstance(use, str))}


def _columns_of(use: Use, root: nn.Module) -> tuple[Float[Tensor, "head d_in d"], Float[Tensor, "head d"]]:
    """The part of a map that makes each head's vectors, and its bias (zeros where there is none)."""
    weight, bias = use.linear.read(root)
    by_column = pick_rows(weight.T, use.index).transpose(1, 2)
    return by_column, weight.new_zeros(use.index.shape) if bias is None else bias[use.index]
