"""What is asked of heads: scores, effects and probes by name or as functions, each with its options."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnprobe.errors import InputError
from attnprobe.heads.rows import listed
from attnprobe.registry import Entry, Registry

TAKEN = ("stack", "kind", "layer", "head", "n", "example_index")  # columns that are no scores
FEWEST_OTHERS = 4  # other examples that an effect of other inputs takes them from, where it was given none

Asked = str | Callable[..., Any] | Entry
Wanted = Asked | Iterable[Asked] | Mapping[Any, Mapping[str, Any]] | None
Choice = tuple[Entry, dict[str, Any]]


@dataclass(frozen=True)
class Choices:
    """What a profile asks of each head, with options."""

    scores: tuple[Choice, ...]
    effects: tuple[Choice, ...]
    probes: tuple[Choice, ...]

    def __post_init__(self) -> None:
        names = [entry.name for _, entry, _ in self.named()]
        if not names:
            raise InputError("nothing is asked of the heads; name a score, an effect or a probe")
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"two of the scores are named '{twice}'; a column has one name, so rename one")
        taken = next((name for name in names if name in TAKEN), None)
        if taken is not None:
            raise InputError(
                f"'{taken}' is a column of every profile ({', '.join(TAKEN)}); give the function another name"
            )

    def named(self) -> Iterator[tuple[str, Entry, dict[str, Any]]]:
        """Form ("score", "effect", "probe"), entry and options of each."""
        for form, chosen in (("score", self.scores), ("effect", self.effects), ("probe", self.probes)):
            for entry, options in chosen:
                yield form, entry, options


def chosen_of(registry: Registry, wanted: Wanted, seed: int | None = None) -> tuple[Choice, ...]:
    """Entries with all their options; the seed of the profile goes to those that draw."""
    if wanted is None:
        wanted = list(registry)
    if isinstance(wanted, str | Entry) or not isinstance(wanted, Iterable):
        wanted = [wanted]  # one, which the registry refuses where it is no name and no function
    found = []
    for name in wanted:
        entry, mine = registry.get_entry(name), listed(wanted[name]) if isinstance(wanted, Mapping) else {}
        if seed is not None and "seed" in entry.options:
            mine = {"seed": seed, **mine}
        found.append((entry, entry.check_options(mine)))
    return tuple(found)


def takes_others(entry: Entry, options: Mapping[str, Any]) -> bool:
    """Whether an effect has no meaning without other inputs, and was given none: the other examples are taken."""
    return entry.name == "resample_ablation" and options.get("data") is None


def never_of(entry: Entry, options: Mapping[str, Any], given: Sequence[Any]) -> str:
    """Why an effect cannot be measured on any of these examples; "" where it can."""
    if "corrupt" in options and options["corrupt"] is None:
        return (
            "it compares each example with a corrupt input, which a profile of texts does not have; use "
            f"head_effect(model, pair(model, clean, corrupt), '{entry.name}')"
        )
    if takes_others(entry, options) and len(given) <= FEWEST_OTHERS:
        return (
            f"it takes z from other inputs, and {len(given) - 1} other examples are too few; give {FEWEST_OTHERS + 1} "
            f"examples or more, or {{'{entry.name}': {{'data': […]}}}}"
        )
    return ""
