"""Which methods a comparison runs, and by which operators it judges: the default ones, those named, or all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attnprobe.attributing import Method
from attnprobe.errors import InputError, nearest
from attnprobe.methods import methods as registry
from attnprobe.models.model import Model
from attnprobe.models.removal import checked_operator, default_operator
from attnprobe.models.rows import OPERATORS
from attnprobe.registry import Entry

# One or two of each idea, all of them affordable on any model; the others are asked for by name.
DEFAULT = (
    "raw_attention",
    "rollout",
    "value_norms",
    "attention_x_gradient",
    "chefer_2021b",
    "value_zeroing",
    "input_x_gradient",
    "integrated_gradients",
    "attn_lrp",
    "leave_one_out",
    "occlusion",
    "shapley_sampling",
    "random_scores",
)
Methods = Sequence[Method] | str | None
Operators = Sequence[str] | str | None


def chosen(methods: Methods, options: Mapping[str, Mapping[str, Any]]) -> list[tuple[Entry, dict[str, Any]]]:
    """The methods with all their options; None: the default ones and those that the caller registered; "all".

    Errors: `InputError` for no method, a name that does not exist or comes twice, options of a method not among them.
    """
    entries = [registry.get_entry(method) for method in named(methods)]
    if not entries:
        raise InputError("no method was named; give at least one, or None for the default ones")
    names = [entry.name for entry in entries]
    for entry in entries:
        _check_name(entry, names)
    for name in options:
        if name not in names:
            raise InputError(f"options are given for '{name}', which is not among the methods ({', '.join(names)})")
    return [(entry, entry.check_options(options.get(entry.name, {}))) for entry in entries]


def named(methods: Methods) -> Sequence[Method]:
    """What `methods` stands for: None the default ones and those of the caller, "all" all, else what it says."""
    if methods is None:
        own = [name for name in registry if not registry[name].function.__module__.startswith("attnprobe.methods")]
        return [name for name in registry if name in DEFAULT or name in own]
    if isinstance(methods, str):
        return list(registry) if methods == "all" else [methods]
    return methods


def _check_name(entry: Entry, names: Sequence[str]) -> None:
    """`InputError` for a name that stands for two methods: the tables tell methods apart by their names."""
    give = "give each function a name of its own, such as f.__name__ = 'my_method'"
    if entry.name in registry and entry.function is not registry[entry.name].function:
        raise InputError(f"a registered method is named '{entry.name}' too; {give}")
    if Counter(names)[entry.name] > 1:
        raise InputError(
            f"'{entry.name}' is among the methods {names.count(entry.name)} times; name it once, or {give}"
        )


def operators_of(model: Model, operators: Operators) -> list[str]:
    """The removal operators, each once; None: two that leave the key in the softmax, and one that takes it out.

    The model's default one ([MASK], else the mean embedding), the mean embedding (or what else it has), attention_mask.
    Errors: `InputError` for a name that does not exist, none at all, or a single one that this model lacks.
    """
    if operators is None:
        main = default_operator(model)
        second = next((name for name in ("mean", *model.fillers) if name in model.fillers and name != main), None)
        return [main, *([] if second is None else [second]), "attention_mask"]
    named = [operators] if isinstance(operators, str) else list(dict.fromkeys(operators))
    if not named:
        raise InputError("no operator was named; give at least one, or None for the default ones")
    for name in named:
        if not isinstance(name, str) or name not in OPERATORS:
            raise InputError(f"no removal operator is named '{name}'; {nearest(str(name), OPERATORS)}")
    if len(named) == 1:
        checked_operator(model, named[0], draws=True)
    return named
