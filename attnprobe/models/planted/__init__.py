"""Models built so that the truth about every token is known exactly."""

from attnprobe.errors import InputError, nearest
from attnprobe.models.planted.attention_only import ATTENTION_ONLY
from attnprobe.models.planted.gates import GATES
from attnprobe.models.planted.plan import Plan, PlantedModel, build

PLANS: dict[str, Plan] = {plan.name: plan for plan in (*ATTENTION_ONLY, *GATES)}
NAMES: tuple[str, ...] = tuple(PLANS)


def planted(name: str) -> PlantedModel:
    """A planted model by name, built anew; `InputError` names the nearest one.

    >>> planted("P1").truth.tolist()
    [0.0, 0.0, 1.0, 0.0]
    """
    if name not in PLANS:
        raise InputError(f"no planted model is named '{name}'; {nearest(name, NAMES)}")
    return build(PLANS[name])


__all__ = ["NAMES", "PLANS", "Plan", "PlantedModel", "build", "planted"]
