"""A pass of a model in which the parts of its states are followed; nothing of the model or its numbers is changed."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from attnprobe.errors import InputError
from attnprobe.models.anatomy import ROUNDING, Kind, kind_of
from attnprobe.models.huggingface.fused import Fused
from attnprobe.models.vectors.calls import Call, floats, others
from attnprobe.models.vectors.parts import Carried, apart
from attnprobe.models.vectors.rules import Bent, Passed, bent_rule, passed
from attnprobe.site import softmax

# When constants (biases) are given to the sources: as soon as they join ("sources"), or only while each position still
# has one source ("own"), so that what joins behind the attention belongs to none.
Constants = Literal["sources", "own"]


@dataclass(eq=False)
class Follower(TorchFunctionMode):
    """Follows the parts of tensors through every function that torch is asked for within the block.

    n_tokens: how many sources there are. blocks: the layers; the states that go into the first one that runs (each:
    into every one) are the sources. waiting: paths of maps whose bias is given to the sources only at the next norm
    (values, outputs of attention). attention: paths of the attention modules. checking: whether every tensor's parts
    are added up at once, which finds the module where they do not.
    """

    root: nn.Module
    n_tokens: int
    blocks: frozenset[nn.Module]
    each: bool = False
    waiting: frozenset[str] = frozenset()
    attention: tuple[str, ...] = ()
    bent: Bent = "followed"
    constants: Constants = "sources"
    checking: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        self.running: list[str] = []  # paths of the modules that are computing, outermost first
        self.last_bias: tuple[Carried, tuple[int, ...]] | None = None
        self.axis: int | None = None  # that of the tokens in the states of a layer
        self._entries = WeakTensorKeyDictionary()
        self._constants = WeakTensorKeyDictionary()
        self._inside: list[
            nn.Module
        ] = []  # activations and norms that are running: one function, whatever they compute
        self._kinds: dict[nn.Module, Kind | None] = {}
        self._judged: dict[tuple[object, ...], bool] = {}
        self._started: dict[nn.Module, list[Any]] = {}
        self._owner = threading.get_ident()
        tensors = (*self.root.parameters(), *self.root.buffers())
        self._own = {t.untyped_storage().data_ptr() for t in tensors if t.device.type != "meta"}

    @property
    def path(self) -> str:
        """The module that is computing now."""
        return self.running[-1] if self.running else ""

    def begin_layer(self, states: Tensor) -> None:
        """A layer begins from these states; to be extended by those who look at layers."""

    def end_layer(self, states: Tensor) -> None:
        """A layer has given these states; to be extended by those who look at layers."""

    def called(self, call: Call, rule: Passed, outputs: list[Tensor]) -> None:
        """A function of the states ran; to be extended by those who look at layers."""

    def normed(self, x: Tensor, output: Tensor) -> None:
        """A norm ran; to be extended by those who look at layers."""

    def _start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The states that go into a layer are the sources: each token is the only one of its position."""
        given = [t for t in (*args, *kwargs.values()) if isinstance(t, Tensor) and t.is_floating_point()]
        states = next((t for t in given if t.ndim in (2, 3)), None)
        axes = [] if states is None else [a for a in (states.ndim - 2, 0) if states.shape[a] == self.n_tokens]
        if states is None or not axes or states.numel() != self.n_tokens * states.shape[-1]:
            got = "no states" if states is None else f"states {list(states.shape)}"
            raise InputError(
                f"{self.path} is given {got} for {self.n_tokens} tokens, which it lays out in its own way (windows, "
                "padding); a decomposition needs one state a token"
            )
        self.axis = axis = axes[0]
        self._set(states, Carried(self.path, partial(apart, states.detach(), axis)))
        self.begin_layer(states)

    def of(self, tensor: Any) -> Carried | None:
        """What is known of the parts of a tensor; None where it does not depend on the states."""
        entry: Carried | None = self._entries.get(tensor) if isinstance(tensor, Tensor) else None
        if entry is not None and entry.version != tensor._version:
            return Carried(entry.path, None, "was changed in place in a way that was not followed", entry.mixed)
        return entry

    def need(self, tensor: Tensor, what: str) -> Carried:
        """The entry of a tensor that must have parts; `InputError` with the reason where it has none."""
        entry = self.of(tensor)
        if entry is None:
            raise InputError(f"{what} does not depend on the states that went into the layers")
        if entry.lost is not None:
            raise InputError(f"{what} is no sum over the tokens: {entry.path or 'the model'}: {entry.lost}")
        return entry

    def _set(self, tensor: Tensor, entry: Carried) -> None:
        self._entries[tensor] = entry.of(tensor)

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = dict(kwargs or {})
        if self._inside:
            return func(*args, **kwargs)
        if kwargs.get("inplace"):
            kwargs["inplace"] = False
        in_place = _in_place(func)
        # The fused kernel cannot run for all parts at once; from its formula the weights are made once for all.
        again = attention_by_hand if func is functional.scaled_dot_product_attention else func
        call = Call(again, args, kwargs, in_place, self.of, judged=self._judged)
        out = func(*args, **kwargs)
        results = floats(args[0] if in_place and args else out)
        if not call.carried:
            for result in results:
                self._constants[result] = None
            return out
        for choice in others(out):  # of experts, of places: held fast like attention weights
            reason = f"{getattr(func, '__name__', 'a function')} gives no real numbers"
            self._set(choice, Carried(self.path, None, reason, fixed=not choice.is_complex()))
        if in_place or not all(any(result is leaf for leaf in call.given) for result in results):
            self._follow(call, results)
        return out

    def _follow(self, call: Call, outputs: list[Tensor]) -> None:
        """Note what becomes of the parts in a function that just ran."""
        rule = passed(call, outputs, self._known, self.bent)
        self._note(rule, [call.carried[index] for index in rule.sources], outputs, self._mixes(call, rule))
        self.called(call, rule, outputs)

    def _note(self, rule: Passed, sources: list[Carried], outputs: list[Tensor], mixes: bool) -> None:
        if rule.kind in ("activation", "norm"):
            self._settle(sources[0])
        made: list[list[Tensor]] = []

        def nth(number: int) -> Callable[[], Tensor]:
            def make() -> Tensor:
                if not made:
                    made.append(rule.make() if rule.make is not None else [])
                return made[0][number]

            return make

        mixed = mixes or any(entry.mixed for entry in sources)
        rounding = max((entry.rounding for entry in sources), default=0.0)
        path = self.path if rule.origin is None else rule.origin.path
        for number, output in enumerate(outputs):
            coarsest = max(rounding, rule.rounding, ROUNDING.get(output.dtype, 0.0))
            make = None if rule.lost else nth(number)
            entry = Carried(path, make, rule.lost, mixed, coarsest, fixed=rule.kind == "constant")
            self._set(output, entry)
            if rule.constant and (rule.kind == "norm" or not self._waits() or not mixed):
                self._settle(entry)
                self.last_bias = entry, tuple(output.shape)
            if self.checking and entry.lost is None:
                entry.check()

    def _settle(self, entry: Carried) -> None:
        """Constants go to the sources here, if they may."""
        if entry.lost is None and (self.constants == "sources" or not entry.mixed):
            entry.share()

    def _waits(self) -> bool:
        return any(path in self.waiting for path in self.running)

    def _mixes(self, call: Call, rule: Passed) -> bool:
        """Whether this is the product of attention weights and values: linear in one state, others held fast."""
        held = len(call.carried) > len(rule.sources)
        inside = any(path in self.attention for path in self.running) or not self.attention
        return rule.kind == "affine" and rule.lost is None and held and inside

    def _known(self, constant: Tensor) -> bool:
        """Whether a tensor was made from no states: a parameter, or the outcome of functions that were seen."""
        return constant in self._constants or constant.untyped_storage().data_ptr() in self._own

    @contextmanager
    def watching(self) -> Iterator["Follower"]:
        """Within the block, functions are followed and it is known which module computes them."""
        handles: list[Any] = []
        try:
            for path, part in self.root.named_modules():
                handles.append(part.register_forward_pre_hook(self._begin(path), with_kwargs=True))
                handles.append(part.register_forward_hook(self._end, with_kwargs=True))
            with self:
                yield self
        finally:
            for handle in handles:
                handle.remove()

    def _begin(self, path: str) -> Callable[..., None]:
        def begin(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if threading.get_ident() != self._owner:
                return
            self.running.append(path)
            if not self._inside:
                with torch._C.DisableTorchFunction():  # what is asked here is no part of the pass
                    self._enter(part, args, kwargs)

        return begin

    def _enter(self, part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if part in self.blocks and (self.each or self.axis is None):
            self._start(args, kwargs)
        x = next((t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)), None)
        entry = self.of(x)
        kind = None if x is None or entry is None or entry.lost is not None else self._kind(part, x)
        if kind in ("activation", "norm"):
            self._inside.append(part)
        self._started.setdefault(part, []).append((kind, x, entry))

    def _end(self, part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if threading.get_ident() != self._owner:
            return
        if self._started.get(part) and (not self._inside or self._inside[-1] is part):
            with torch._C.DisableTorchFunction():
                self._leave(part, output)
        self.running.pop()

    def _leave(self, part: nn.Module, output: Any) -> None:
        kind, x, entry = self._started[part].pop()
        if kind in ("activation", "norm"):
            self._inside.pop()
            self._as_one(part, x, entry, output)
        if kind == "norm":
            self.normed(x, output)
        if part in self.blocks:
            self._end_block(output)

    def _end_block(self, output: Any) -> None:
        """What a layer gives on has its parts made here, so that what they were made from can go."""
        states = output if isinstance(output, Tensor) else floats(output)[0]
        entry = self.need(states, f"what {self.path} gives")
        self._settle(entry)  # constants that met no vector so far
        entry.check()
        self.end_layer(states)

    def _kind(self, part: nn.Module, x: Tensor) -> Kind | None:
        if part not in self._kinds:
            if any(parameter.ndim > 1 for parameter in part.parameters(recurse=False)):
                return None  # a map, or a table
            self._kinds[part] = kind_of(part, x)
        return self._kinds[part]

    def _as_one(self, part: nn.Module, x: Tensor, entry: Carried, output: Any) -> None:
        """An activation or a norm is followed as one function, whatever it computes inside."""
        rule = bent_rule(part.forward, x, entry, type(part).__name__, self.bent)
        self._note(rule, [entry], floats(output), mixes=False)


def attention_by_hand(*args: Any, **kwargs: Any) -> Tensor:
    """`scaled_dot_product_attention` from its formula."""
    given = Fused.of(args, kwargs)
    return softmax(given.scores).to(given.value.dtype) @ given.expanded(given.value)


def _in_place(func: Any) -> bool:
    """Whether a function changes its first argument, as torch names such functions."""
    name = getattr(func, "__name__", "")
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name[3:-2] in _OPERATORS)
    return name.endswith("_")


_OPERATORS = ("add", "sub", "mul", "truediv", "matmul", "pow", "div")
