"""What a part of a network is, told from what it does (affine map, activation, norm), and other code in its place.

Nothing is looked up by name. A function is tried on a few tensors of the shape of its input:

    affine      f(a) + f(b) − f(0) = f(a + b)                          Linear, Conv1D, dropout at rest
    activation  each entry of f(x) follows from that entry of x alone  GELU, tanh, sigmoid
    norm        f(x) = (x − m) gain / σ + shift, σ one number a position; m is the mean or 0     LayerNorm, RMSNorm

A norm is then `(x − m) * coefficient + shift` (`Norm`), an activation `slope * x` (`slope`): with coefficient and slope
held fast both are linear, which is what decompositions into parts and rules of relevance need.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

Kind = Literal["affine", "activation", "norm"]
Function = Callable[[Tensor], Tensor]
Rule = Callable[..., Any]

# How far two ways of computing the same may differ, of the largest number in them.
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 6e-2, torch.float16: 1e-2}
# Parts of a float64 model may work in float32 inside (norms do): telling what a part is allows for that.
COARSE = ROUNDING[torch.float32]
# Whatever is smooth looks linear to small numbers: a function is linear only if it is so for numbers of this size.
LARGE = 3.0
# What a function says of numbers that it cannot take.
FAILURES = (RuntimeError, TypeError, ValueError, IndexError)


def noise_like(x: Float[Tensor, " *shape"], seed: int = 0, least: float = 0.0) -> Float[Tensor, " *shape"]:
    """Numbers of the size of x (at least `least`), the same for the same seed and shape; global generators stay."""
    generator = torch.Generator().manual_seed(seed)
    size = x.detach().double().pow(2).mean().sqrt() if x.numel() else torch.ones(())
    size = torch.where(torch.isfinite(size) & (size > 0), size, 1.0).clamp(min=least)
    return (torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device) * size.to(x.device)).to(x.dtype)


def alike(a: Tensor, b: Tensor, size: float = 0.0, rounding: float = 0.0) -> bool:
    """Whether two tensors are the same but for rounding, of the largest number in them (or `size`); NaN is not.

    rounding: at least this much, where something coarser went before.
    """
    if a.shape != b.shape:
        return False
    if not a.numel():
        return True
    largest = max(size, float(a.abs().max()), float(b.abs().max()))
    if not largest < float("inf"):
        return torch.equal(a, b)
    return float((a - b).abs().max()) <= max(rounding, ROUNDING.get(a.dtype, 1e-4)) * max(largest, 1e-30)


def coarsest(tensors: Iterable[Tensor]) -> float:
    """The rounding of the coarsest type among tensors."""
    return max((ROUNDING.get(tensor.dtype, 1e-4) for tensor in tensors), default=0.0)


def widened(leaf: Any) -> Any:
    """Numbers of a type coarser than float32 in float32, so that rounding does not hide what a function is."""
    return leaf.float() if isinstance(leaf, Tensor) and leaf.dtype in (torch.bfloat16, torch.float16) else leaf


def probe(x: Float[Tensor, " *shape"], seed: int) -> Float[Tensor, " *shape"]:
    """Numbers of size 1 of the shape and type of x, whatever the size of x."""
    if x.is_complex():
        return torch.complex(probe(x.real, seed), probe(x.imag, seed + 100))
    return noise_like(torch.ones_like(x), seed)


def is_straight(function: Callable[[dict[int, Tensor]], list[Tensor]], like: dict[int, Tensor]) -> bool:
    """Whether f(a) + f(b) − f(0) = f(a + b), in all tensors together, for a and b of sizes 1 and LARGE.

    like: tensors of which shape and type are used, not the numbers. Errors: those of the function.
    """
    first, second = ({index: probe(x, index + seed) for index, x in like.items()} for seed in (1, 51))
    at_zero = function({index: torch.zeros_like(x) for index, x in like.items()})
    rounding = coarsest(like.values())
    for left, right in ((1.0, LARGE), (-LARGE, LARGE)):  # in turn of one sign and of two, even for a single number
        a = {index: left * x for index, x in first.items()}
        b = {index: right * x for index, x in second.items()}
        pieces = function(a), function(b), at_zero, function({index: a[index] + b[index] for index in like})
        if not all(_adds_up(*four, rounding) for four in zip(*pieces, strict=True)):
            return False
    return True


def _adds_up(a: Tensor, b: Tensor, zero: Tensor, whole: Tensor, rounding: float) -> bool:
    """Whether (a − zero) + (b − zero) = whole − zero but for rounding; what is not finite must be so in all."""
    if a.shape != zero.shape or b.shape != zero.shape or whole.shape != zero.shape:
        return False
    finite = torch.isfinite(zero)
    if any(not torch.equal(torch.isfinite(t), finite) for t in (a, b, whole)):
        return False
    first, second, both = (torch.where(finite, t - zero, 0.0) for t in (a, b, whole))
    if not both.numel():
        return True
    rounding = max(rounding, ROUNDING.get(zero.dtype, 1e-4))
    size = max(float(first.abs().max()), float(second.abs().max()), float(both.abs().max()), 1e-30)
    lost = torch.where(finite, zero.abs(), 0.0) * (8 * torch.finfo(zero.dtype).eps)
    return bool(((first + second - both).abs() <= rounding * size + lost).all())


@torch.no_grad()
def is_affine(function: Function, x: Tensor) -> bool:
    """Whether a function of one tensor is linear but for a constant, as far as LARGE, whatever the size of x."""
    try:
        return is_straight(lambda given: [function(given[0])], {0: x})
    except FAILURES:
        return False


@torch.no_grad()
def is_entrywise(function: Function, x: Tensor) -> bool:
    """Whether each entry of the output follows from the same entry of x: other entries are changed and it stays."""
    output = function(x)
    if output.shape != x.shape:
        return False
    for seed in (1, 2):
        stays = noise_like(torch.ones(x.shape), seed).to(x.device) > 0
        changed = function(torch.where(stays, x, noise_like(x, seed + 2, least=LARGE)))
        if not alike(changed[stays], output[stays], rounding=COARSE):
            return False
    return True


@torch.no_grad()
def goes_through_origin(function: Function, x: Tensor) -> bool:
    """Whether an entrywise function gives 0 for 0."""
    return alike(at_zero := function(torch.zeros_like(x)), torch.zeros_like(at_zero), 1.0)


def slope(function: Function, x: Float[Tensor, " *shape"]) -> Float[Tensor, " *shape"]:
    """f(x) / x entry by entry, and f'(0) where x is 0: the slope of the line from the origin to the point on f."""
    with torch.no_grad():
        output = function(x)
    zero = x.abs() < torch.finfo(x.dtype).tiny
    if not bool(zero.any()):
        return output / x
    with torch.enable_grad():
        start = x.detach().clone().requires_grad_()
        answer = function(start)
        found = torch.autograd.grad(answer.sum(), start)[0] if answer.requires_grad else torch.zeros_like(x)
    return torch.where(zero, found, output / x.where(~zero, 1.0))


