"""attnprobe methods: what there is."""

import inspect
import json
from typing import TYPE_CHECKING, Any, Literal

from attnprobe.cli.output import table

if TYPE_CHECKING:
    from attnprobe.registry import Entry


def methods(*, format: Literal["table", "json"] = "table") -> None:
    """List the methods: what each says of a word, where it was published, what it costs.

    Parameters
    ----------
    format
        A table to read, or json for programs.
    """
    from attnprobe.cli.surroundings import quiet

    with quiet():
        from attnprobe.methods import methods as registry

        entries = [registry[name] for name in registry]
    if format == "json":
        print(json.dumps([facts(entry) for entry in entries], indent=2, ensure_ascii=False))
        return
    print(table(["name", "family", "what it says"], [_row(entry) for entry in entries]))
    print("\nCost: F is a run of the model, B a run backwards, n the number of tokens.")


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
