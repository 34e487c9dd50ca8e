"""attribute(): the one place where a method is called and its answer checked."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.capture import finite
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.models import load
from attnprobe.models.evaluator import Meter
from attnprobe.registry import Entry
from attnprobe.target import ResolvedTarget, as_target

Method = str | Callable[..., Any] | Entry


def attribute(model: Any, example: Any, method: Method, target: Any = None, **options: Any) -> Attribution:
    """What `method` says of how much each token supports the target, with its options, cost and warnings.

    model: a `Model`, or anything `load` takes. example: an `Example`, or anything that model reads. method: a
    name from the registry, or any function of that form. target: a `Target`, the name or number of a label, or
    None for what the model predicts. options: the method's keyword arguments.
    Errors: `InputError` for a name or option that does not exist, an answer that is no score a token, or within
    torch.inference_mode; `NumericsError` for a NaN.
    """
    if torch.is_inference_mode_enabled():
        raise InputError(
            "tensors made in torch.inference_mode have no gradients; leave it (torch.no_grad does no harm)"
        )
    model = load(model)
    entry = methods.get_entry(method)
    options = entry.check_options(options)
    example = example if isinstance(example, Example) else model.example(example)
    resolved = target if isinstance(target, ResolvedTarget) else model.resolve(example, as_target(target))
    with Meter() as meter, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        answer = entry.function(model, example, resolved, **options)
    scores = answer if isinstance(answer, Scores) else Scores(answer)
    values = _checked(entry.name, scores.values, example)
    told = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    if bool((values == 0).all()):
        told.append(
            f"{entry.name} gives 0 to every token: it sees no influence here, which need not mean that there is none"
        )
    for message in told:
        warnings.warn(message, stacklevel=2)
    return Attribution(
        method=entry.name,
        family=entry.family,
        example=example,
        target=resolved,
        scores=values,
        signed=bool(entry.facts.get("signed", True)),
        map=None if scores.map is None else scores.map.detach().float().cpu(),
        residual=scores.residual,
        standard_error=scores.standard_error,
        options=options,
        used=scores.used,
        model=model.name,
        forward_passes=meter.forward,
        backward_passes=meter.backward,
        seconds=meter.seconds,
        warnings=tuple(dict.fromkeys(told)),
    )


def _checked(name: str, values: Any, example: Example) -> Tensor:
    """The scores as float32 on the CPU, or an error that says what the method gave instead."""
    if not isinstance(values, Tensor):
        try:
            values = torch.as_tensor(values)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"{name} returned {type(values).__name__}, expected one score a token") from error
    if values.is_complex():
        raise InputError(f"{name} returned complex numbers, expected one real score a token")
    if tuple(values.shape) != (example.n_tokens,):
        raise InputError(
            f"{name} gave scores of shape {tuple(values.shape)}, expected one a token ({example.n_tokens},)"
        )
    return finite(name, values.detach().float().cpu())
