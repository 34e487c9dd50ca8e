"""Trains each small task from nothing, as its command does, and writes what was reached to benchmarks/TASKS.md.

Run: .venv/bin/python benchmarks/tasks.py [NAME ...]   (some minutes on one thread; without names: all)

A task is a line in TASKS: a name, its command, what has to be reached, and a function that trains and measures.
"""

import datetime
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from matplotlib.figure import Figure

from attnprobe.alignment_figure import alignment_picture
from attnprobe.models.tasks import dates, induction
from attnprobe.models.tasks.date_forms import ANSWER, calendar, draw, write

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "TASKS.md"
N_HELD_OUT = 5000
TOP = (
    "# Small tasks on our own attention\n\nMade by `.venv/bin/python benchmarks/tasks.py`: each network is trained "
    "from nothing, with seed 0, on one thread. What is counted was never learned from. CPU minutes are those of one "
    "core, training and measuring together.\n"
)
SHOWN = datetime.date(1987, 3, 21)


@dataclass(frozen=True)
class Reached:
    """What a training reached: score (a share) over n answers that were never learned from; notes: lines of text."""

    score: float
    n: int
    n_parameters: int
    n_steps: int
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Task:
    """One task: what is right, and how much of it has to be."""

    name: str
    command: str
    right: str
    goal: float
    run: Callable[[], Reached]


def parameters(network: torch.nn.Module) -> int:
    """How many numbers a network learns."""
    return sum(tensor.numel() for tensor in network.parameters())


def run_dates(kind: str) -> Reached:
    """Dates in words, held-out days; where the alignment lies, and a picture of it."""
    network = dates.train(kind, report=True)
    held_out = dates.held_out(N_HELD_OUT)
    wrong = [
        (date.text, answer, date.iso)
        for date, answer in zip(held_out, dates.translate(network, [d.text for d in held_out]), strict=True)
        if answer != date.iso
    ]
    learned_days = draw(calendar(held_out=False), 1)
    chosen = dates.mass_on_parts(network, [next(learned_days) for _ in range(500)])
    mean = torch.stack([chosen[part] for part in ANSWER]).mean(0)
    layer, head = divmod(int(mean.argmax()), mean.shape[1])
    masses = dates.mass_on_parts(network, held_out)
    save_picture(network, kind, layer, head)
    notes = [
        f"Weight on the characters of the part that is being written, {N_HELD_OUT} held-out dates; even weights would "
        f"put {float(masses['even']):.2f} there.\n",
        "| cross-attention | " + " | ".join(ANSWER) + " |\n|---|" + "---|" * len(ANSWER),
    ]
    for row in range(mean.shape[0]):
        for column in range(mean.shape[1]):
            here = (
                " (chosen for the picture on days learned from)"
                if mean.numel() > 1 and (row, column) == (layer, head)
                else ""
            )
            cells = " | ".join(f"{float(masses[part][row, column]):.2f}" for part in ANSWER)
            notes.append(f"| layer {row}, head {column}{here} | {cells} |")
    notes.append(f"\n![where the {kind} model looks](alignment-{kind}.png)\n")
    notes += [f"Wrong: `{text}` -> {answer}, not {iso}." for text, answer, iso in wrong[:5]]
    return Reached(1 - len(wrong) / len(held_out), len(held_out), parameters(network), dates.N_STEPS[kind], notes)


def save_picture(network: dates.SequenceToSequence, kind: str, layer: int, head: int) -> None:
    """The alignment of one date, with frames where year, month and day stand."""
    date = write(SHOWN, "{weekday} the {ordinal} of {month} {yyyy}")
    found = dates.alignment(network, date.text)
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    boxes = {steps: date.spans[part] for part, steps in ANSWER.items()}
    title = f"{kind}, layer {layer}, head {head}; frames: where year, month and day stand"
    weights = found.weights(layer, head)
    alignment_picture(weights, found.inputs, found.outputs, boxes=boxes, title=title, ax=figure.add_subplot())
    figure.savefig(FOLDER / f"alignment-{kind}.png", dpi=100)


def run_induction(n_layers: int = 2) -> Reached:
    """A B … A -> B on new texts, and what each head does."""
    network = induction.train(n_layers=n_layers, report=True)
    generator = torch.Generator().manual_seed(induction.HELD_OUT)
    ids, period = induction.repeated(512, generator)
    readings = induction.read_heads(network, ids, period)
    notes = [
        f"One copy among other tokens, in texts unlike those learned from: "
        f"{induction.accuracy_on_one_copy(network, 512, generator):.1%} of 512.\n",
        "| layer, head | prefix matching | previous token | accuracy without it |\n|---|---|---|---|",
    ]
    notes += [
        f"| {r.layer}, {r.head} | {r.prefix_matching:.2f} | {r.previous_token:.2f} | {r.accuracy_without:.1%} |"
        for r in readings
    ]
    notes += ["", *induction.induction_heads(network, readings, ids, period)]
    n_known = int(induction.predictable(period).sum())
    return Reached(induction.accuracy(network, ids, period), n_known, parameters(network), induction.N_STEPS, notes)


MODULE = "python -m attnprobe.models.tasks"
TASKS = [
    Task(
        "dates, recurrent",
        f"{MODULE}.dates --model recurrent",
        "all ten characters",
        0.99,
        partial(run_dates, "recurrent"),
    ),
    Task(
        "dates, transformer",
        f"{MODULE}.dates --model transformer",
        "all ten characters",
        0.99,
        partial(run_dates, "transformer"),
    ),
    Task("induction", f"{MODULE}.induction", "the next token", 0.95, run_induction),
    Task(
        "induction, one layer (control)",
        f"{MODULE}.induction --layers 1",
        "the next token",
        0.0,
        partial(run_induction, 1),
    ),
]


def main() -> None:
    """Train what was asked for and write the table."""
    torch.set_num_threads(1)
    chosen = [task for task in TASKS if not sys.argv[1:] or task.name in sys.argv[1:]]
    if not chosen:
        sys.exit(f"no such task; there are: {', '.join(task.name for task in TASKS)}")
    rows, sections = [], []
    for task in chosen:
        print(f"== {task.name}", flush=True)
        started = time.process_time()
        reached = task.run()
        minutes = (time.process_time() - started) / 60
        rows.append(
            f"| {task.name} | {task.right} | {reached.score:.2%} of {reached.n} | {task.goal or '–'} "
            f"| {reached.n_steps} | {reached.n_parameters:,} | {minutes:.1f} |"
        )
        sections.append("\n".join([f"\n## {task.name}\n", f"`{task.command}`\n", *reached.notes]))
        print(rows[-1], flush=True)
    head = "| task | right is | reached | goal | steps | parameters | CPU minutes |\n|---|---|---|---|---|---|---|"
    RESULTS.write_text("\n".join([TOP, head, *rows, *sections, ""]), encoding="utf-8")


if __name__ == "__main__":
    main()
