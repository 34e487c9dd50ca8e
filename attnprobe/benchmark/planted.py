"""Every attribution method on planted models: what it says, how that stands to the truth, and what it costs."""

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from attnprobe.attributing import attribute
from attnprobe.benchmark.judging import Judged, judge
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.methods import methods as registry
from attnprobe.models.planted import NAMES, PLANS, PlantedModel, acts_one_by_one, planted

LONGEST = 40
NOISE = 0.1
AS_PLANTED = "as planted"


@dataclass(frozen=True)
class Cell:
    """One method on one planted model.

    variant: how the model differs from its plan, in words. additive: whether tokens act one by one there, so that
    every definition of the truth says the same; elsewhere it is the Shapley value against zero contents. truth, scores:
    one a token. agreement, top1, idle, correct: see `judging.Judged`; agreements: the agreement with each other truth,
    by name; correct_otherwise: one of those whose order the scores have. expected: "right" or "misled" where the plan
    foretells it. refused: why the method does not do this model; fault: what went wrong inside it; without scores in
    both cases. forward, backward: single-row passes; seconds: of wall time.
    """

    model: str
    title: str
    variant: str
    additive: bool
    method: str
    family: str
    signed: bool
    options: Mapping[str, Any]
    tokens: tuple[str, ...]
    truth: tuple[float, ...]
    scores: tuple[float, ...] | None = None
    agreement: float | None = None
    agreements: Mapping[str, float | None] = field(default_factory=dict)
    top1: float | None = None
    idle: float | None = None
    correct: bool | None = None
    correct_otherwise: str | None = None
    expected: str | None = None
    forward: int = 0
    backward: int = 0
    seconds: float = 0.0
    refused: str | None = None
    fault: str | None = None


def benchmark_planted(
    models: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    *,
    n_variants: int = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    progress: bool = True,
) -> list[Cell]:
    """A cell for every model, variant and method, in this order; a refusal is a cell with its reason.

    models, methods: names (default: all). n_variants: see `variants`; the plan as it is comes first. options: of
    methods, by name. Errors: `InputError` for a name or option that does not exist.
    """
    names = list(NAMES if models is None else models)
    chosen = [registry[name] for name in (list(registry) if methods is None else methods)]
    given = {entry.name: dict((options or {}).get(entry.name, {})) for entry in chosen}
    for entry in chosen:
        entry.check_options(given[entry.name])
    wanted = [(name, variant) for name in names for variant in variants(name, n_variants)]
    bar = tqdm(
        total=len(wanted) * len(chosen), desc="planted", delay=1.0, leave=False, unit="cell", disable=not progress
    )
    cells: list[Cell] = []
    with bar, _one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, variant in wanted:
            made = planted(name, **variant)
            additive = acts_one_by_one(made)
            for entry in chosen:
                cells.append(_cell(made, additive, entry.name, given[entry.name]))
                bar.update()
    return cells


def variants(name: str, n: int) -> list[dict[str, Any]]:
    """The plan as it is, and n others: another basis; noise on the weights; 12 tokens in another order (causal plans
    keep theirs); from the fourth on all of it at random, 4 to 40 tokens.

    >>> variants("P12", 3)
    [{}, {'rotation': 1}, {'noise': 0.1, 'seed': 2}, {'n_tokens': 12}]
    """
    if name not in PLANS:
        planted(name)  # says which there are
    if n < 0:
        raise InputError(f"the number of variants is 0 or more, got {n}")
    plan = PLANS[name]
    longer: dict[str, Any] = {"n_tokens": 12} if plan.causal else {"n_tokens": 12, "order": _order(12, 3)}
    found: list[dict[str, Any]] = [{}, {"rotation": 1}, {"noise": NOISE, "seed": 2}, longer]
    for number in range(4, n + 1):
        draw = torch.Generator().manual_seed(number)
        n_tokens = int(torch.randint(len(plan.tokens), LONGEST + 1, (1,), generator=draw))
        more: dict[str, Any] = {} if plan.causal else {"order": _order(n_tokens, number)}
        found.append({"n_tokens": n_tokens, "rotation": number, "noise": NOISE, "seed": number, **more})
    return found[: n + 1]


