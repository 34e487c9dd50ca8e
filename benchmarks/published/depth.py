"""Raw attention, rollout and flow against blank-out, layer by layer (Abnar & Zuidema 2020, table 1)."""

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.attributing import attribute
from attnprobe.example import Example
from attnprobe.methods.attention import attention_maps, roll_out
from attnprobe.methods.attention_flow import flows
from attnprobe.methods.mixing import mixed
from attnprobe.metrics.ranks import spearman
from attnprobe.models.evaluator import targets
from attnprobe.models.own import OwnModel
from attnprobe.models.rows import Row
from attnprobe.target import Target
from benchmarks.published import grammar
from benchmarks.published.keeping import kept

# Spearman with blank-out, layers 1 to 6, as their table 1 prints it.
PAPER = {
    "raw": (0.69, 0.10, -0.11, -0.09, 0.20, 0.29),
    "rollout": (0.32, 0.38, 0.51, 0.62, 0.70, 0.71),
    "flow": (0.32, 0.44, 0.70, 0.70, 0.71, 0.70),
}
MAPS = ("raw", "rollout", "flow", "column maximum")
IDENTITY = 0.5
PROBABILITY = Target(scale="probability")
COLUMNS = ["example_index", "map", "layer", "against", "value"]
SAME = 1e-6
SHORTEST = 6  # words; a rank correlation of fewer says little


def maps_by_layer(maps: list[Float[Tensor, "query key"]]) -> dict[tuple[str, int], Float[Tensor, " token"]]:
    """What each map says of the tokens as seen from the first one after 1, 2, … layers; layers count from 1.

    raw: the row of that layer; "column maximum": its largest weight of any query; rollout and flow: from that layer
    down to the input.
    """
    maps, first = [layer.double() for layer in maps], torch.tensor([0])
    half = [mixed(layer, IDENTITY) for layer in maps]
    found = {}
    for depth in range(1, len(maps) + 1):
        found["raw", depth] = maps[depth - 1][0]
        found["rollout", depth] = roll_out(maps[:depth], IDENTITY)[0]
        found["flow", depth] = flows(half[:depth], first)[0]
        found["column maximum", depth] = maps[depth - 1].amax(0)
    return found


def limited_below(first: Float[Tensor, "query key"], flow: Float[Tensor, " token"]) -> bool:
    """Whether every token's flow is just what fits into it from the first layer, and what leaves the top, 1."""
    fits = mixed(first.double(), IDENTITY).sum(0).clamp(max=1)
    return bool((flow - fits).abs().max() < SAME)


def blank_out(model: OwnModel, example: Example) -> Float[Tensor, " token"]:
    """How far the probability of the predicted label falls where one token is [UNK], signed."""
    return attribute(model, example, "leave_one_out", PROBABILITY, operator="unk").scores.double()


def blank_first(model: OwnModel, example: Example) -> float:
    """The same of the token that the answer is read from, which removal otherwise leaves alone."""
    label = model.resolve(example, PROBABILITY)
    ids = [grammar.VOCABULARY.id_of(token) for token in ("[UNK]", *example.tokens[1:])]
    blanked = model.example(ids)
    whole, without = targets(model, [Row(example), Row(blanked)], label).tolist()
    return whole - without


def against_blank_out(model: OwnModel, texts: list[str]) -> pd.DataFrame:
    """Spearman of each map after each layer with blank-out.

    against: the "size" of the fall or the "signed" fall, over the words of each text; "with [CLS]": its size, over all.
    "top word": 1 where map and blank-out have the same largest word, else 0.
    "limited below": of flow, `limited_below`.
    """
    rows = []
    for index, text in enumerate(tqdm(texts, desc="maps by layer", leave=False, unit="text")):
        example = model.example(text)
        units = ~torch.tensor(example.is_special)
        whole = blank_out(model, example)
        whole[0], fall = blank_first(model, example), whole[units]
        maps = attention_maps(model, example)
        for (name, depth), scores in maps_by_layer(maps).items():
            if name == "flow":
                rows += [(index, name, depth, "limited below", float(limited_below(maps[0], scores)))]
            rows += [(index, name, depth, "size", spearman(scores[units], fall.abs()))]
            rows += [(index, name, depth, "signed", spearman(scores[units], fall))]
            rows += [(index, name, depth, "with [CLS]", spearman(scores, whole.abs()))]
            same = scores[units].argmax() == fall.abs().argmax()
            rows += [(index, name, depth, "top word", float(same))]
    return pd.DataFrame(rows, columns=COLUMNS)


def measure(seed: int, n_texts: int, n_steps: int = grammar.N_STEPS) -> pd.DataFrame:
    """One transformer, trained or read, and its maps on held-out sentences; accuracy as a map of its own, layer 0."""
    network = kept(
        f"agreement-{seed}-{n_steps}", lambda: grammar.fresh(seed), lambda: grammar.train(seed, n_steps=n_steps)
    )
    held_out = grammar.draw(2000, grammar.HELD_OUT)
    found = against_blank_out(grammar.as_model(network), [one.text for one in _measured(n_texts)])
    shares = {"accuracy": held_out, "accuracy with attractors": [one for one in held_out if one.n_attractors]}
    rows = [(-1, name, 0, "", grammar.accuracy(network, sentences)) for name, sentences in shares.items()]
    return pd.concat([found, pd.DataFrame(rows, columns=COLUMNS)], ignore_index=True)


def _measured(n_texts: int) -> list[grammar.Sentence]:
    return grammar.draw(n_texts, grammar.HELD_OUT + 1, shortest=SHORTEST)
