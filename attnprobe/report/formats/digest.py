"""What a comparison says, in a few small tables of text: for Markdown and for the terminal."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from attnprobe.appearance import MINUS, look, percent, scientific
from attnprobe.comparison import Comparison
from attnprobe.explaining import said_causes
from attnprobe.judgement.rule import VERDICTS
from attnprobe.report.claims import top
from attnprobe.report.nouns import nouns, of_tokens, told
from attnprobe.report.scores import unit_of
from attnprobe.verdict_tables import BETWEEN
from attnprobe.wording import spaced

HOLDS_UP = {"yes": "holds up", "no": "does not hold up", "open": "open"}
WORDS = {
    "comprehensiveness": "How far the answer falls when the first tokens of an order are taken away",
    "sufficiency": "How far it falls when they alone are left",
    "deletion_area": "Area under the answer while tokens are taken away in an order",
    "insertion_area": "Area under the answer while tokens are put back in an order",
}


@dataclass(frozen=True)
class Block:
    """A table of text: what it is, how to read it, the heads of its columns, its rows. left: columns of words."""

    title: str
    note: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int] = frozenset({0})


@dataclass(frozen=True)
class Digest:
    """The claim of a comparison, its findings, and its tables for people."""

    claim: str
    scope: str
    findings: tuple[str, ...]
    blocks: tuple[Block, ...]


def digest(comparison: Comparison) -> Digest:
    """The claim, what else was found, and the tables: verdicts, faithfulness by metric, agreement, costs, failures."""
    first = top(comparison)
    claim = " ".join(part for part in (first["headline"].rstrip(".") + ".", first["lede"]) if part)
    blocks = [_verdicts(comparison), *_faithfulness(comparison), _agreement(comparison)]
    blocks += [_costs(comparison), _failures(comparison)]
    # What is said of each map stands in the table of verdicts.
    claims = tuple(found.claim for found in told(comparison) if found.topic != "explanation")
    said = nouns(comparison).said
    made = tuple(replace(block, note=said(block.note)) for block in blocks if block is not None and block.rows)
    return Digest(claim, first["scope"], claims, made)


def shown(value: float, *, sign: bool = False) -> str:
    """Three significant digits, so that small numbers are not hidden; a true minus; a dash where there is none.

    >>> shown(12.345), shown(0.0456, sign=True), shown(-0.00012), shown(0.0), shown(float("nan"))
    ('12.3', '+0.0456', '−1.2 × 10⁻⁴', '0', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    size = abs(value)
    if size == 0:
        return "0"
    digits = 2 - math.floor(math.log10(float(f"{size:.3g}")))
    text = scientific(size) if size < 0.001 or size >= 1e6 else f"{size:.{max(0, digits)}f}"
    return (MINUS if value < 0 else "+" if sign else "") + text


def counted(value: float) -> str:
    """A number of passes: whole where it is, else as `shown`."""
    return f"{value:.0f}" if math.isfinite(value) and float(value).is_integer() else shown(value)


def between(low: float, high: float, *, sign: bool = False) -> str:
    """The ends of an interval; nothing where there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"[{shown(low, sign=sign)}, {shown(high, sign=sign)}]"


def _verdicts(comparison: Comparison) -> Block | None:
    """Of one text the verdict on each map and its reason, of more how many texts each verdict has."""
    table = comparison.verdicts
    if table.empty:
        return None
    title = "Does the map explain the prediction?"
    note = "By the rule for a single prediction; causes are measured where a map does not explain"
    if len(comparison.studies) == 1:
        rows = [
            (
                look(r["method"]).label,
                str(r["verdict"]),
                nouns(comparison).said(of_tokens(_sentences(r["reason"]))),
                _causes(table[table.method == r["method"]]),
            )
            for r in table.to_dict("records")
        ]
        return Block(title, note, ("map", "verdict", "why", "causes"), _rows(rows), frozenset({0, 1, 2, 3}))
    many = [
        (look(str(method)).label, *_shares(comparison, method), _causes(part))
        for method, part in table.groupby("method", sort=False)
    ]
    note = f"{note}; texts with each verdict, share and its 95 % interval"
    return Block(title, note, ("map", *VERDICTS, "causes"), _rows(many), frozenset({0, len(VERDICTS) + 1}))


def _shares(comparison: Comparison, method: object) -> list[str]:
    table = comparison.verdict_shares
    mine = table[table.method == method].set_index("verdict")
    return [
        f"{int(mine['count'][v])} of {int(mine.n[v])} ({percent(mine.share[v], 0)} "
        f"[{100 * mine.low[v]:.0f}, {100 * mine.high[v]:.0f}])"
        for v in VERDICTS
    ]


def _causes(rows: pd.DataFrame) -> str:
    """Causes by name, with the number of texts where there are several."""
    found = [(name, len(said)) for name, said in said_causes(rows)]
    return ", ".join(name.replace("_", " ") + (f" {n}" if len(rows) > 1 else "") for name, n in found)


def _sentences(cell: object) -> str:
    return spaced("; ".join(part.strip().rstrip(".") for part in str(cell).split(BETWEEN) if part))


def _faithfulness(comparison: Comparison) -> list[Block]:
    """A table a metric of the main operator: each method beside random orders."""
    unit, found = unit_of(comparison), []
    for metric, part in comparison.main.groupby("metric", sort=False):
        better = part.better.iloc[0]
        said = WORDS.get(str(metric), str(metric).replace("_", " ").capitalize())
        note = (
            f"{said}, in {unit.word} of {unit.what}; {better} is better; operator {comparison.settings.operator}"
            f"{_brackets(part)}"
        )
        rows = [_faithful(row, unit.factor, sign=not str(metric).endswith("_area")) for row in part.to_dict("records")]
        headers = ("method", "mean", "interval", "random orders", "beats of them", "here")
        found.append(Block(str(metric).replace("_", " ").capitalize(), note, headers, _rows(rows), frozenset({0, 5})))
    return found


def _brackets(rows: pd.DataFrame) -> str:
    """What stands in brackets: intervals where there are enough texts, random orders where there are such."""
    over = "; interval: 95 % over texts" if rows.low.notna().any() else ""
    random = "; random orders: their mean and, in brackets, the middle 90 % of them"
    return over + (random if rows.random_low.notna().any() else "")


def _faithful(row: dict, factor: float, *, sign: bool) -> tuple[str, ...]:
    random = f"{shown(factor * row['random_mean'], sign=sign)} " + between(
        factor * row["random_low"], factor * row["random_high"], sign=sign
    )
    return (
        look(row["method"]).label,
        shown(factor * row["mean"], sign=sign),
        between(factor * row["low"], factor * row["high"], sign=sign),
        random.strip(),
        percent(row["random_beaten"], 0),
        HOLDS_UP[row["holds_up"]],
    )


def _agreement(comparison: Comparison) -> Block | None:
    """Kendall's tau of every pair of methods."""
    table = comparison.agreement
    if table.empty:
        return None
    table = table[table.metric == "kendall_tau"]
    rows = []
    for (first, second), part in table.groupby(["method_a", "method_b"], sort=False):
        by = {str(row["direction"]): row for row in part.to_dict("records")}
        main = by.get("signed", next(iter(by.values())))
        sizes = by.get("size")
        rows.append(
            (look(str(first)).label, look(str(second)).label, shown(main["mean"], sign=True),
             between(main["low"], main["high"], sign=True), between(main["null_low"], main["null_high"], sign=True),
             shown(sizes["mean"], sign=True) if sizes else "–")
        )  # fmt: skip
    note = "Kendall’s τ of two orders of the tokens: 1 the same, 0 none, −1 the reverse; chance: tokens permuted"
    headers = ("method", "and", "τ", "interval", "by chance", "τ of sizes")
    return Block("How far the methods agree", note, headers, _rows(rows), frozenset({0, 1}))


def _costs(comparison: Comparison) -> Block:
    rows = [
        (look(r["method"]).label, str(r["family"]), counted(r["forward_passes"]), counted(r["backward_passes"]),
         shown(r["seconds"]))
        for r in comparison.costs.to_dict("records")
    ]  # fmt: skip
    headers = ("method", "family", "forward passes", "backward passes", "seconds")
    return Block("What it cost", "Mean of a text", headers, _rows(rows), frozenset({0, 1}))


def _failures(comparison: Comparison) -> Block | None:
    table: pd.DataFrame = comparison.failures
    rows = [(str(r["example_index"] + 1), str(r["method"]), str(r["error"])) for r in table.to_dict("records")]
    return Block("What failed", "", ("text", "method", "why"), _rows(rows), frozenset({1, 2})) if rows else None


def _rows(rows: Iterable[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(row) for row in rows)
