"""Metrics: how well attributions agree with one another, with what the model does, and with what people marked.

agreement: (a [unit], b [unit]) -> float. faithfulness: (model, attribution, *, operator, …) -> float. robustness:
(model, method, example, target, *, …) -> float. plausibility: (attribution, rationale, *, …) -> float.
Adding one means adding a file here or decorating a function anywhere; facts: low, high (range), better ("higher",
"lower" or "none"), default (False: only where it is asked for by name; `compare` computes the others on every order,
random ones too). NaN means that a metric is not defined there.
"""

from attnprobe.registry import Entry, Registry

FACTS = ("low", "high", "better", "default")

agreement = Registry("agreement metric", "attnprobe.metrics", FACTS)
faithfulness = Registry("faithfulness metric", "attnprobe.metrics", FACTS)
robustness = Registry("robustness metric", "attnprobe.metrics", FACTS)
plausibility = Registry("plausibility metric", "attnprobe.metrics", FACTS)

REGISTRIES = (agreement, faithfulness, robustness, plausibility)


def by_default(registry: Registry) -> dict[str, Entry]:
    """The metrics of a registry that are computed where nobody names one."""
    return {name: entry for name, entry in registry.items() if entry.facts.get("default", True)}
