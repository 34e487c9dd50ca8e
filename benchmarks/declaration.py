"""One attention head on 16 sentences: what its map shows, what other methods say, and what another run would show.

Run: .venv/bin/python benchmarks/declaration.py   (writes benchmarks/DECLARATION.md and three figures beside it)

On one thread: 36 heads are trained (some 9 seconds each), then 206 words are asked by nine methods.
"""

import math
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnprobe import Keep, attribute, knock_out, uniform
from attnprobe.appearance import look, number, scientific
from attnprobe.declaration_figure import attribution_panels, declaration_picture, runs_picture
from attnprobe.intervals import over_texts
from attnprobe.metrics import agreement, faithfulness
from attnprobe.models.declaration import (
    CLAIMS,
    SENTENCES,
    VOCABULARY,
    Trained,
    as_model,
    over_roundings,
    over_seeds,
    stored_head,
    word_at,
)
from attnprobe.models.evaluator import remembering
from attnprobe.models.rows import Row
from attnprobe.orders import random_orders
from attnprobe.study import Settings
from benchmarks.one_head.page import PAGE

HERE = Path(__file__).parent
RESULTS = HERE / "DECLARATION.md"
N_SEEDS, N_ROUNDINGS, N_RANDOM = 20, 8, 10
METHODS = (
    "raw_attention",
    "value_zeroing",
    "attention_x_gradient",
    "input_x_gradient",
    "integrated_gradients",
    "leave_one_out",
    "occlusion",
    "shapley_sampling",
    "random_scores",
)
OPTIONS: dict[str, dict[str, Any]] = {"shapley_sampling": {"n_samples": 10}}
PANELS = (*METHODS[:4], "leave_one_out", "shapley_sampling")


