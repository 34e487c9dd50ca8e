"""attribute(): the one place where a method is called and its answer checked; passes(): what that will cost."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.capture import finite
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, Size, methods
from attnprobe.models import load
from attnprobe.models.evaluator import Meter, batch_rows
from attnprobe.models.model import Model
from attnprobe.models.reading import explained_stack, kind_of
from attnprobe.registry import Entry
from attnprobe.target import ResolvedTarget, as_target

Method = str | Callable[..., Any] | Entry


class Passes(NamedTuple):
    """Single-row passes that a method will need, before any tolerance makes it take more."""

    forward: int
    backward: int


def passes(model: Any, example: Any, method: Method, target: Any = None, **options: Any) -> Passes:
    """Forward and backward passes that `attribute` with the same arguments will run, told before it runs.

    Equal rows are run once, so it may be fewer; a method that raises its steps until a tolerance is met may take more,
    and so may the first call on a model or text, which finds out what later ones know (position read, projections).
    Errors: as `attribute`, and `InputError` for a method that does not say.
    """
    model, entry, options, example, resolved = _asked(model, example, method, target, options)
    tell = entry.facts.get("passes")
    if tell is None:
        raise InputError(f"{entry.name} does not say what it costs; register it with passes=(size, options) -> …")
    return Passes(*tell(_size(model, example, resolved), options))


def _size(model: Model, example: Example, target: ResolvedTarget) -> Size:
    stack = explained_stack(model, example)
    last = example.n_tokens if target.last_seen is None else target.last_seen + 1
    n_units = sum(not special for special in example.is_special[:last])
    return Size(example.n_tokens, n_units, stack.n_layers, max(stack.n_heads))


def _asked(
    model: Any, example: Any, method: Method, target: Any, options: dict[str, Any]
) -> tuple[Model, Entry, dict[str, Any], Example, ResolvedTarget]:
    """What was asked for, read and checked; a kind of model that the method does not do is refused with its reason."""
    if torch.is_inference_mode_enabled():
        raise InputError(
            "tensors made in torch.inference_mode have no gradients; leave it (torch.no_grad does no harm)"
        )
    model = load(model)
    if any(parameter.is_inference() for parameter in model.module.parameters()):
        raise InputError(
            f"parameters of {model.name} were made within torch.inference_mode, so that nothing can be watched or "
            "differentiated through them; load the model outside of it"
        )
    entry = methods.get_entry(method)
    options = entry.check_options(options)
    example = example if isinstance(example, Example) else model.example(example)
    lacks = entry.facts.get("lacks") or {}
    if lacks and (reason := lacks.get(kind := kind_of(model, example))):
        named = {"seq2seq": "encoder-decoder", "vision": "picture", "audio": "sound"}.get(kind, kind)
        raise InputError(f"{entry.name} does not do a model of this kind ({named}): {reason}")
    resolved = target if isinstance(target, ResolvedTarget) else model.resolve(example, as_target(target))
    return model, entry, options, example, resolved


def attribute(
    model: Any, example: Any, method: Method, target: Any = None, *, batch_size: int | None = None, **options: Any
) -> Attribution:
    """What `method` says of how much each token supports the target, with its options, cost and warnings.

    model: a `Model`, or anything `load` takes. example: an `Example`, or anything that model reads. method: a
    name from the registry, or any function of that form. target: a `Target`, the name or number of a label, or
    None for what the model predicts. batch_size: rows a pass (None: by length); the scores do not depend on it.
    options: the method's keyword arguments.
    Errors: `InputError` for a name or option that does not exist, a kind of model that the method does not do, an
    answer that is no score a token, or within torch.inference_mode; `NumericsError` for a NaN.
    """
    model, entry, options, example, resolved = _asked(model, example, method, target, options)
    rows_at_once = nullcontext() if batch_size is None else batch_rows(batch_size)
    with Meter() as meter, rows_at_once, torch.enable_grad(), warnings.catch_warnings(record=True) as caught:
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
        fit=scores.fit,
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
