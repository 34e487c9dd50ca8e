"""compare(): all methods on the same examples and target, judged in the same call, with controls and intervals."""

import importlib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe import judged_tables, paired_tables, tables, verdict_tables
from attnprobe.choosing import Methods, Operators
from attnprobe.errors import InputError
from attnprobe.fingerprint import fingerprint
from attnprobe.models import load
from attnprobe.models.evaluator import Meter
from attnprobe.other_attention import counterfactuals
from attnprobe.planning import Plan, plan_of
from attnprobe.provenance import provenance
from attnprobe.resuming import Shelf
from attnprobe.running import run
from attnprobe.study import Settings, Study
from attnprobe.target import Target, as_target

TABLES = (
    *("operators", "agreement", "faithfulness", "positions", "curves", "tests", "stability"),
    *("verdicts", "verdict_evidence", "verdict_shares", "counterfactuals", "checks", "costs", "failures"),
)


@dataclass(frozen=True, eq=False)
class Comparison:
    """What compare() found. Tables are long; low and high are the ends of a 95 % bootstrap interval.

    Over six or more texts: expanded percentile bootstrap of the mean, texts resampled; over fewer there is none (NaN).
    Of a single text, Kendall's tau has one over its tokens (percentile bootstrap).

    attributions: a row an example, method and token. operators: operator, kind ("content": the key stays in the
    softmax; "renormalising": it is taken out), main, n, texts, lacking. agreement: metric, direction, method_a,
    method_b, mean, low, high, n, interval_over, null_low, null_high (tokens permuted). faithfulness: operator, kind,
    metric, better, method, mean, low, high, n, random_mean, random_low, random_high, random_beaten, difference,
    difference_low, difference_high, holds_up, oracle, oracle_search, position (0: random mean, 1: oracle),
    position_low, position_high, position_n, reversed, foreign. positions: the same by example. curves: operator (the
    main one), method, kind, share, mean, low, high, n. tests: operator, kind, metric, test, method_a, method_b, n,
    difference, statistic, p, p_holm, effect, effect_name. stability: ranked, metric, operator_a, kind_a, operator_b,
    kind_b, kendall_tau, low, high, spearman, spearman_low, spearman_high, n. verdicts: of each attention-derived map on
    each example, with what speaks against and causes; verdict_evidence: the same by operator; verdict_shares: of the
    set, and the map beside random orders. counterfactuals: a text for which another attention was looked for: how far
    it and the answer were moved (`other_attention.OtherAttention`). checks: check, where, value, tolerance, passed, n.
    costs: method, forward_passes, backward_passes, seconds. failures: example_index, method (or "judging by removal",
    "verdicts", "counterfactual attention", "attribution of each answer token"), error.
    """

    model: Mapping[str, Any]
    studies: tuple[Study, ...] = field(repr=False)
    settings: Settings
    operators: pd.DataFrame = field(repr=False)
    agreement: pd.DataFrame = field(repr=False)
    faithfulness: pd.DataFrame = field(repr=False)
    positions: pd.DataFrame = field(repr=False)
    curves: pd.DataFrame = field(repr=False)
    tests: pd.DataFrame = field(repr=False)
    stability: pd.DataFrame = field(repr=False)
    verdicts: pd.DataFrame = field(repr=False)
    verdict_evidence: pd.DataFrame = field(repr=False)
    verdict_shares: pd.DataFrame = field(repr=False)
    checks: pd.DataFrame = field(repr=False)
    costs: pd.DataFrame = field(repr=False)
    failures: pd.DataFrame = field(repr=False)
    counterfactuals: pd.DataFrame = field(repr=False, default_factory=lambda: counterfactuals([], []))
    provenance: Mapping[str, str] = field(repr=False, default_factory=dict)
    seconds: float = 0.0

    def __repr__(self) -> str:
        """Two lines: of what, and the first finding."""
        name = importlib.import_module("attnprobe.report.making").model_name(self)
        words = importlib.import_module("attnprobe.report.nouns")
        found, noun = words.told(self), words.nouns(self)
        controls = {a.method for study in self.studies for a in study.attributions if a.family == "control"}
        n, many, beside = len(self.studies), len(self.methods) - len(controls), " and a control" * bool(controls)
        of = f"{many} method{'s' * (many != 1)}{beside} on {n} {noun.text if n == 1 else noun.texts} by {name}"
        return f"<Comparison of {of}" + (f"\n{found[0].claim}>" if found else ">")

    def _repr_html_(self) -> str:
        return str(importlib.import_module("attnprobe.notebook").comparison_html(self))

    @property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods that gave an answer on at least one example."""
        return tuple(dict.fromkeys(a.method for study in self.studies for a in study.attributions))

    @property
    def main(self) -> pd.DataFrame:
        """The rows of `faithfulness` under the main operator: one a metric and method."""
        table = self.faithfulness
        return table[table.operator == self.settings.operator] if len(table) else table

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """All tables by name, as they are written beside a page."""
        first = {"attributions": self.to_frame(), "predictions": tables.predictions(self.studies)}
        return first | {name: getattr(self, name) for name in TABLES}

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

    def report(
        self, path: str | Path, *, format: str | Sequence[str] | None = None, command: str = "", **options: Any
    ) -> Path:
        """Write one self-contained page, and its tables as CSV into the folder of its name; gives the page's path.

        format: html, pdf, md, json, csv, parquet, or several of them; each gets the name of `path` with its own ending,
        csv and parquet the folder of that name, and the path of the first is given back. None: by the ending of `path`.
        command: what made the comparison. options: summary, sentences of your own for the top of the page; without,
        names of tables that are not written; map_bytes, how much of the attention maps the page carries. Errors:
        `InputError` where a page cannot be written or a table does not exist; one format that cannot be made loses
        nothing of the others.
        """
        # By name, since imports only go down: pages are built on the floor above.
        formats = importlib.import_module("attnprobe.report.formats")
        page: Path = formats.report(self, Path(path), format=format, command=command, **options)
        return page


def compare(
    model: Any,
    examples: Any,
    methods: Methods = None,
    target: Target | str | int | None = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    operators: Operators = None,
    n_random: int = 50,
    n_resamples: int = 1000,
    seed: int = 0,
    oracle: bool = True,
    verdicts: bool = True,
    counterfactual: bool = False,
    progress: bool = True,
    folder: str | Path | None = None,
    resume: bool = True,
) -> Comparison:
    """Attribute each example by each method, and judge all of them against removal, random orders and one another.

    examples: one input (a text, an `Example`, a tokenizer's output, a tensor, a list of token ids, a picture) or many
    (a list, generator, series or array of them). methods: names or functions, no name twice; None for a dozen of all
    families (`choosing.DEFAULT`) and those that you registered; "all". target: what to explain; None for what the model
    predicts on each. options: by method name. operators: how tokens are removed, one name or several, the main one
    first (None: [MASK], the mean embedding, attention_mask, as far as the model has them); of several, one that does
    not work on an example leaves it to the others, as `operators` of the result says. n_random: random orders an
    example, 0 or more. oracle: whether the best order is searched for under each operator, at n (n + 1) passes for n
    tokens up to about 20, and some 15 n beyond. verdicts: whether attention-derived maps are judged as explanations, at
    some 50 n passes. counterfactual: whether another attention with the same answer is looked for on each, at some 350
    forward and 300 backward passes each. folder: where finished examples are kept; the same call goes on there where it
    was interrupted (resume=False: begins anew).
    Errors: `InputError` before any method runs for what is unknown, unreadable, not there or does not work, or a folder
    with another comparison. A method that fails is a row in `failures`; one that fails on all texts is warned of.
    """
    settings = Settings("", n_random, n_resamples, seed, "", oracle=oracle)
    _check_folder(folder)
    plan = plan_of(load(model), examples, methods, as_target(target), options or {}, operators)
    settings = replace(settings, operator=plan.operators[0], operators=plan.operators, target=str(plan.target))
    # Named only where it was asked for, so that folders from before go on.
    more = {"verdicts": verdicts, "oracle": oracle, **({"counterfactual": True} if counterfactual else {})}
    shelf = None if folder is None else Shelf.opened(Path(folder), plan, fingerprint(plan, settings, **more), resume)
    with Meter() as meter:
        studies, failures = run(
            plan, settings, shelf, verdicts=verdicts, progress=progress, counterfactual=counterfactual
        )
    return _result(plan, settings, studies, failures, meter.seconds)


def _result(
    plan: Plan, settings: Settings, studies: list[Study], failures: list[tuple[int, str, str]], seconds: float
) -> Comparison:
    """The comparison of what was found; `InputError` where that is nothing."""
    if not any(study.attributions for study in studies):
        raise InputError(f"no method gave an answer; the first said: {failures[0][2] if failures else 'nothing'}")
    _warn_of_dropped(plan, studies, failures)
    return Comparison(
        model=plan.model.describe(),
        studies=tuple(studies),
        settings=settings,
        provenance=provenance(),
        seconds=seconds,
        failures=pd.DataFrame(failures, columns=["example_index", "method", "error"]),
        **_tables(plan, studies, settings),
    )


def _warn_of_dropped(plan: Plan, studies: Sequence[Study], failures: Sequence[tuple[int, str, str]]) -> None:
    """Warn of methods that failed on every text: they are in no table but `failures`."""
    answered = {a.method for study in studies for a in study.attributions}
    for name in (entry.name for entry, _ in plan.entries if entry.name not in answered):
        said = next((error for _, method, error in failures if method == name), "")
        warnings.warn(
            f"'{name}' gave no answer on any of the {len(studies)} texts, and is left out: {said}", stacklevel=4
        )


def _tables(plan: Plan, studies: list[Study], settings: Settings) -> dict[str, pd.DataFrame]:
    positions = judged_tables.positions(studies, settings)
    faithfulness = judged_tables.faithfulness(studies, positions, settings)
    verdicts = verdict_tables.verdicts(studies)
    return {
        "operators": judged_tables.operators(plan.asked, plan.lacking, studies, settings),
        "agreement": tables.agreement(studies, settings),
        "faithfulness": faithfulness,
        "positions": positions,
        "curves": judged_tables.curves(studies, settings),
        "tests": paired_tables.tests(positions, settings),
        "stability": paired_tables.stability(studies, faithfulness, settings),
        "verdicts": verdicts,
        "verdict_evidence": verdict_tables.evidence(studies),
        "verdict_shares": verdict_tables.shares(verdicts),
        "counterfactuals": counterfactuals([s.example.text for s in studies], [s.other for s in studies]),
        "checks": tables.checks(studies),
        "costs": tables.costs(studies),
    }


def _check_folder(folder: str | Path | None) -> None:
    """`InputError` where a file is in the way of the folder."""
    if folder is None:
        return
    there = next((path for path in (Path(folder), *Path(folder).parents) if path.exists()), Path())
    if not there.is_dir():
        raise InputError(f"folder={str(folder)!r}: {there} is a file; give a folder, or a path where there is nothing")