def interval(values: list[float], digits: int = 2) -> str:
    """Mean and 95 % interval of values of which each stands for itself."""
    found = over_texts(values, n_resamples=2000, seed=0)
    return f"{number(found.mean, digits)} [{number(found.low, digits)}, {number(found.high, digits)}]"


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table."""
    head = "| " + " | ".join(map(str, frame.columns)) + " |\n|" + "---|" * len(frame.columns)
    return "\n".join([head, *("| " + " | ".join(map(str, row)) + " |" for row in frame.to_numpy().tolist())])


# ---------------------------------------------------------------- other runs


def runs() -> pd.DataFrame:
    """20 seeds; 8 roundings of seed 0; and the same 8 with the guarded gradient."""
    roundings = range(1, N_ROUNDINGS + 1)
    return pd.concat(
        [
            over_seeds(range(N_SEEDS)).assign(runs="20 seeds"),
            over_roundings(roundings).assign(runs="seed 0, start moved by 1 to 8 roundings"),
            over_roundings(roundings, gradient="guarded").assign(runs="the same, guarded gradient"),
        ],
        ignore_index=True,
    )


def run_rows(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """A table of runs as it is shown."""
    shown = {name: table[name], "loss a word": table.loss_per_token.map(scientific)}
    shown |= {"named of 206": table.n_right, "lost": table.n_lost}
    return pd.DataFrame(shown | {claim: table[claim].map("{:.2f}".format) for claim in CLAIMS})


def run_summary(table: pd.DataFrame) -> pd.DataFrame:
    """A row a group of runs: means with intervals, and how many runs have each weight as it was published."""
    near = {"rights → beings": lambda w: w > 0.9, "beings → rights": lambda w: w < 0.1, "all → are": lambda w: w > 0.9}
    rows = []
    for group, part in table.groupby("runs", sort=False):
        row = {"runs": group, "loss a word": interval(part.loss_per_token.tolist())}
        for claim in CLAIMS:
            row[claim] = (
                f"{interval(part[claim].tolist())}; as published {int(near[claim](part[claim]).sum())} of {len(part)}"
            )
        together = sum(all(near[claim](r[claim]) for claim in CLAIMS) for r in part.to_dict("records"))
        rows.append(row | {"all three": f"{together} of {len(part)}"})
    return pd.DataFrame(rows)


# ---------------------------------------------------------------- what each method says of each word


@dataclass(frozen=True)
class Asked:
    """One word of one sentence under every method: scores [token] by name, and comprehensiveness by name."""

    sentence: int
    position: int
    scores: Mapping[str, Tensor]
    signed: Mapping[str, bool]
    removal: Mapping[str, float]
    random: float


def ask(trained: Trained) -> list[Asked]:
    """Every word of every sentence: which words does its log-probability rest on?"""
    model = as_model(trained.network)
    found = []
    metric = faithfulness["comprehensiveness"].function
    for number_, sentence in enumerate(tqdm(SENTENCES, desc="sentences", leave=False)):
        example = model.example(sentence)
        for position in range(example.n_tokens):
            target = model.resolve(example, word_at(example, position))
            with remembering():
                said = {m: attribute(model, example, m, target, **OPTIONS.get(m, {})) for m in METHODS}
                settings = Settings("mean", N_RANDOM, 100, position, "")
                chance = [metric(model, order, operator="mean") for order in random_orders(said[METHODS[0]], settings)]
                removal = {m: float(metric(model, a, operator="mean")) for m, a in said.items()}
            scores, signed = ({m: getattr(a, n) for m, a in said.items()} for n in ("scores", "signed"))
            found.append(Asked(number_, position, scores, signed, removal, sum(chance) / len(chance)))
    return found


def by_sentence(asked: list[Asked], value: Any) -> list[float]:
    """The mean over the words of each sentence, NaN left out; words of a sentence depend on one another."""
    frame = pd.DataFrame([(a.sentence, value(a)) for a in asked], columns=["sentence", "value"])
    return frame.groupby("sentence").value.mean().tolist()


def without(scores: Tensor, position: int) -> Tensor:
    """Sizes of the scores of all words but the one asked for."""
    return torch.cat([scores[:position], scores[position + 1 :]]).abs()


def agreement_rows(asked: list[Asked]) -> pd.DataFrame:
    """A row a method: what it gives to the word itself, its agreement with attention on the others, and removal."""
    tau = agreement["kendall_tau"].function
    rows = []
    for m in METHODS:

        def own(a: Asked, m: str = m) -> float:
            total = float(a.scores[m].abs().sum())
            return float(a.scores[m][a.position].abs()) / total if total else math.nan

        def agrees(a: Asked, m: str = m) -> float:
            return float(tau(without(a.scores["raw_attention"], a.position), without(a.scores[m], a.position)))

        def same_first(a: Asked, m: str = m) -> float:
            first, other = (without(a.scores[n], a.position).argmax() for n in ("raw_attention", m))
            return float(first == other)

        rows.append(
            {
                "method": look(m).label,
                "share given to the word itself": interval(by_sentence(asked, own)),
                "τ with raw attention, other words": "–"
                if m == "raw_attention"
                else interval(by_sentence(asked, agrees)),
                "same first word": "–" if m == "raw_attention" else interval(by_sentence(asked, same_first)),
                "comprehensiveness above random": interval(by_sentence(asked, lambda a, m=m: a.removal[m] - a.random)),
            }
        )
    return pd.DataFrame(rows)


# ---------------------------------------------------------------- what a weight of 1 carries


def alone(trained: Trained) -> pd.DataFrame:
    """What the value of each word of the first sentence names where a query puts all its weight on it."""
    with torch.no_grad():
        network = trained.network
        model = as_model(network)
        example = model.example(SENTENCES[0])
        site = model.capture(example, keep=Keep.of("value")).sites[0]
        p = network.output(site.need("value")[0, 0]).softmax(-1)
    rows = []
    for key, token in enumerate(example.tokens):
        looks = [f"{example.tokens[q]} {w:.2f}" for q, w in enumerate(trained.weights[:, key].tolist()) if w >= 0.5]
        best = int(p[key].argmax())
        rows.append(
            {
                "key": token,
                "its value alone names": f"{VOCABULARY[best]} ({p[key, best]:.2f})",
                "queries that put 0.5 or more on it": ", ".join(looks) or "–",
            }
        )
    return pd.DataFrame(rows)


def edges(trained: Trained) -> tuple[pd.DataFrame, str]:
    """The three published weights when their edge is cut, and how many edges of the sentence carry an answer at all."""
    model = as_model(trained.network)
    example = model.example(SENTENCES[0])
    falls, lost = torch.zeros(12, 12), torch.zeros(12, 12, dtype=torch.bool)
    for query in range(12):
        target = model.resolve(example, word_at(example, query))
        keys = [key for key in range(12) if key != query]
        rows = [Row(example), *(Row(example, edits=(knock_out(query, key),)) for key in keys)]
        answers = model.targets(rows, target)
        falls[query, keys] = (answers[0] - answers[1:]).float()
        lost[query, keys] = answers[1:] < math.log(0.5)
    large = trained.weights >= 0.05
    small = ~large & ~torch.eye(12, dtype=torch.bool)
    told = (
        f"Of the {int(large.sum())} edges with a weight of 0.05 or more, {int(lost[large].sum())} are needed (cut, the "
        f"probability of the word is below one half); of the {int(small.sum())} others, {int(lost[small].sum())}."
    )
    shown = [
        {
            "edge": name,
            "weight": f"{trained.weights[place]:.3f}",
            "log-probability falls by": number(float(falls[place]), 2),
        }
        for name, place in CLAIMS.items()
    ]
    return pd.DataFrame(shown), told


def flattened(trained: Trained) -> float:
    """How many words of the first sentence are still named where all weights are equal."""
    model = as_model(trained.network)
    example = model.example(SENTENCES[0])
    logits = model.capture(example, edits=[uniform()]).logits[0]
    return int((logits.argmax(-1) == example.inputs["input_ids"][0]).sum())


# ---------------------------------------------------------------- the page


def draw(trained: Trained, table: pd.DataFrame, asked: list[Asked]) -> None:
    """The three figures."""
    declaration_picture(trained).figure.savefig(HERE / "declaration.png", dpi=110)
    first = [a for a in asked if a.sentence == 0]
    maps = {m: torch.stack([a.scores[m] for a in first]) for m in PANELS}
    tokens = as_model(trained.network).example(SENTENCES[0]).tokens
    attribution_panels(maps, tokens, first[0].signed).savefig(HERE / "declaration-methods.png", dpi=90)
    runs_picture(table).figure.savefig(HERE / "declaration-runs.png", dpi=110)


def main() -> None:
    """Train, ask, and write DECLARATION.md."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started = time.process_time()
    trained = stored_head()
    asked = ask(trained)
    print(f"asked: {time.process_time() - started:.0f} s", flush=True)
    table = runs()
    draw(trained, table, asked)
    groups = dict(iter(table.groupby("runs", sort=False)))
    seeds, roundings, guarded = groups.values()
    cut, needed = edges(trained)
    page = PAGE.format(
        summary=markdown(run_summary(table)),
        seeds=markdown(run_rows(seeds, "seed")),
        roundings=markdown(run_rows(roundings, "roundings")),
        guarded=markdown(run_rows(guarded, "roundings")),
        methods=markdown(agreement_rows(asked)),
        alone=markdown(alone(trained)),
        edges=markdown(cut),
        needed=needed,
        flat=flattened(trained),
        n_random=N_RANDOM,
        loss=scientific(trained.loss_per_token),
        right=trained.n_right,
        seconds=f"{time.process_time() - started:.0f}",
    )
    RESULTS.write_text(page, "utf-8")
    print(page)


if __name__ == "__main__":
    main()
