"""attnprobe metrics: what there is to measure explanations by."""

import math
import re
from typing import TYPE_CHECKING, Any

from attnprobe.cli.completion import MetricOrAll
from attnprobe.cli.methods import facts as known_of
from attnprobe.cli.options import Format
from attnprobe.cli.printing import emit, show_note, show_table
from attnprobe.errors import InputError, nearest

if TYPE_CHECKING:
    from attnprobe.registry import Entry

RANGE = re.compile(r"\d to \d|no bound")
DIRECTION = re.compile(r"\b(higher|lower|larger|smaller)\b")
NOTE = """
Agreement: of two attributions, no matter which is right. Faithfulness: of one attribution with what the
model does. Robustness: of a method when its input moves. Plausibility: of one attribution with what people
marked; a plausible explanation need not be faithful. A comparison computes those marked "by default"
unless it asks for others."""


def metrics(name: MetricOrAll = None, /, *, format: Format = "table") -> None:
    """List the metrics: what each measures, its range, which direction is better, where it was published.

    Example:
      attnprobe metrics sufficiency

    Parameters
    ----------
    name
        One metric alone. [default: all]
    """
    from attnprobe.cli.surroundings import quiet

    with quiet():
        from attnprobe.metrics import REGISTRIES

        every = {one: registry[one] for registry in REGISTRIES for one in registry}
        if name is not None and name not in every:
            raise InputError(f"no metric is named '{name}'; {nearest(name, every)}")
        known = [facts(entry) for one, entry in every.items() if name in (None, one)]
    emit(format, lambda: known, lambda: _show(known))


def _show(known: list[dict[str, Any]]) -> None:
    show_table(["name", "family", "what it measures"], [_row(found) for found in known], left={0, 1, 2})
    print()
    show_note(NOTE)


def facts(entry: "Entry") -> dict[str, Any]:
    """What is known of a metric; low and high are the ends of its range, None where it has no such end."""
    known = known_of(entry)
    ends = {name: _end(known.get(name)) for name in ("low", "high")}
    return {
        **{name: known[name] for name in ("name", "family", "description", "source")},
        **ends,
        "better": known.get("better", "none"),
        "default": known.get("default", True),
        "options": known["options"],
    }


def _end(value: int | float | None) -> int | float | None:
    return value if value is not None and math.isfinite(value) else None


def _row(known: dict[str, Any]) -> list[str]:
    options = ", ".join(f"{name}={value}" for name, value in known["options"].items()) or "none"
    low, high = ("no bound" if known[end] is None else f"{known[end]:.3g}" for end in ("low", "high"))
    said = known["description"]
    # Most descriptions say both themselves; once is enough.
    more = [] if RANGE.search(said) else [f"Range: {low} to {high}"]
    if known["better"] != "none" and not DIRECTION.search(said):
        more.append(f"{known['better']} is better")
    line = "; ".join(more) + "." if more else ""
    by_default = "Measured by default." if known["default"] else ""
    parts = [said, f"{line} {by_default}".strip(), f"Source: {known['source']}", f"Options: {options}"]
    return [known["name"], known["family"], "\n".join(filter(None, parts))]
