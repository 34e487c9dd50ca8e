"""Head scores: what each head of a stack does on one example, as functions (capture) -> [layer head].

A capture of several stacks is asked one stack at a time (`capture.only(stack, kind)`); `score_heads` does it for
all. Adding one means adding a file here or decorating a function anywhere; facts: label (for people), low, high,
unit ("share" or "number"). NaN where a score has no meaning (the previous token of a cross-attention).
"""

import pandas as pd

from attnprobe.capture import Capture, head_numbers
from attnprobe.registry import Registry

head_scores = Registry("head score", "attnprobe.heads", ("label", "low", "high", "unit"))


def score_heads(capture: Capture) -> pd.DataFrame:
    """A row a head, a column a score: stack, kind, layer, head, then every registered head score.

    Layers and heads have the model's numbers, also where a capture kept only some of them.
    """
    from attnprobe.heads.whole import whole

    capture, parts = whole(capture), []
    for stack, kind in capture.stacks():
        part = capture.only(stack, kind)
        scores = {name: entry.function(part) for name, entry in head_scores.items()}
        places = [(site.place.layer, head) for site in part.sites for head in head_numbers(site)]
        index = pd.MultiIndex.from_tuples(places, names=["layer", "head"])
        frame = pd.DataFrame({name: score.reshape(-1).numpy() for name, score in scores.items()}, index=index)
        parts.append(frame.reset_index().assign(stack=stack, kind=kind))
    table = pd.concat(parts, ignore_index=True)
    return table[["stack", "kind", "layer", "head", *head_scores]]
