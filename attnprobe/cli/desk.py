"""What the commands of heads share: names of scores, effects and stacks as they are typed."""

from collections.abc import Sequence
from typing import Any

from attnprobe.errors import InputError, nearest


def scores_named(given: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of head scores; None for all."""
    from attnprobe.heads import head_scores

    return None if given is None else _checked(given, head_scores, "--score")


def effects_named(given: Sequence[str] | None, default: Sequence[str]) -> tuple[str, ...]:
    """Names of head effects, the default ones, or none; those that need another input cannot be asked for here."""
    from attnprobe.heads import head_effects

    if given is None:
        return tuple(default)
    if list(given) == ["none"]:
        return ()
    names = _checked(given, head_effects, "--effect")
    for name in names:
        if "corrupt" in head_effects[name].options:
            known = [known for known in head_effects if "corrupt" not in head_effects[known].options]
            raise InputError(f"{name} compares two inputs, which a command does not take; here: {', '.join(known)}")
    return names


def probes_named(given: Sequence[str] | None) -> tuple[str, ...]:
    """Names of probe scores; none by default."""
    from attnprobe.heads import probe_scores

    return () if given is None else _checked(given, probe_scores, "--probe")


def stack_named(model: Any, given: str | None) -> tuple[str | None, Any]:
    """Stack and kind of a name such as decoder, cross or decoder.cross; (None, None) for all."""
    if given is None:
        return None, None
    fitting = [s for s in model.stacks if given in (s.name, s.kind, f"{s.name}.{s.kind}")]
    if not fitting:
        known = list(dict.fromkeys(f"{s.name}.{s.kind}" for s in model.stacks))
        raise InputError(f"{model.name} has no stack '{given}'; {nearest(given, known)}")
    names, kinds = {s.name for s in fitting}, {s.kind for s in fitting}
    return (names.pop() if len(names) == 1 else None), (kinds.pop() if len(kinds) == 1 else None)


def _checked(given: Sequence[str], registry: Any, flag: str) -> tuple[str, ...]:
    names = list(dict.fromkeys(name.strip() for word in given for name in word.split(",") if name.strip()))
    if not names:
        raise InputError(f"{flag} names nothing; give a name, or several with commas between")
    for name in names:
        _check_kind(name, flag)
    return tuple(registry[name].name for name in names)


def _check_kind(name: str, flag: str) -> None:
    """`InputError` that names the right flag, for what is known as something else."""
    from attnprobe.heads import head_effects, head_scores, probe_scores

    known = {"--score": head_scores, "--effect": head_effects, "--probe": probe_scores}
    right = next((other for other, registry in known.items() if name in registry), flag)
    if name not in known[flag] and right != flag:
        raise InputError(f"{name} is asked for by {right}, not by {flag}: {right} {name}")
