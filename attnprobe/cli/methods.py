"""attnprobe methods: what there is."""

import inspect
from typing import TYPE_CHECKING, Any

from attnprobe.cli.completion import MethodOrAll
from attnprobe.cli.options import Format
from attnprobe.cli.printing import emit, show_note, show_table

if TYPE_CHECKING:
    from attnprobe.registry import Entry


def methods(name: MethodOrAll = None, /, *, format: Format = "table") -> None:
    """List the methods: what each says of a word, where it was published, what it costs.

    Example:
      attnprobe methods rollout

    Parameters
    ----------
    name
        One method alone. [default: all]
    """
    from attnprobe.cli.surroundings import quiet

    with quiet():
        from attnprobe.methods import methods as registry

        entries = [registry[one] for one in ([name] if name is not None else registry)]
    emit(format, lambda: [facts(entry) for entry in entries], lambda: _show(entries))


def _show(entries: "list[Entry]") -> None:
    show_table(["name", "family", "what it says"], [_row(entry) for entry in entries], left={0, 1, 2})
    print()
    show_note("Cost: F is a run of the model, B a run backwards, n the number of tokens.")


def facts(entry: "Entry") -> dict[str, Any]:
    """What is known of a method: the first four, then options with their defaults, formula, cost, signed."""
    required = inspect.Parameter.empty
    return {
        "name": entry.name,
        "family": entry.family,
        "description": entry.description,
        "source": entry.source,
        "options": {name: "required" if value is required else value for name, value in entry.options.items()},
        **{name: fact for name, fact in entry.facts.items() if not callable(fact)},
    }


def _row(entry: "Entry") -> list[str]:
    known = facts(entry)
    options = ", ".join(f"{name}={value}" for name, value in known["options"].items()) or "none"
    parts = [known["description"], f"Source: {known['source']}", f"Cost: {known.get('cost', '?')}. Options: {options}"]
    return [entry.name, entry.family, "\n".join(parts)]
