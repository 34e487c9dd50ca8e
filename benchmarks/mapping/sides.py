"""Where the order of a map agrees with the effects: over all tokens, among reactant atoms, among product tokens."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from attnprobe.judgement import JUDGES
from attnprobe.metrics import agreement
from benchmarks.mapping.reading import Tokens
from benchmarks.mapping.tables import means

SIDES = ("all tokens", "reactant atoms", "product tokens")


def sides_of(tokens: Tokens, units: Sequence[int]) -> dict[str, list[int]]:
    """The places of each side's tokens among the units."""
    product = range(tokens.arrow + 1, len(tokens.tokens))
    of = dict(zip(SIDES, (units, tokens.reactant, product), strict=True))
    return {side: [place for place, unit in enumerate(units) if unit in set(chosen)] for side, chosen in of.items()}


def agreement_by_side(found: Sequence[Mapping[str, Any]], of_text: Mapping[str, Tokens]) -> pd.DataFrame:
    """A row an operator that decides, map and side: Kendall's tau of the map and the effects, mean over reactions."""
    tau, rows = agreement["kendall_tau"].function, []
    for r in found:
        tokens = of_text[r["reaction"]]
        units = [at for at in range(1, len(tokens.tokens) - 1) if at != tokens.product[r["atom"]]]
        for effect in (e for e in r["effects"] if e["operator"] in JUDGES):
            share = torch.tensor(effect["relative"])
            for m in r["maps"]:
                sizes = torch.tensor(m["scores"])[units].abs()
                for side, places in sides_of(tokens, units).items():
                    value = float(tau(sizes[places], share[places]))
                    rows.append((r["reaction"], effect["operator"], m["map"], side, value))
    table = pd.DataFrame(rows, columns=["reaction", "operator", "map", "side", "value"])
    return means(table, ["operator", "map", "side"])
