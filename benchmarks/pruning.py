"""How many heads can go (Michel et al. 2019), on three networks trained here; writes PRUNING.md and pruning.png.

Run: .venv/bin/python benchmarks/pruning.py   (one thread; networks are trained once and kept in .cache)

Each order is made on examples that the curve is not measured on. Heads go in the order of their mean gate gradient, of
what zero ablation of each alone costs, of their entropy (the most even ones first), at random, and the other way round:
the highest gate gradient first. Greedy search lets go of one head after the other, each time of the least missed.
"""

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnprobe import load, profile
from attnprobe.models.bundled.data import download, make_splits, read_sentences
from attnprobe.models.model import Model
from attnprobe.models.own import OwnModel
from attnprobe.models.tasks import dates
from attnprobe.pruning import head_order, pruning_curve
from attnprobe.pruning_curves import PruningCurve
from attnprobe.pruning_figure import pruning_lines
from attnprobe.sufficient import sufficient_heads
from attnprobe.target import Target
from benchmarks.compare import machine, table
from benchmarks.published import grammar
from benchmarks.published.keeping import kept

HERE = Path(__file__).parent
CACHE = HERE.parent / ".cache"
KEPT = CACHE / "pruning"
N_RANDOM, N_ORDERED, SEED, N_STEPS = 10, 30, 0, 1000
DROP = 0.05  # so much of the accuracy may be lost where heads are called removable
SHOWN = {
    "gate gradient": "lowest gate gradient first",
    "zero ablation": "least missed alone first",
    "greedy": "greedy, least missed now",
    "entropy": "most even attention first",
    "gate gradient, highest": "highest gate gradient first",
    "random": "random",
}


@dataclass(frozen=True)
class Task:
    """A network with labelled examples: those that orders are made on, and those that are judged."""

    name: str
    model: Model
    ordered: list[Any]
    ordered_labels: list[Any] | None
    judged: list[Any]
    judged_labels: list[Any] | None
    guessing: float


def sentiment(n: int) -> Task:
    """The bundled model on rated film sentences that it was not trained on."""
    splits = make_splits(read_sentences(download(CACHE)))
    draw = random.Random(SEED)  # the files are in an order of their own
    first = draw.sample(splits.validation, N_ORDERED)
    second = draw.sample(splits.test, min(n, len(splits.test)))
    share = sum(s.label for s in second) / len(second)
    return Task(
        "sentiment, 3 layers of 4 heads",
        load("attnprobe/sentiment"),
        [s.text for s in first],
        [s.label for s in first],
        [s.text for s in second],
        [s.label for s in second],
        max(share, 1 - share),
    )


def agreement(n: int) -> Task:
    """A transformer that tells the number of a verb."""
    network = kept(
        f"agreement-{SEED}-{N_STEPS}",
        lambda: grammar.fresh(SEED),
        lambda: grammar.train(SEED, n_steps=N_STEPS),
        KEPT,
    )
    sentences = grammar.draw(N_ORDERED + n, grammar.HELD_OUT + SEED)
    first, second = sentences[:N_ORDERED], sentences[N_ORDERED:]
    share = sum(s.label for s in second) / len(second)
    return Task(
        "agreement, 6 layers of 8 heads",
        grammar.as_model(network),
        [s.text for s in first],
        [s.label for s in first],
        [s.text for s in second],
        [s.label for s in second],
        max(share, 1 - share),
    )


def written_dates(n: int) -> Task:
    """An encoder-decoder that writes dates; right is the share of the characters, each after the right ones."""
    network = kept("dates-transformer-0", lambda: dates.make("transformer"), lambda: dates.train("transformer"), KEPT)
    model = OwnModel(network, dates.INPUTS, target_vocabulary=dates.OUTPUTS, name="dates", answer_length=10)
    drawn = dates.held_out(N_ORDERED + n)
    found = [model.example(date.text, answer=date.iso) for date in drawn]
    likeliest = [
        Counter(column).most_common(1)[0][1] / len(drawn) for column in zip(*(d.iso for d in drawn), strict=True)
    ]
    share = sum(likeliest) / len(likeliest)  # of who writes the most frequent character at each place
    return Task(
        "dates, 3 stacks of 2 layers of 4 heads", model, found[:N_ORDERED], None, found[N_ORDERED:], None, share
    )


TASKS: dict[str, Callable[[int], Task]] = {"sentiment": sentiment, "agreement": agreement, "dates": written_dates}


def orders(task: Task) -> dict[str, Any]:
    """Heads in the order in which they go, by the name of the order."""
    target = Target(scale="log_probability")
    found = profile(task.model, task.ordered, ["entropy"], ["gate_gradient", "zero_ablation"], target=target)
    greedy = sufficient_heads(task.model, task.ordered, 0, task.ordered_labels, start="all")
    model = task.model
    return {
        "gate gradient": head_order(model, found, "gate_gradient"),
        "zero ablation": head_order(model, found, "zero_ablation"),
        "greedy": greedy.steps,
        "entropy": head_order(model, found, "entropy", highest_first=True),
        "gate gradient, highest": head_order(model, found, "gate_gradient", highest_first=True),
        "random": "random",
    }


