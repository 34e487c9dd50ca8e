"""compare(): all methods on the same examples and target, judged in the same call, with controls and intervals."""

import importlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from tqdm.auto import tqdm

from attnprobe import tables
from attnprobe.attributing import Method, attribute
from attnprobe.attribution import Attribution
from attnprobe.capture import Capture
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.example import Example
from attnprobe.methods import methods as registry
from attnprobe.models import load
from attnprobe.models.evaluator import Meter, remembering
from attnprobe.models.model import Model
from attnprobe.models.removal import checked_operator
from attnprobe.provenance import provenance
from attnprobe.registry import Entry
from attnprobe.study import Settings, Study, judge
from attnprobe.target import Target

# Weights of at most this many numbers are kept for the page.
KEPT_WEIGHTS = 4_000_000


@dataclass(frozen=True, eq=False)
class Comparison:
    """What compare() found. Tables are long; intervals are 95 %, over texts, or over the tokens of a single text.

    attributions: a row an example, method and token. agreement: metric, direction, method_a, method_b, mean, low,
    high, n, interval_over. faithfulness: metric, better, method, mean, low, high, n, random_mean, random_low,
    random_high, random_beaten, difference, difference_low, difference_high, holds_up. curves: method, kind, share,
    mean, low, high, n. checks: check, where, value, tolerance, passed, n. costs: method, forward_passes,
    backward_passes, seconds. failures: example_index, method, error.
    """

    model: Mapping[str, Any]
    studies: tuple[Study, ...] = field(repr=False)
    settings: Settings
    agreement: pd.DataFrame = field(repr=False)
    faithfulness: pd.DataFrame = field(repr=False)
    curves: pd.DataFrame = field(repr=False)
    checks: pd.DataFrame = field(repr=False)
    costs: pd.DataFrame = field(repr=False)
    failures: pd.DataFrame = field(repr=False)
    provenance: Mapping[str, str] = field(repr=False, default_factory=dict)
    seconds: float = 0.0

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods that gave an answer on at least one example."""
        return tuple(dict.fromkeys(a.method for study in self.studies for a in study.attributions))

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """All tables by name, as they are written beside a page."""
        names = ("agreement", "faithfulness", "curves", "checks", "costs", "failures")
        return {"attributions": self.to_frame(), "predictions": tables.predictions(self.studies)} | {
            n: getattr(self, n) for n in names
        }

    def to_frame(self) -> pd.DataFrame:
        """A row an example, method and token, with the score."""
        return tables.attributions(self.studies)

    def save_tables(self, folder: str | Path) -> list[Path]:
        """Write every table as CSV into a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, table in self.tables.items():
            table.to_csv(folder / f"{name}.csv", index=False)
            paths.append(folder / f"{name}.csv")
        return paths

    def report(self, path: str | Path, *, command: str = "") -> Path:
        """Write one self-contained page, and its tables as CSV into the folder of its name; gives the page's path."""
        # By name, since imports only go down: the page is built on the floor above.
        page: Path = importlib.import_module("attnprobe.report").write(self, Path(path), command=command)
        return page


def compare(
    model: Any,
    examples: Any,
    methods: Sequence[Method] | None = None,
    target: Target | str | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    operator: str | None = None,
    n_random: int = 50,
    n_resamples: int = 1000,
    seed: int = 0,
    progress: bool = True,
    folder: str | Path | None = None,
) -> Comparison:
    """Attribute each example by each method, and judge all of them against removal, random orders and one another.

    examples: one text or a list (or `Example`s). methods: names or functions; None for all that are registered.
    target: what to explain; None for what the model predicts on each. options: by method name. operator: how
    tokens are removed (default: [MASK], else the mean embedding). n_random: random orders an example. folder:
    where each finished example's scores are appended as CSV while the work goes on.
    Errors: `InputError` before any work for an unknown name or an unreadable text; a method that fails on an
    example is a row in `failures`, and the others go on.
    """
    plan = _plan(load(model), examples, methods, target, options or {}, operator)
    settings = Settings(plan.operator, n_random, n_resamples, seed, str(plan.target))
    with Meter() as meter:
        studies, failures = _run(plan, settings, progress, None if folder is None else Path(folder))
    if not any(study.attributions for study in studies):
        raise InputError(f"no method gave an answer; the first said: {failures[0][2] if failures else 'nothing'}")
    return Comparison(
        model=plan.model.describe(),
        studies=tuple(studies),
        settings=settings,
        agreement=tables.agreement(studies, settings),
        faithfulness=tables.faithfulness(studies, settings),
        curves=tables.curves(studies, settings),
        checks=tables.checks(studies),
        costs=tables.costs(studies),
        failures=pd.DataFrame(failures, columns=["example_index", "method", "error"]),
        provenance=provenance(),
        seconds=meter.seconds,
    )


