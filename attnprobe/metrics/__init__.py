"""Metrics: how well attributions agree with one another, and with what the model does.

agreement: (a [unit], b [unit]) -> float. faithfulness: (model, attribution, *, operator, ...) -> float.
Adding one means adding a file here or decorating a function anywhere; facts: low, high (range), better
("higher", "lower" or "none").
"""

from attnprobe.registry import Registry

FACTS = ("low", "high", "better")

agreement = Registry("agreement metric", "attnprobe.metrics", FACTS)
faithfulness = Registry("faithfulness metric", "attnprobe.metrics", FACTS)
