"""What each head of a stack does, as plain functions in four registries.

head_scores: (capture of one stack) -> [layer head], what its weights look like on an example; probe_scores: (model,
stack, *, seed, …) -> [layer head], on inputs of their own making or from the parameters alone; head_pairs: (model,
stack, …) -> [layer head layer head], what the first head writes for the second; head_effects: (model, example, target,
stack, …) -> [layer head], what the target owes to each.
Adding one means adding a file here or decorating a function anywhere; facts: label (for people), low, high (None: no
bound), unit ("share", "nats", "tokens", "patches", "number", which has none, or "target": that of the target's scale).
NaN where a score has no meaning (the previous token of a cross-attention), or where a layer has fewer heads than
another.
"""

import pandas as pd

from attnprobe.capture import Capture, head_numbers
from attnprobe.registry import Registry

# needs: without what a score has no number. sign: what an effect above 0 means.
FACTS = ("label", "low", "high", "unit", "needs", "sign")

head_scores = Registry("head score", "attnprobe.heads", FACTS)
probe_scores = Registry("probe score", "attnprobe.heads", FACTS)
head_pairs = Registry("score of pairs of heads", "attnprobe.heads", FACTS)
head_effects = Registry("head effect", "attnprobe.heads", FACTS)


def score_heads(capture: Capture) -> pd.DataFrame:
    """A row a head, a column a score: stack, kind, layer, head, then every registered head score.

    Layers and heads have the model's numbers, also where a capture kept only some of them.
    """
    from attnprobe.heads.whole import whole

    capture, parts = whole(capture), []
    for stack, kind in capture.stacks():
        part = capture.only(stack, kind)
        places = [(site.place.layer, head) for site in part.sites for head in head_numbers(site)]
        at = tuple(
            zip(*((row, head) for row, site in enumerate(part.sites) for head in range(site.n_heads)), strict=True)
        )
        scores = {name: entry.function(part)[at].tolist() for name, entry in head_scores.items()}
        index = pd.MultiIndex.from_tuples(places, names=["layer", "head"])
        frame = pd.DataFrame(scores, index=index, dtype="float64")
        parts.append(frame.reset_index().assign(stack=stack, kind=kind))
    table = pd.concat(parts, ignore_index=True)
    return table[["stack", "kind", "layer", "head", *head_scores]]
