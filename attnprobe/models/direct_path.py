"""The direct path: what each map of a network writes into the answer itself, past everything that comes after it.

One pass in which every map within the layers (a module with a matrix) has its input held fast, so that nothing reaches
the answer through it a second time; norms keep their σ, and an activation behind the layers the slope f(x) / x at its
x. What is left is linear: the answer is the sum of what each map wrote, of the states that went into the first layer,
and of constants (shifts of norms, biases behind the layers). The sum is checked.
"""

from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from attnprobe.attention.seam import Keep, Tape
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.anatomy import Kind, Rule, kind_of, norm_of, replacing, slope
from attnprobe.models.evaluator import count, refuse_unseen
from attnprobe.models.model import Model, Stack
from attnprobe.models.recorded import blocks_of
from attnprobe.models.rows import Row
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget

# How far the sum may be from the answer, of the largest summand.
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-5}
COARSE = 5e-2  # of coarser types
# Activations that networks often ask for as functions, behind their layers too (a pooler's tanh, a soft cap).
BENT = (torch.tanh, Tensor.tanh, functional.tanh, functional.gelu, functional.relu, functional.silu, torch.relu)


@dataclass(frozen=True, eq=False)
class Written:
    """What one run of a map gave, and the gradient of the answer with respect to it along the direct path."""

    path: str
    call: int
    output: Float[Tensor, "1 token d_model"] = field(repr=False)
    gradient: Float[Tensor, "1 token d_model"] = field(repr=False)

    @property
    def amount(self) -> float:
        """What it adds to the answer."""
        return _product(self.output, self.gradient)


@dataclass(frozen=True, eq=False)
class DirectPath:
    """The answer as a sum: of maps in the layers, of the states that went into them, of constants behind.

    sites: of the asked stack, with z, weights and value. total: the answer.
    """

    maps: tuple[Written, ...]
    embedding: float
    constant: float
    total: float
    sites: tuple[Site, ...] = field(repr=False)


def direct_path(model: Model, example: Example, target: ResolvedTarget, stack: Stack) -> DirectPath:
    """Follow the direct path of one example; sites are those of `stack`.

    Errors: `InputError` for a target that is not linear in the logits, and for a network whose answer is not the sum.
    """
    if target.function is not None or target.scale != "logit":
        raise InputError(
            f"{target.description} is no sum of what each head writes; ask for a logit: Target(label, position=…)"
        )
    watch = _Watch(model)
    tape = Tape(keep=Keep.of("z", "weights", "value", stack=stack.name, kind=stack.kind), check=False, n_rows=1)
    count(forward=1, backward=1)
    with torch.enable_grad(), replacing(watch.rules()), watch:
        answer = target(model.forward([Row(example)], tape)).sum()
        refuse_unseen(model)
        if not watch.starts or not answer.requires_grad:
            raise InputError(f"{model.name} has no layers that run as modules, so there is no direct path to follow")
        found = watch.gradients(answer)
    sites = tuple(site.map(Tensor.detach) for site in tape.sites)
    path = DirectPath(found, watch.embedding, watch.constant, float(answer.detach()), sites)
    _check(model, path, watch.tolerance)
    return path


def _check(model: Model, path: DirectPath, tolerance: float) -> None:
    """`InputError` where what was found does not add up to the answer."""
    summands = [written.amount for written in path.maps] + [path.embedding, path.constant]
    size = max(1e-12, abs(path.total), *map(abs, summands))
    missing = path.total - sum(summands)
    if not abs(missing) <= tolerance * size:
        raise InputError(
            f"{model.name}: direct contributions add up to {sum(summands):.6g} and the answer is {path.total:.6g}; "
            "between its layers and the answer there is something that is neither a map, a norm nor an activation "
            "(experts, a function without a module), so a head has no direct share of the logit"
        )


