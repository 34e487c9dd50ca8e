"""DeepLIFT's rescale rule, by captum, where captum's hooks reach everything that is not linear."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from captum.attr import DeepLift
from captum.attr._core.deep_lift import SUPPORTED_NON_LINEAR
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.gradient import SOUNDS, answer_in_one_pass, precise
from attnprobe.methods.paths import allowed, starts, warn_of_gap
from attnprobe.models.model import Model
from attnprobe.models.nonlinear import between
from attnprobe.models.rows import Row
from attnprobe.target import ResolvedTarget

# The classes themselves, as captum asks for them: what is derived from one is not hooked.
KNOWN: tuple[type[nn.Module], ...] = tuple(SUPPORTED_NON_LINEAR)
ADVICE = "use integrated_gradients, or approximate=True, which takes plain gradients there and states the gap"


@methods.add(
    family="gradient",
    source="Shrikumar et al. 2017 (rescale rule); captum DeepLift",
    formula="Σ_d (E − E′)_{jd} m_{jd}, m: product of Δout/Δin over the network",
    cost="4 F, 2 B",
    signed=True,
    passes=lambda size, options: (4, 2),
    lacks=SOUNDS,
)
def deep_lift(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    baseline: str | Tensor | None = None,
    approximate: bool = False,
) -> Scores:
    """Change of the target from a baseline, handed back through slopes Δout/Δin; target units; adds up to the change.

    captum hooks modules such as nn.ReLU, nn.Tanh and nn.Sigmoid that run once. A model with anything else that is not
    linear on the way (GELU, softmax as a function, a norm, a product) is refused, and the first such place named;
    approximate=True takes plain gradients there, and the residual says how far the scores are from adding up.
    baseline as in integrated_gradients.
    """
    ((name, start),) = starts(model, example, baseline).items()
    found = between(model, Row(example), Row(example, embeddings=start), KNOWN)
    if not approximate:
        _refuse(model, found.repeated, found.curved)
    ends = torch.stack([target(row)[0].double().cpu() for row in found.logits])
    change = float(ends[0] - ends[1])
    asked = _Asked(model.module, partial(answer_in_one_pass, model, example, target, None, start.dtype))
    with _hooked(model.module):
        try:
            values = _deep_lift(asked, precise(model.embed(example)), precise(start))
        except RuntimeError as error:
            if "more than once" not in str(error):
                raise
            raise InputError(f"{model.name}: {_repeated(found.repeated)}; use integrated_gradients") from error
    gap = float(values.double().sum()) - change
    most = allowed(1e-3, change, float(ends.abs().max()), start.dtype)
    if not approximate and abs(gap) > most:
        raise InputError(
            f"{model.name}: the scores of deep_lift add up to {change + gap:.4g}, the target changes by {change:.4g}: "
            f"captum does not see all that is not linear in it; {ADVICE}"
        )
    warn_of_gap("deep_lift", gap, change, most, f"with plain gradients where {found.curved or 'captum sees nothing'}")
    return Scores(values, residual=gap, used={"baseline": name, "change": change})


def _refuse(model: Model, repeated: tuple[str, ...], curved: str | None) -> None:
    if repeated:
        raise InputError(f"{model.name}: {_repeated(repeated)}; {ADVICE}")
    if curved is not None:
        names = ", ".join(sorted(kind.__name__ for kind in KNOWN if "Pool" not in kind.__name__))
        raise InputError(f"{model.name}: {curved}, where captum's DeepLift has no hook (it knows {names}); {ADVICE}")


def _repeated(paths: tuple[str, ...]) -> str:
    where = f"'{paths[0]}'" if paths else "a module"
    return f"{where} runs more than once in a pass, and captum's DeepLift tells no runs of one module apart"


class _Asked(nn.Module):
    """The model behind captum's idea of a network: embeddings in, target out."""

    def __init__(self, network: nn.Module, ask: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self.ask = network, ask  # captum hooks what is inside of a network

    def forward(self, embeddings: Float[Tensor, "row token d_model"]) -> Float[Tensor, " row"]:
        """The target of each row."""
        return self.ask(embeddings)


def _deep_lift(asked: nn.Module, end: Tensor, start: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Setting forward, backward hooks")
        inputs = end[None].clone().requires_grad_()
        found = DeepLift(asked).attribute(inputs, baselines=start[None])
    return found[0].sum(-1).detach()  # type: ignore[no-any-return]


@contextmanager
def _hooked(module: nn.Module) -> Iterator[None]:
    """What captum's hooks note on the modules is taken off again, also where no gradient came by."""
    parts = [part for part in module.modules() if type(part) in KNOWN]
    before = [set(vars(part)) for part in parts]
    try:
        yield
    finally:
        for part, names in zip(parts, before, strict=True):
            for name in {"input", "output", "input_ref"} & set(vars(part)) - names:
                delattr(part, name)
