"""attnprobe mechanisms: what attention there is to build with, and to put in the place of a model's own."""

from typing import TYPE_CHECKING, Any

from attnprobe.cli.methods import facts as known_of
from attnprobe.cli.options import Format
from attnprobe.cli.printing import emit, show_note, show_table

if TYPE_CHECKING:
    from attnprobe.registry import Entry

NOTE = """
Cost: n is the number of tokens. Mask: which keys a query may look at.
Bias: numbers added to scores. Map: the weights, z = map · values, with default
options. Many compute z without it, and form it only to be looked at."""

ROW_SUMS = {"one": "rows sum to 1", "at_most_one": "rows sum to 1 or less", "any": "rows sum to anything"}


def mechanisms(*, format: Format = "table") -> None:
    """List the mechanisms of attention, and the changes that `attnprobe swap` can make.

    What each computes, where it was published, what it costs.
    """
    from attnprobe.cli.surroundings import quiet

    with quiet():
        from attnprobe.attention.mechanisms import mechanisms as registry
        from attnprobe.attention_swap import changes

        known = [facts(registry[name]) for name in registry]
        known += [change_facts(changes[name]) for name in changes if name not in registry]
    emit(format, lambda: known, lambda: _show(known))


def _show(known: list[dict[str, Any]]) -> None:
    show_table(["name", "family", "what it does"], [_row(found) for found in known], left={0, 1, 2})
    print()
    show_note(NOTE)


def facts(entry: "Entry") -> dict[str, Any]:
    """What is known of a mechanism: the first four as of a method; row_sum with its default options."""
    from attnprobe.attention.mechanisms import ASKED, Mechanism

    known = known_of(entry)
    options = {name: default for name, default in known["options"].items() if name not in ASKED}
    first = {name: known[name] for name in ("name", "family", "description", "source")}
    takes = {"takes_mask": "visible" in known["options"], "takes_bias": "bias" in known["options"]}
    rest = {name: known.get(name, "not said") for name in ("formula", "meaning", "cost")}
    rest["row_sum"] = Mechanism(entry, entry.options).row_sum
    return {**first, "options": options, **rest, **takes, "used_by": "Mechanism.of, swap"}


def change_facts(entry: "Entry") -> dict[str, Any]:
    """What is known of a change of a model's own weights, which `swap` alone can put there."""
    known = known_of(entry)
    first = {name: known[name] for name in ("name", "family", "description", "source", "options")}
    return {**first, "formula": None, "meaning": None, "cost": "n²", "row_sum": None, "used_by": "swap"}


def _row(known: dict[str, Any]) -> list[str]:
    options = ", ".join(f"{name}={value}" for name, value in known["options"].items()) or "none"
    if known["used_by"] == "swap":
        parts = [known["description"], f"Source: {known['source']}", "For swap alone, in the model's own weights."]
        return [known["name"], known["family"], "\n".join([*parts, f"Options: {options}"])]
    taken = [what for what in ("mask", "bias") if known[f"takes_{what}"]]
    takes, rows = " and ".join(taken) or "neither mask nor bias", ROW_SUMS[known["row_sum"]]
    parts = [
        known["description"],
        f"Formula: {known['formula']}",
        f"A weight is: {known['meaning']}",
        f"Source: {known['source']}",
        f"Cost: {known['cost']}. Takes: {takes}. Map: {rows}",
        f"Options: {options}",
    ]
    return [known["name"], known["family"], "\n".join(parts)]