class _Watch(TorchFunctionMode):
    """Holds the inputs of maps fast and notes what they give."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.blocks = {id(block): block for block in blocks_of(model)}
        self.inside = {id(part) for block in self.blocks.values() for part in block.modules()}
        self.paths = {id(part): path for path, part in model.module.named_modules()}
        self.leaves = [part for part in model.module.modules() if next(part.children(), None) is None]
        self.kinds: dict[int, Kind | None] = {}
        self.calls: Counter[int] = Counter()
        self.maps: list[tuple[str, int, Tensor]] = []
        self.starts: dict[str, Tensor] = {}  # by the list that the layers are in
        self.embedding = self.constant = 0.0
        self.depth = 0  # how many layers are running

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        x = args[0] if args else None
        if func in BENT and not self.depth and isinstance(x, Tensor) and x.requires_grad and self.starts:
            return slope(lambda y: func(y, *args[1:], **kwargs), x.detach()) * x
        return func(*args, **kwargs)

    def rules(self) -> dict[nn.Module, Rule]:
        """A rule for every innermost module, and for every layer."""
        rules: dict[nn.Module, Rule] = {leaf: partial(self._leaf, leaf) for leaf in self.leaves}
        return rules | {block: partial(self._block, block) for block in self.blocks.values()}

    @property
    def tolerance(self) -> float:
        """How far the sum may be off: by the coarsest type that a map gave (logits of bfloat16 become float32)."""
        return max(
            (TOLERANCE.get(output.dtype, COARSE) for _, _, output in self.maps), default=TOLERANCE[torch.float32]
        )

    def gradients(self, answer: Tensor) -> tuple[Written, ...]:
        """The maps that reach the answer on the direct path; embedding and constants are added up on the way."""
        starts = list(self.starts.values())
        outputs = [output for _, _, output in self.maps]
        found = torch.autograd.grad(answer, [*outputs, *starts], allow_unused=True)
        pairs = zip(starts, found[len(outputs) :], strict=True)
        self.embedding = sum(_product(start, gradient) for start, gradient in pairs if gradient is not None)
        return tuple(
            Written(path, call, output.detach(), gradient)
            for (path, call, output), gradient in zip(self.maps, found, strict=False)
            if gradient is not None
        )

    def _block(self, block: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
        """The states that the first layer of a list is given are where the sum begins."""
        self.depth += 1
        try:
            return self._begun(block, forward, args, kwargs)
        finally:
            self.depth -= 1

    def _begun(self, block: nn.Module, forward: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        among = self.paths[id(block)].rpartition(".")[0]
        given = [*args, *kwargs.values()]
        place = next((i for i, x in enumerate(given) if isinstance(x, Tensor) and _is_states(x)), None)
        if among in self.starts or place is None:
            return forward(*args, **kwargs)
        self.starts[among] = given[place].detach().requires_grad_()
        given[place] = self.starts[among].clone()
        return forward(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))

    def _leaf(self, leaf: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
        x = next((t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)), None)
        if x is None or not x.is_floating_point() or not self.starts:
            return forward(*args, **kwargs)
        if any(parameter.ndim > 1 for parameter in leaf.parameters()):
            return self._map(leaf, forward, x, args, kwargs)
        if id(leaf) not in self.kinds:
            self.kinds[id(leaf)] = kind_of(leaf, x.detach(), forward)
        kind = self.kinds[id(leaf)]
        if kind == "norm":
            found = norm_of(forward, x.detach())
            return forward(*args, **kwargs) if found is None else self._plus_constant(found(x), forward(x))
        if kind == "activation" and id(leaf) not in self.inside:
            return slope(forward, x.detach()) * x
        return forward(*args, **kwargs)

    def _map(self, leaf: nn.Module, forward: Any, x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Within a layer what a map gives is a start of its own; behind the layers the path goes through it."""
        if id(leaf) not in self.inside:
            output = forward(*args, **kwargs)
            straight = isinstance(output, Tensor) and getattr(leaf, "bias", None) is not None
            if straight and output.requires_grad:
                with torch.no_grad():
                    at_zero = forward(torch.zeros_like(x))
                output.register_hook(partial(self._absorb, at_zero))
            return output
        held = tree_map_only(Tensor, Tensor.detach, (args, kwargs))
        with torch.no_grad():
            output = forward(*held[0], **held[1])
        if not isinstance(output, Tensor):
            return output
        output = output.detach().requires_grad_()
        self.maps.append((self.paths[id(leaf)], self.calls[id(leaf)], output))
        self.calls[id(leaf)] += 1
        return output.clone()  # which a network may add to in place

    def _plus_constant(self, linear: Tensor, whole: Tensor) -> Tensor:
        """The linear part of a function at its own numbers, and the rest as a constant."""
        constant = (whole - linear).detach()
        output = linear + constant
        if output.requires_grad:
            output.register_hook(partial(self._absorb, constant))
        return output

    def _absorb(self, constant: Tensor, gradient: Tensor) -> None:
        self.constant += _product(constant, gradient)


def _product(value: Tensor, gradient: Tensor) -> float:
    return float((value.detach().double() * gradient.double()).sum())


def _is_states(value: Tensor) -> bool:
    return value.is_floating_point() and value.ndim == 3
