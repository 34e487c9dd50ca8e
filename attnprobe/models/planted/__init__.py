"""Models built so that the truth about every token is known exactly."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from attnprobe.errors import InputError, nearest
from attnprobe.models.planted import attention_only, causal, gates, structures
from attnprobe.models.planted.building import acts_one_by_one, build, worths
from attnprobe.models.planted.plan import Plan, PlantedModel, reordered

_MODULES = (attention_only, structures, gates, causal)
_ORDER = (
    *("p1", "p1c", "p2", "p3a", "p3b", "p4", "p5", "p6", "p7", "p8", "p9", "p9_unequal", "p10", "p11", "p12"),
    *("p13a", "p13b", "p13c", "p14", "p15", "p16", "p17", "p18", "p19", "p20"),
)
_FOUND = {name: getattr(module, name) for module in _MODULES for name in _ORDER if hasattr(module, name)}

PLANS: dict[str, Plan] = {plan.name: plan for plan in (_FOUND[name]() for name in _ORDER)}
NAMES: tuple[str, ...] = tuple(PLANS)
RECIPES: dict[str, Callable[..., Plan]] = dict(zip(NAMES, (_FOUND[name] for name in _ORDER), strict=True))


def planted(
    name: str,
    *,
    n_tokens: int | None = None,
    order: Sequence[int] | None = None,
    rotation: int | None = None,
    noise: float = 0.0,
    seed: int = 0,
    **constants: Any,
) -> PlantedModel:
    """A planted model by name, built anew.

    n_tokens: more than the plan has are distractors, which have attention and content and no influence. order: the
    tokens' places, by their number in the plan. rotation: seed of a random basis of the residual stream. noise: share
    of each weight that is Gaussian noise, drawn from `seed`; y and truth are then those of the noisy network.
    constants: those of the recipe (`inspect.signature(RECIPES[name])`).
    Errors: `InputError` for a name or constant that does not exist, or fewer tokens than the plan has.

    >>> planted("P1").truth.tolist()
    [0.0, 0.0, 1.0, 0.0]
    >>> planted("P1", n_tokens=6, order=[0, 5, 2, 1, 4, 3]).truth.tolist()
    [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    """
    if name not in RECIPES:
        raise InputError(f"no planted model is named '{name}'; {nearest(name, NAMES)}")
    known = [option for option in inspect.signature(RECIPES[name]).parameters if option != "n_tokens"]
    for option in constants:
        if option not in known:
            raise InputError(f"{name} has no constant '{option}'; {nearest(option, known or ['(none)'])}")
    plan = RECIPES[name](n_tokens, **constants)
    plan = plan if order is None else reordered(plan, order)
    given = {"n_tokens": n_tokens, "order": order, "rotation": rotation, "noise": noise or None, **constants}
    variant = {key: value for key, value in given.items() if value is not None}
    return build(plan, rotation=rotation, noise=noise, seed=seed, variant=variant)


def to_huggingface(made: PlantedModel, **options: Any) -> PlantedModel:
    """The same plan as a BERT or GPT-2 of transformers, whose norms do nothing: y and weights agree to 1e-4.

    options: attention ("eager" or "sdpa"), dtype. Errors: `InputError` for cross-attention, and for a model that was
    turned or made noisy.
    """
    from attnprobe.models.huggingface.planting import to_huggingface as export

    return export(made, **options)


__all__ = [
    "NAMES",
    "PLANS",
    "RECIPES",
    "Plan",
    "PlantedModel",
    "acts_one_by_one",
    "build",
    "planted",
    "to_huggingface",
    "worths",
]
