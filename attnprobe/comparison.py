"""compare(): all methods on the same examples and target, judged in the same call, with controls and intervals."""

import importlib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe import tables
from attnprobe.attributing import attribute
from attnprobe.attribution import Attribution
from attnprobe.choosing import Methods, chosen
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.example import Example
from attnprobe.models import load
from attnprobe.models.evaluator import Meter, remembering
from attnprobe.models.model import Model
from attnprobe.models.removal import checked_operator
from attnprobe.provenance import provenance
from attnprobe.registry import Entry
from attnprobe.study import Judgement, Settings, Study, capture_for_page, check_removal, judge
from attnprobe.target import ResolvedTarget, Target, as_target

# Where the scores of finished texts go while the work goes on.
FINISHED = "attributions.csv"
# What stands in `failures` in the place of a method where a text's orders could not be judged.
REMOVAL = "judging by removal"


@dataclass(frozen=True, eq=False)
class Comparison:
    """What compare() found. Tables are long; low and high are the ends of a 95 % bootstrap interval.

    Over six or more texts: expanded percentile bootstrap of the mean, texts resampled; over fewer there is none (NaN).
    Of a single text, Kendall's tau has one over its tokens (percentile bootstrap).

    attributions: a row an example, method and token. agreement: metric, direction, method_a, method_b, mean, low,
    high, n, interval_over. faithfulness: metric, better, method, mean, low, high, n, random_mean, random_low,
    random_high, random_beaten, difference, difference_low, difference_high, holds_up. curves: method, kind, share,
    mean, low, high, n. checks: check, where, value, tolerance, passed, n. costs: method, forward_passes,
    backward_passes, seconds. failures: example_index, method (or "judging by removal"), error.
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
    methods: Methods = None,
    target: Target | str | int | None = None,
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

    examples: one input (a text, an `Example`, a tokenizer's output, a tensor, a list of token ids, a picture) or many
    (a list, generator, series or array of them). methods: names or functions, no name twice; None for a dozen of all
    families (`choosing.DEFAULT`) and those that you registered; "all". target: what to explain; None for what the model
    predicts on each. options: by method name. operator: how tokens are removed (default: [MASK], else the mean
    embedding). n_random: random orders an example, 0 or more. folder: where each finished example's scores are
    appended to attributions.csv, begun anew, while the work goes on.
    Errors: `InputError` before any method runs for an unknown name, an unreadable text, a target that a text does not
    have or an operator that does not work on it. A method that fails on an example, in whatever way, is a row in
    `failures`, and the others go on.
    """
    settings = Settings("", n_random, n_resamples, seed, "")
    folder = _checked_folder(folder)
    plan = _plan(load(model), examples, methods, as_target(target), options or {}, operator)
    settings = replace(settings, operator=plan.operator, target=str(plan.target))
    with Meter() as meter:
        studies, failures = _run(plan, settings, progress, folder)
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
    targets: list[ResolvedTarget]
    entries: list[tuple[Entry, dict[str, Any]]]
    target: Target
    operator: str


def _plan(
    model: Model,
    examples: Any,
    methods: Methods,
    target: Target,
    options: Mapping[str, Mapping[str, Any]],
    operator: str | None,
) -> _Plan:
    for name in (target.label, target.against):
        if name is not None:
            model.outputs.index(name)
    operator = checked_operator(model, operator)
    entries = chosen(methods, options)
    given = list(inputs_of(examples))
    if not given:
        raise InputError("there is no text; give at least one")
    read, targets = [], []
    for index, item in enumerate(given):
        try:
            read.append(model.example(item))
            targets.append(model.resolve(read[-1], target))
            check_removal(model, read[-1], targets[-1], operator)
        except AttnprobeError as error:
            raise InputError(f"text {index + 1} of {len(given)}: {error}" if len(given) > 1 else str(error)) from error
    return _Plan(model, read, targets, entries, target, operator)


def _run(
    plan: _Plan, settings: Settings, progress: bool, folder: Path | None
) -> tuple[list[Study], list[tuple[int, str, str]]]:
    """Every example under every method; each finished example is on disk before the next begins."""
    studies: list[Study] = []
    failures: list[tuple[int, str, str]] = []
    total = len(plan.examples) * len(plan.entries)
    hidden = None if progress else True
    if folder is not None:
        (folder / FINISHED).unlink(missing_ok=True)
    with tqdm(total=total, desc="methods x texts", disable=hidden, delay=1.0, leave=False) as bar:
        for index in range(len(plan.examples)):
            study, failed = _study(plan, index, settings, bar)
            studies.append(study)
            failures += [(index, name, error) for name, error in failed]
            if folder is not None and study.attributions:
                _append(folder, study, index)
    return studies, failures


def inputs_of(examples: Any) -> Iterable[Any]:
    """One input in a list of its own, or the inputs that a list, a generator, a series or an array holds."""
    if isinstance(examples, pd.DataFrame):
        columns = ", ".join(map(str, examples.columns))
        raise InputError(f"examples is a table; give one of its columns, such as df['text'] (it has {columns})")
    if isinstance(examples, bytes):
        raise InputError("examples is bytes, expected text; decode it first, such as examples.decode()")
    if isinstance(examples, str | Example | Mapping | Tensor) or not isinstance(examples, Iterable):
        return [examples]
    if isinstance(examples, np.ndarray) and examples.ndim != 1:
        return [examples]  # a picture
    given = examples.tolist() if isinstance(examples, np.ndarray) else list(examples)
    ids = bool(given) and all(isinstance(item, Integral) and not isinstance(item, bool) for item in given)
    return [list(map(int, given))] if ids else given


def _checked_folder(folder: str | Path | None) -> Path | None:
    """The folder, or an `InputError` where a file is in its way."""
    if folder is None:
        return None
    there = next((path for path in (Path(folder), *Path(folder).parents) if path.exists()), Path())
    if not there.is_dir():
        raise InputError(f"folder={str(folder)!r}: {there} is a file; give a folder, or a path where there is nothing")
    return Path(folder)


def _study(plan: _Plan, index: int, settings: Settings, bar: tqdm) -> tuple[Study, list[tuple[str, str]]]:
    """One example under every method, and what the methods that failed said."""
    example, target = plan.examples[index], plan.targets[index]
    capture = capture_for_page(plan.model, example)
    found: list[Attribution] = []
    failed: list[tuple[str, str]] = []
    with remembering():
        for entry, options in plan.entries:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # they are kept in the attribution, and shown on the page
                    found.append(attribute(plan.model, example, entry, target, **options))
            except Exception as error:  # a method may be anybody's: whatever goes wrong in it is its own failure
                failed.append((entry.name, _told(error)))
            bar.update()
        judgements: tuple[Judgement, ...] = ()
        try:
            judgements = judge(plan.model, found, settings) if found else ()
        except AttnprobeError as error:
            failed.append((REMOVAL, str(error)))
    return Study(example, target, tuple(found), judgements, capture), failed


def _told(error: Exception) -> str:
    """What went wrong; our own errors say it in full, others need their type."""
    return str(error) if isinstance(error, AttnprobeError) else f"{type(error).__name__}: {error}"


def _append(folder: Path, study: Study, index: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FINISHED
    table = tables.attributions([study]).assign(example_index=index)
    table.to_csv(path, mode="a", header=not path.exists(), index=False)