def measured(task: Task) -> PruningCurve:
    """The curve of every order on the judged examples."""
    named = {SHOWN[name]: order for name, order in orders(task).items()}
    return pruning_curve(task.model, task.judged, named, task.judged_labels, n_random=N_RANDOM, seed=SEED)


def summary(task: Task, curve: PruningCurve) -> pd.DataFrame:
    """How many heads go in each order, and the accuracy with half and a quarter of them left."""
    frame, rows = curve.to_frame(), []
    for order in curve.values:
        mine = frame[frame.order == order].set_index("n_removed")["mean"]
        near = [min(mine.index, key=lambda n: abs(n - share * curve.n_heads)) for share in (0.5, 0.75)]
        gone = f"{curve.removable(order, DROP)} of {curve.n_heads}"
        rows.append(
            {
                "order": order,
                f"removable, at most {100 * DROP:.0f} points lost": gone,
                "whole": float(mine.iloc[0]),
                f"{100 * 0.5:.0f} % gone": float(mine[near[0]]),
                f"{100 * 0.75:.0f} % gone": float(mine[near[1]]),
                "all gone": float(mine.iloc[-1]),
            }
        )
    return pd.DataFrame(rows)


def seen(curve: PruningCurve) -> str:
    """Whether the trend is there: most heads can go, and it matters which."""
    n = {name: curve.removable(order, DROP) for name, order in SHOWN.items()}
    best = max(("gate gradient", "zero ablation", "entropy"), key=lambda name: n[name])
    many = n[best] >= curve.n_heads / 2
    matters = n[best] - n["gate gradient, highest"] >= curve.n_heads / 4
    words = "Most heads can go" if many else "Most heads cannot go"
    which = "and it matters which" if matters else "and which ones matters little"
    worst = f"{n['gate gradient, highest']} by the highest gate gradient first"
    return (
        f"**{words}, {which}**: {n[best]} of {curve.n_heads} in the best of three orders by a single number "
        f"({SHOWN[best]}), {n['greedy']} by greedy search, {n['random']} at random, {worst}."
    )


def last_heads(curve: PruningCurve, n: int = 4) -> str:
    """The heads that greedy search keeps longest."""
    (order,) = curve.orders[SHOWN["greedy"]]
    several = len({(head.stack, head.kind) for head in order}) > 1
    return ", ".join(str(head) if several else head.short for head in order[-n:][::-1])


def drawn(curves: dict[str, tuple[Task, PruningCurve]]) -> Figure:
    """A panel a network, one legend for all."""
    figure = Figure(figsize=(11.5, 3.9), layout="constrained")
    panels = figure.subplots(1, len(curves))
    for axes, (task, curve) in zip(panels, curves.values(), strict=True):
        pruning_lines(curve, level=task.guessing, ax=axes)
        axes.set_title(f"{task.name}; {curve.n_examples} examples", fontsize=9, loc="left")
        axes.set(ylim=(0.2, 1.03))
        axes.spines[["top", "right"]].set_visible(False)
        handles, labels = axes.get_legend_handles_labels()
        axes.get_legend().remove()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return figure


def main() -> None:
    """Measure, draw, write PRUNING.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=200)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    started, curves = time.process_time(), {}
    for name, make in TASKS.items():
        task = make(given.examples)
        curves[name] = (task, measured(task))
        print(f"{task.name}\n{summary(*curves[name]).to_string()}\n", flush=True)
    drawn(curves).savefig(HERE / "pruning.png", dpi=130)
    minutes = (time.process_time() - started) / 60
    (HERE / "PRUNING.md").write_text(page(curves, minutes), encoding="utf-8")


def page(curves: dict[str, tuple[Task, PruningCurve]], minutes: float) -> str:
    """The page, every number from the curves."""
    parts = [
        "# How many heads can go\n",
        "Made by `.venv/bin/python benchmarks/pruning.py`.\n",
        f"Machine: {machine()}; one thread, {minutes:.0f} CPU minutes without training. Heads give 0, one more at each "
        f"step. Orders are made on {N_ORDERED} examples, accuracy is that of others, which no network learned from; "
        f"{N_RANDOM} random orders. Dotted: guessing.\n",
        "![accuracy against heads removed](pruning.png)\n",
    ]
    for task, curve in curves.values():
        parts += [f"## {task.name}\n", f"{curve.n_examples} examples; guessing: {task.guessing:.2f}.\n"]
        parts += [table(summary(task, curve)), f"\nGreedy search keeps longest: {last_heads(curve)}. {seen(curve)}\n"]
    return "\n".join(parts)


if __name__ == "__main__":
    main()