@dataclass(frozen=True, eq=False)
class _Plan:
    """What is to be done, everything checked that can be checked before any work."""

    model: Model
    examples: list[Example]
    entries: list[tuple[Entry, dict[str, Any]]]
    target: Target
    operator: str


def _plan(
    model: Model,
    examples: Any,
    methods: Sequence[Method] | None,
    target: Target | str | None,
    options: Mapping[str, Mapping[str, Any]],
    operator: str | None,
) -> _Plan:
    target = Target(label=target) if isinstance(target, str) else target or Target()
    for name in (target.label, target.against):
        if name is not None:
            model.outputs.index(name)
    operator = checked_operator(model, operator)
    entries = _entries(methods, options)
    read = _read(model, examples)
    return _Plan(model, read, entries, target, operator)


def _run(
    plan: _Plan, settings: Settings, progress: bool, folder: Path | None
) -> tuple[list[Study], list[tuple[int, str, str]]]:
    """Every example under every method; each finished example is on disk before the next begins."""
    studies: list[Study] = []
    failures: list[tuple[int, str, str]] = []
    total = len(plan.examples) * len(plan.entries)
    hidden = None if progress else True
    with tqdm(total=total, desc="methods x texts", disable=hidden, delay=1.0, leave=False) as bar:
        for index, example in enumerate(plan.examples):
            study, failed = _study(plan, example, settings, bar)
            studies.append(study)
            failures += [(index, name, error) for name, error in failed]
            if folder is not None and study.attributions:
                _append(folder, study, index)
    return studies, failures


def _entries(
    methods: Sequence[Method] | None, options: Mapping[str, Mapping[str, Any]]
) -> list[tuple[Entry, dict[str, Any]]]:
    chosen = [registry.get_entry(m) for m in (methods if methods is not None else list(registry))]
    if not chosen:
        raise InputError("no method was named; give at least one, or None for all")
    names = [entry.name for entry in chosen]
    for name in options:
        if name not in names:
            raise InputError(f"options are given for '{name}', which is not among the methods ({', '.join(names)})")
    unique = {entry.name: entry for entry in chosen}.values()
    return [(entry, entry.check_options(options.get(entry.name, {}))) for entry in unique]


def _read(model: Model, examples: Any) -> list[Example]:
    given = [examples] if isinstance(examples, str | Example) else list(examples)
    if not given:
        raise InputError("there is no text; give at least one")
    read = []
    for index, item in enumerate(given):
        try:
            read.append(model.example(item))
        except InputError as error:
            raise InputError(f"text {index + 1} of {len(given)}: {error}" if len(given) > 1 else str(error)) from error
    return read


def _study(plan: _Plan, example: Example, settings: Settings, bar: tqdm) -> tuple[Study, list[tuple[str, str]]]:
    """One example under every method, and what the methods that failed said."""
    target = plan.model.resolve(example, plan.target)
    capture = _capture(plan.model, example)
    found: list[Attribution] = []
    failed: list[tuple[str, str]] = []
    with remembering():
        for entry, options in plan.entries:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # they are kept in the attribution, and shown on the page
                    found.append(attribute(plan.model, example, entry, target, **options))
            except AttnprobeError as error:
                failed.append((entry.name, str(error)))
            bar.update()
        judgements = judge(plan.model, found, settings) if found else ()
    return Study(example, target, tuple(found), judgements, capture), failed


def _capture(model: Model, example: Example) -> Capture:
    """The example's attention, kept where it is small enough for a page; the checks in any case."""
    capture = model.capture(example)
    size = sum(site.weights.numel() for site in capture.sites if site.weights is not None)
    if size > KEPT_WEIGHTS:
        return Capture(example, capture.model, (), capture.logits, capture.checks)
    return Capture(
        example,
        capture.model,
        tuple(s.map(torch.Tensor.cpu) for s in capture.sites),
        capture.logits.cpu(),
        capture.checks,
    )


def _append(folder: Path, study: Study, index: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "attributions.csv"
    if index == 0:
        path.unlink(missing_ok=True)
    if study.attributions:
        table = tables.attributions([study]).assign(example_index=index)
        table.to_csv(path, mode="a", header=not path.exists(), index=False)
