"""A pass of a model under rules of relevance; its numbers stay what they are, and the model is left as it was."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from attnprobe.errors import CaptureError, InputError
from attnprobe.intervention import Intervention
from attnprobe.models.anatomy import ROUNDING, Kind, goes_through_origin, kind_of, noise_like, norm_of, replacing
from attnprobe.models.nonlinear import CURVED
from attnprobe.models.relevance.calls import Call, Found, is_state, kind_of_call, numbers, of_its_state
from attnprobe.models.relevance.rules import Rules
from attnprobe.site import Site

Gate = Literal["half", "detach"]

STOPS = ("detach", "detach_")
ENTRYWISE_PRODUCTS = ("mul", "__mul__", "__rmul__", "mul_", "__imul__", "multiply")


class Held(NamedTuple):
    """Why a tensor that depends on the states is held fast; lost: it is a sum of which no share can be told."""

    lost: bool
    text: str


@dataclass(eq=False)
class Follower(TorchFunctionMode):
    """Puts rules behind every function of the states that torch is asked for within the block.

    gate: a product of two states of which one comes from an activation hands back "half" to each, or all to the other
    ("detach"). applied: how often each kind of function was met. rounding: of the coarsest numbers that came by.
    """

    root: nn.Module
    rules: Rules
    gate: Gate = "half"
    applied: Counter[str] = field(default_factory=Counter)
    rounding: float = 0.0

    def __post_init__(self) -> None:
        super().__init__()
        self._running: list[str] = []
        self._kinds: dict[tuple[object, ...], Found] = {}
        self._modules: dict[nn.Module, Kind | None] = {}
        self._held = WeakTensorKeyDictionary()  # what depends on the states but is held fast, with the reason
        self._gates = WeakTensorKeyDictionary()  # what comes from an activation
        self._first = ""
        self._owner = threading.get_ident()

    @property
    def path(self) -> str:
        """The module that is computing now."""
        return self._running[-1] if self._running else ""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("inplace"):
            kwargs["inplace"] = False
        call = Call.of(func, args, kwargs)
        if not call.live:
            return self._constant(call, args, kwargs)
        if call.name in STOPS:
            return self._hold(func(*args, **kwargs), f"'{self.path}' detaches it")
        found = self._kind(call)
        if found.kind == "constant":
            return self._constant(call, args, kwargs)
        if found.kind == "nothing":
            return func(*args, **kwargs)
        out = self._under_rules(found, call)
        self._note(out)
        if not call.in_place:
            return out
        with torch.enable_grad():
            args[0].copy_(out)
        return None if call.name == "__setitem__" else args[0]

    def _constant(self, call: Call, args: tuple, kwargs: dict) -> Any:
        """A function of no states: no gradients from parameters, so that whatever has some is a state."""
        held = max((self._held[leaf] for leaf in call.leaves if _known(leaf, self._held)), default=None)
        steep = any(isinstance(leaf, Tensor) and leaf.requires_grad for leaf in call.leaves)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not steep):
            out = call.func(*args, **kwargs)
        return out if held is None else self._hold(out, held.text, held.lost)

    def _hold(self, out: Any, reason: str, lost: bool = False) -> Any:
        self._first = self._first or reason
        for tensor in numbers(out):
            self._held[tensor] = Held(lost, reason)
        return out

    def why_held(self, answer: Tensor) -> str:
        """Why an answer, or the first number that was held fast, has no way back to the embeddings."""
        return self._held[answer].text if _known(answer, self._held) else self._first

    def _kind(self, call: Call) -> Found:
        """The kind of a call, found once for calls that are alike; what bends here may be straight elsewhere."""
        key = call.key()
        if key not in self._kinds:
            found = kind_of_call(call)
            empty = not all(call.leaves[index].numel() for index in call.live)  # an expert that no token goes to
            if empty or found.kind == "constant" or (call.name in CURVED and found.kind not in ("softmax", "nothing")):
                return found
            self._kinds[key] = found
        return self._kinds[key]

    def _note(self, out: Any) -> None:
        self.rounding = max(self.rounding, *(ROUNDING.get(t.dtype, 1e-4) for t in numbers(out)))

    def _under_rules(self, found: Found, call: Call) -> Any:
        kind, (first, *_) = found.kind, found.sources
        if kind != "copy":
            self.applied[kind] += 1
        if kind == "held":
            return self._held_fast(call, f"'{self.path}' computes {call.name}, which is not linear")
        if kind in ("copy", "affine", "part", "homogeneous"):
            return self._affine(found, call)
        if kind == "product":
            return self._product(call)
        with torch.no_grad():
            function, x = of_its_state(call), call.leaves[first]
            return self._of_one(kind, function, x)

    def _of_one(self, kind: str, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """An activation, a norm or a softmax of one state."""
        if kind == "activation":
            out = self.rules.activation(function, x)
            self._gates[out] = True
            return out
        if kind == "norm":
            norm = norm_of(function, x.detach())
            if norm is None:
                raise InputError(f"'{self.path}' computes a norm that is none on this input")
            value = function(x.detach())
            off = float((norm(x.detach()) + norm.shift - value).abs().max() / value.abs().max().clamp(min=1e-30))
            self.rounding = max(self.rounding, off)  # it may compute in coarser numbers than it gives
            return self.rules.norm(norm, value, x, self.path)
        made = self.rules.softmax(function, x, self.path)
        if made is not None:
            return made
        return self._hold(function(x.detach()), f"'{self.path}' computes a softmax, which is held fast")

    def _affine(self, found: Found, call: Call) -> Any:
        copy, here = found.kind == "copy", call.only(found.sources)
        if (reason := self._lost_in_sum(call, here)) is not None:
            return self._held_fast(here, reason, lost=True)
        if found.kind == "homogeneous":
            return here.native()
        out = self.rules.affine(here, self.path, copy=copy)
        if copy and any(_known(leaf, self._gates) for leaf in call.leaves):
            for tensor in numbers(out):
                self._gates[tensor] = True
        return out

    def _product(self, call: Call) -> Any:
        gates = [index for index in call.live if _known(call.leaves[index], self._gates)]
        if self.gate == "detach" and len(gates) == 1 and call.name in ENTRYWISE_PRODUCTS:
            self.applied["gate"] += 1
            return self.rules.affine(call.only([i for i in call.live if i not in gates]), self.path, copy=False)
        if (reason := self._lost_in_sum(call, call)) is not None:
            return self._held_fast(call, reason, lost=True)
        return self.rules.product(call, self.path)

    def _held_fast(self, call: Call, reason: str, *, lost: bool = False) -> Any:
        """What a function gives as a number that does not depend on the states, though it does."""
        with torch.no_grad():
            out = call.only(()).native()
        return self._hold(out, reason, lost)

    def _lost_in_sum(self, call: Call, here: Call) -> str | None:
        """Why a sum has no rule: it adds to the states something that depends on them in no linear way."""
        held = {i: self._held[leaf] for i, leaf in enumerate(call.leaves) if _known(leaf, self._held)}
        held |= {i: Held(False, f"'{self.path}' computes {call.name}") for i in call.live if i not in here.live}
        if not held or not any(bool(constant.any()) for constant in here.at_zero()):
            return None
        leaves = [noise_like(leaf, 9) if i in held else leaf for i, leaf in enumerate(here.leaves)]
        pairs = zip(here.at_zero(), replace(here, leaves=leaves).at_zero(), strict=True)
        if all(torch.equal(before, after) for before, after in pairs):
            return None
        worst = max(held.values())
        return worst.text if worst.lost else f"{worst.text}, and '{self.path}' adds what comes of it to the states"

    def attention(self, site: Site) -> Site:
        """The edit: weights that follow from the scores under the rules, whatever normalises them."""
        weights = site.need("weights")
        if not torch.is_grad_enabled():
            raise CaptureError(
                f"{site.place} runs without gradients (reversible or frozen layers), so no relevance comes back "
                "through it; use a method without gradients"
            )
        if self.rules.frozen:
            made = self._hold(weights.detach(), f"{site.place} is held fast") if is_state(weights) else weights
            return site.replace(weights=made)
        with torch._C.DisableTorchFunction(), torch.no_grad():
            if site.scores is not None and is_state(site.scores):
                weights = self._of_one("softmax", site.normalizer, site.scores)
            elif not is_state(weights) and weights in self._held:
                raise InputError(
                    f"{site.place}: no rule leads back from the weights to the scores ({self._held[weights].text}); "
                    "use cp_lrp, which holds weights fast"
                )
            made = self.rules.mixing(site.place, weights)
        return site.replace(weights=made)

    @contextmanager
    def following(self) -> Iterator[Intervention]:
        """Within the block the rules act; the edit that is given must run at every attention."""
        handles: list[Any] = []
        leaves = [part for part in self.root.modules() if _may_bend(part)]
        try:
            for path, part in self.root.named_modules():
                handles.append(part.register_forward_pre_hook(partial(self._begin, path)))
                handles.append(part.register_forward_hook(self._end, always_call=True))
            with replacing({part: partial(self._module, part) for part in leaves}), self:
                yield Intervention("rules of relevance", self.attention)
        finally:
            for handle in handles:
                handle.remove()

    def _begin(self, path: str, *_: Any) -> None:
        if threading.get_ident() == self._owner:
            self._running.append(path)

    def _end(self, *_: Any) -> None:
        if threading.get_ident() == self._owner and self._running:
            self._running.pop()

    def _module(self, part: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """An activation or a norm that is a module of its own is one function, whatever it computes."""
        with torch._C.DisableTorchFunction():  # to look at a tensor is no use of it
            live = [t for t in (*args, *kwargs.values()) if is_state(t)]
        if len(live) != 1 or len(args) + len(kwargs) != 1:
            return forward(*args, **kwargs)

        def function(x: Tensor) -> Tensor:
            out: Tensor = forward(x.clone()) if args else forward(**{next(iter(kwargs)): x.clone()})
            return out

        with torch._C.DisableTorchFunction(), torch.no_grad():
            x = live[0].detach()
            if part not in self._modules:
                self._modules[part] = kind_of(part, x, function)
            kind = self._modules[part]
            if kind == "norm" or (kind == "activation" and goes_through_origin(function, x)):
                self.applied[kind] += 1
                out = self._of_one(kind, function, live[0])
                self._note(out)
                return out
        return forward(*args, **kwargs)


def _known(leaf: Any, table: WeakTensorKeyDictionary) -> bool:
    return isinstance(leaf, Tensor) and leaf in table


def _may_bend(part: nn.Module) -> bool:
    """Whether a module can be an activation or a norm: nothing inside of it, no matrices."""
    return next(part.children(), None) is None and all(p.ndim < 2 for p in part.parameters())