@dataclass(frozen=True, eq=False)
class Norm:
    """A norm with its σ held fast: output = (x − m) coefficient + shift; m is the mean over the last axis, or 0.

    error: how far this is from what the norm gave, of the largest number in it.
    """

    centred: bool
    coefficient: Float[Tensor, "*position d"]
    shift: Float[Tensor, "*#position d"]
    error: float = 0.0

    def __call__(self, x: Float[Tensor, "*lead d"]) -> Float[Tensor, "*lead d"]:
        """The linear part: what becomes of a part of the input (σ is that of the whole)."""
        return (x - x.mean(-1, keepdim=True) if self.centred else x) * self.coefficient


@torch.no_grad()
def norm_of(function: Function, x: Float[Tensor, "*position d"]) -> Norm | None:
    """The function as a norm over the last axis at x; None where it is none, which is tried by numbers."""
    if x.ndim < 2 or x.shape[-1] < 2:
        return None
    shift = function(torch.zeros_like(x))
    if shift.shape != x.shape or not bool(torch.isfinite(shift).all()):
        return None
    # Rows without a mean and of one length: the number that keeps a norm from dividing by 0 acts on all alike.
    trial = noise_like(torch.ones_like(x), seed=5).flatten(0, -2)
    trial = trial - trial.mean(-1, keepdim=True)
    trial = (trial / trial.pow(2).mean(-1, keepdim=True).sqrt()).view_as(x)
    answer = function(trial) - shift
    best = trial.abs().flatten(0, -2).argmax(0, keepdim=True)
    gain = (answer.flatten(0, -2).gather(0, best) / trial.flatten(0, -2).gather(0, best))[0]
    if not bool(gain.any()) or not alike(answer, trial * gain, rounding=COARSE):
        return None
    leaning = trial + noise_like(torch.ones_like(x[..., :1]), seed=6)
    for centred in (True, False):
        found = _fitted(function, x, gain, shift, centred)
        if found is not None and _fitted(function, leaning, gain, shift, centred) is not None:
            return found
    return None