def _order(n_tokens: int, seed: int) -> list[int]:
    return torch.randperm(n_tokens, generator=torch.Generator().manual_seed(seed)).tolist()


def in_words(variant: Mapping[str, Any]) -> str:
    """A variant as people read it.

    >>> in_words({"n_tokens": 12, "order": [1, 0], "noise": 0.1}), in_words({})
    ('12 tokens, reordered, noise 10 %', 'as planted')
    """
    words = {
        "n_tokens": lambda n: f"{n} tokens",
        "order": lambda _: "reordered",
        "rotation": lambda seed: f"rotation {seed}",
        "noise": lambda share: f"noise {100 * share:g} %",
    }
    return ", ".join(words[name](variant[name]) for name in words if name in variant) or AS_PLANTED


def _cell(made: PlantedModel, additive: bool, method: str, options: Mapping[str, Any]) -> Cell:
    entry = registry[method]
    plain = not made.variant  # what a plan foretells is foretold of its own numbers and of the usual options
    expected = "right" if method in made.right else "misled" if method in made.misled else None
    about: dict[str, Any] = {
        "model": made.name,
        "title": made.plan.title,
        "variant": in_words(made.variant),
        "additive": additive,
        "method": method,
        "family": entry.family,
        "signed": bool(entry.facts.get("signed", True)),
        "options": entry.check_options(options),
        "tokens": made.example.tokens,
        "truth": tuple(made.truth.tolist()),
        "expected": expected if plain and not options else None,
    }
    started = time.perf_counter()
    try:
        found = attribute(made.model, made.example, method, made.target, **options)
    except AttnprobeError as error:
        return Cell(**about, refused=str(error), seconds=time.perf_counter() - started)
    except Exception as error:  # one method's fault is no reason to lose what the others say; it is shown as one
        return Cell(**about, fault=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - started)
    judged = judge(found, made.truth)
    others: dict[str, Judged] = {name: judge(found, truth) for name, truth in made.other_truth.items()}
    return Cell(
        **about,
        scores=tuple(found.scores.tolist()),
        agreements={name: other.agreement for name, other in others.items()},
        correct=judged.correct,
        correct_otherwise=next((name for name, other in others.items() if other.correct), None),
        forward=found.forward_passes,
        backward=found.backward_passes,
        seconds=found.seconds,
        **asdict(judged),
    )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Within the block one thread: on networks this small more of them only wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def to_frame(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row a cell; numbers that are not defined are NaN."""
    frame = pd.DataFrame([{name: getattr(cell, name) for name in Cell.__dataclass_fields__} for cell in cells])
    return frame.astype(dict.fromkeys(("agreement", "top1", "idle", "seconds"), float))


def by_method(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row a method, the best first: means of agreement, top1 and idle over the models it does, and of agreement where
    tokens act one by one (additive) and where they act on one another (interacting); how many it does (n_models), ranks
    truly (n_correct) and refuses (n_refused); total forward and backward passes and seconds."""
    frame = to_frame(cells)
    frame["one_by_one"] = frame.agreement.where(frame.additive)
    frame["together"] = frame.agreement.where(~frame.additive)
    done = frame[frame.scores.notna()]
    table = frame.groupby("method", sort=False).agg(
        family=("family", "first"),
        agreement=("agreement", "mean"),
        additive=("one_by_one", "mean"),
        interacting=("together", "mean"),
        top1=("top1", "mean"),
        idle=("idle", "mean"),
        n_refused=("refused", lambda given: int(given.notna().sum())),
        forward=("forward", "sum"),
        backward=("backward", "sum"),
        seconds=("seconds", "sum"),
    )
    counts = done.groupby("method").correct.agg(n_models="count", n_correct="sum")
    table = table.join(counts).fillna({"n_models": 0, "n_correct": 0})
    table = table.astype({"n_models": int, "n_correct": int})
    order = ["family", "agreement", "additive", "interacting", "top1", "idle", "n_correct", "n_models", "n_refused"]
    return (
        table[[*order, "forward", "backward", "seconds"]]
        .sort_values(["agreement", "top1"], ascending=False, na_position="last")
        .reset_index()
    )