def _fitted(function: Function, x: Tensor, gain: Tensor, shift: Tensor, centred: bool) -> Norm | None:
    """The norm with this gain that comes nearest to the function at x; None where that is not near."""
    output = function(x)
    direction = (x - x.mean(-1, keepdim=True) if centred else x) * gain
    length = direction.double().pow(2).sum(-1, keepdim=True)
    along = ((output - shift).double() * direction.double()).sum(-1, keepdim=True)
    coefficient = (along / length.where(length > 0, 1.0)).to(x.dtype) * gain
    found = Norm(centred, coefficient, shift)
    off = float((found(x) + shift - output).abs().max()) / max(float(output.abs().max()), 1e-30)
    return replace(found, error=off) if off <= max(COARSE, ROUNDING.get(x.dtype, COARSE)) else None


def kind_of(module: nn.Module, x: Any, function: Function | None = None) -> Kind | None:
    """What an innermost module is, on the input that it saw; None for anything else (look-ups, products, attention).

    function: the module's function of that one tensor, where it takes more than that. Errors of the module itself are
    no answer: None.
    """
    if next(module.children(), None) is not None or not isinstance(x, Tensor) or not x.is_floating_point():
        return None
    run = module.forward if function is None else function
    try:
        with torch.no_grad():
            if not isinstance(run(x), Tensor):
                return None
        own = next((p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()), None)
        if is_affine(run, widened(x) if own is None else x):  # parameters ask for numbers of their own type
            return "affine"
        if is_entrywise(run, x):
            return "activation"
        return "norm" if norm_of(run, x) is not None else None
    except FAILURES:
        return None


@dataclass
class _Replaced:
    """A module whose forward is replaced: the one of before (None: that of its class), and who replaced it by what."""

    own: Any
    rules: list[tuple[int, object, Rule]] = field(default_factory=list)


_lock = threading.Lock()
_replaced: dict[int, _Replaced] = {}


@contextmanager
def replacing(rules: Mapping[nn.Module, Rule]) -> Iterator[None]:
    """Within the block, in this thread, `rule(forward, *args, **kwargs)` runs in the place of each module's forward.

    Blocks nest, the innermost rule runs and `forward` is what was there before it. Other threads that run the modules
    meanwhile get the modules' own. Whatever happens, each module is left as it was.
    """
    owner, mine = threading.get_ident(), object()
    done: list[nn.Module] = []
    try:
        for module, rule in rules.items():
            with _lock:
                entry = _replaced.get(id(module))
                if entry is None:
                    entry = _replaced[id(module)] = _Replaced(module.__dict__.get("forward"))
                    module.forward = _switch(module, entry)
                entry.rules.append((owner, mine, rule))
            done.append(module)
        yield
    finally:
        for module in done:
            with _lock:
                entry = _replaced[id(module)]
                entry.rules = [given for given in entry.rules if given[1] is not mine]
                if not entry.rules:
                    _put_back(module, entry.own)


def _put_back(module: nn.Module, own: Any) -> None:
    del _replaced[id(module)]
    if own is None:
        del module.__dict__["forward"]
    else:
        module.__dict__["forward"] = own


def _switch(module: nn.Module, entry: _Replaced) -> Callable[..., Any]:
    """Runs the rule of this thread, or else the module's own forward."""
    plain = entry.own if entry.own is not None else module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        mine = [rule for owner, _, rule in tuple(entry.rules) if owner == threading.get_ident()]
        return _chain(plain, mine)(*args, **kwargs)

    return forward


def _chain(plain: Callable[..., Any], rules: list[Rule]) -> Callable[..., Any]:
    """The last rule, whose `forward` is the one before it, down to the module's own."""
    if not rules:
        return plain
    before = _chain(plain, rules[:-1])
    return lambda *args, **kwargs: rules[-1](before, *args, **kwargs)
