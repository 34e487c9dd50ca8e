"""What two comparisons taught, in five sentences each; every number in them is read from the comparison's tables."""

import csv
from collections import Counter
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pandas as pd

from attnprobe.appearance import look, names, number, percent, signed
from attnprobe.comparison import Comparison
from attnprobe.explaining import said_causes

SENTENCES = Path(__file__).parent / "sentences.csv"
CONTROL = "random_scores"
# The kinds of sentences that turn a word's meaning round.
TURNING = ("negation", "contrast")


def of_sentences(comparison: Comparison, texts: Sequence[str]) -> tuple[str, ...]:
    """The five sentences of the sentiment study."""
    return (
        faithful(comparison),
        attention(comparison),
        explaining(comparison),
        operators(comparison),
        f"What surprised: {turned(comparison, texts)}; and {rivals(comparison)}.",
    )


def of_held_out(comparison: Comparison, texts: Sequence[str]) -> tuple[str, ...]:
    """The same of sentences that are not shown."""
    return faithful(comparison), attention(comparison), explaining(comparison), operators(comparison)


def of_reactions(comparison: Comparison, texts: Sequence[str]) -> tuple[str, ...]:
    """The five sentences of the study of reactions."""
    return (
        faithful(comparison),
        attention(comparison),
        explaining(comparison),
        operators(comparison),
        f"What surprised: {behind(comparison)}; of {first_tokens(comparison)}.",
    )


def faithful(comparison: Comparison) -> str:
    """Which methods find what the answer rests on, and by how much over random orders."""
    rows = _rows(comparison, "comprehensiveness").sort_values("mean", ascending=False)
    best = rows.drop(CONTROL).head(3)
    said = names(f"{look(name).label} {_points(row)}" for name, row in best.iterrows())
    random = rows.random_mean.iloc[0]
    place = best.position.dropna()
    far = f", {percent(place.min(), 0)} or more of the way to the best order found" if len(place) else ""
    control = _points(rows.loc[CONTROL])
    alone = _rows(comparison, "sufficiency")
    keeps = alone.drop(CONTROL)["mean"].idxmin()
    return (
        f"Most faithful: with the first tokens of their order taken away the answer falls by {said} points of "
        f"probability (comprehensiveness, mean over {int(rows.n.max())} texts with its interval){far}, in random "
        f"orders by {number(100 * random, 1)}; random scores, the control, stand at {control}; left alone, the first "
        f"tokens of {look(str(keeps)).label} keep the most of it (the answer {_falls(alone.loc[keeps])}, in random "
        f"orders it falls by {number(100 * alone.random_mean.iloc[0], 1)})."
    )


def attention(comparison: Comparison) -> str:
    """How far the maps that attention makes fall behind them."""
    rows = _rows(comparison, "comprehensiveness")
    maps = [m for m in comparison.verdict_shares.method.unique() if m in rows.index]
    ordered = rows.loc[maps].sort_values("mean", ascending=False)
    raw, best = rows.loc["raw_attention"], rows.drop(CONTROL)["mean"].max()
    said = names(f"{look(name).label} {number(100 * row['mean'], 1)}" for name, row in ordered.iterrows())
    share = raw.difference / (best - raw.random_mean)
    return (
        f"Of the maps that attention makes the fall is: {said}; raw attention beats {percent(raw.random_beaten, 0)} of "
        f"the random orders and has {percent(share, 0)} of the lead over them that the best method has."
    )


def explaining(comparison: Comparison) -> str:
    """Where maps explain, mislead, or cannot be told, and the commonest causes."""
    table = comparison.verdict_shares.set_index(["method", "verdict"])
    best = table.xs("explains", level="verdict").share.idxmax()
    parts = []
    for method in dict.fromkeys([best, "raw_attention"]):
        of = names(f"{word} {_share(table.loc[(method, verdict)])}" for verdict, word in WORDS.items())
        parts.append(f"{look(method).label} {of}")
    rows = comparison.verdicts[comparison.verdicts.method == "raw_attention"]
    causes = ", ".join(f"{name} {len(said)}" for name, said in said_causes(rows)[:3])
    n_open = int((comparison.verdicts.verdict == "undecided").sum())
    return (
        f"As explanations of single predictions {n_open} of {len(comparison.verdicts)} maps stay undecided: "
        f"{'; '.join(parts)}; commonest causes where raw attention does not explain, in texts: "
        f"{causes or 'none was measured'}."
    )


WORDS = {"explains": "explains", "misleads": "misleads on", "undecided": "is undecided on"}


def operators(comparison: Comparison) -> str:
    """Whether the ways to take tokens away agree: on methods, on tokens, on verdicts."""
    table = comparison.stability
    methods = table[(table.ranked == "methods") & (table.metric == "comprehensiveness")].kendall_tau
    tokens = table[table.ranked == "tokens"].kendall_tau
    tau = table[table.ranked == "tokens"].sort_values("kendall_tau").iloc[0]
    low = f"least between {tau.operator_a} and {tau.operator_b}"
    said = comparison.verdict_evidence
    calls = said[said.decides].groupby(["example_index", "method"]).call.nunique()
    idle = said[said.decides & (said.method == "raw_attention") & (said.n_idle == 0)]
    least = Counter(idle.operator).most_common(1)
    none = (
        f"; under {least[0][0]} no token is idle on {least[0][1]} of {len(comparison.studies)} texts" if least else ""
    )
    return (
        f"Operators beside one another ({names(comparison.operators.operator)}): Kendall’s τ of the order of methods "
        f"is {_range(methods)}, of the order of tokens {_range(tokens)} ({low}); the two that decide a verdict say "
        f"different things of {int((calls > 1).sum())} of {len(calls)} maps{none}."
    )


def turned(comparison: Comparison, texts: Sequence[str]) -> str:
    """Right answers on sentences that turn a word round, beside the others; the labels are the writer's."""
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        rows = {row["text"]: row for row in csv.DictReader(file)}
    right: dict[str, list[bool]] = {}
    for text, predicted in zip(texts, comparison.tables["predictions"].predicted, strict=True):
        right.setdefault(rows[text]["kind"], []).append(predicted == rows[text]["label"])
    kinds = names(f"{sum(right[kind])} of {len(right[kind])} with {kind}" for kind in TURNING if kind in right)
    others = [one for kind, found in right.items() if kind not in TURNING for one in found]
    table = comparison.positions
    table = table[(table.operator == comparison.settings.operator) & (table.metric == "comprehensiveness")]
    mine = table[table.method == "raw_attention"].set_index("example_index")
    lead = mine.value - mine.random_mean
    kind = pd.Series([rows[text]["kind"] for text in texts], index=range(len(texts)))
    by_kind = lead.groupby(kind).mean()
    return (
        f"the model is right on {kinds}, and on {sum(others)} of {len(others)} others, and raw attention’s lead over "
        f"random orders goes from {signed(100 * by_kind.min(), 1)} points ({by_kind.idxmin()}) to "
        f"{signed(100 * by_kind.max(), 1)} ({by_kind.idxmax()})"
    )


def first_tokens(comparison: Comparison) -> str:
    """Which tokens raw attention puts first, and which the best method does."""
    best = _rows(comparison, "comprehensiveness").drop(CONTROL)["mean"].idxmax()
    said = []
    for method in ("raw_attention", str(best)):
        found = [a for study in comparison.studies if (a := study.attribution(method)) is not None and a.ranking()]
        counts = Counter(a.example.pieces[a.ranking()[0]] for a in found)
        top = ", ".join(f"{piece} {n}" for piece, n in counts.most_common(3))
        said.append(f"{look(method).label} puts first {top}")
    return f"{len(comparison.studies)} reactions " + ", ".join(said)


def rivals(comparison: Comparison) -> str:
    """The two maps of which the one that does worse by removal explains the most texts more than the other."""
    rows = _rows(comparison, "comprehensiveness")
    shares = comparison.verdict_shares
    explains = shares[shares.verdict == "explains"].set_index("method")["count"]
    ahead = {(a, b): explains[a] - explains[b] for a, b in permutations(explains.index, 2)}
    up, down = max(ahead, key=lambda pair: ahead[pair] if rows["mean"][pair[0]] < rows["mean"][pair[1]] else -1)
    if ahead[up, down] <= 0 or rows["mean"][up] >= rows["mean"][down]:
        return "no map that does worse by removal than another explains more texts than it"
    fall = {method: signed(100 * rows["mean"][method], 1) for method in (up, down)}
    said = [f"{look(m).label} explains {explains[m]} of {len(comparison.studies)} at a fall of {fall[m]}" for m in fall]
    return f"orders that do well on average need not explain: {said[0]}, {said[1]}"


def behind(comparison: Comparison) -> str:
    """Other methods than attention's that do worse by removal than raw attention; how kinds of operators part."""
    rows = _rows(comparison, "comprehensiveness").drop(CONTROL)
    maps = set(comparison.verdict_shares.method)
    worse = rows[~rows.index.isin(maps) & (rows["mean"] < rows["mean"]["raw_attention"])]
    said = (
        names(f"{look(name).label} ({signed(100 * row['mean'], 1)})" for name, row in worse.iterrows()) or "no method"
    )
    table = comparison.stability
    table = table[table.ranked == "tokens"]
    tau, same = table.kendall_tau, table.kind_a == table.kind_b
    return (
        f"of the methods by gradients or removal {said} does worse than raw attention; two content operators rank the "
        f"tokens with τ {_range(tau[same])}, a content one and a renormalising one with τ {_range(tau[~same])}"
    )


def _rows(comparison: Comparison, metric: str) -> pd.DataFrame:
    """The rows of a metric under the main operator, by method."""
    table = comparison.main
    return table[table.metric == metric].set_index("method")


def _points(row: pd.Series) -> str:
    ends = f" [{number(100 * row.low, 1)}, {number(100 * row.high, 1)}]" if pd.notna(row.low) else ""
    return f"{number(100 * row['mean'], 1)}{ends}"


def _falls(row: pd.Series) -> str:
    """A fall, or a rise where it is below 0, with its interval."""
    if row["mean"] >= 0:
        return f"falls by {_points(row)}"
    return f"rises by {_points(pd.Series({'mean': -row['mean'], 'low': -row.high, 'high': -row.low}))}"


def _share(row: pd.Series) -> str:
    ends = f"[{number(100 * row.low, 0)}, {number(100 * row.high, 0)}]"
    return f"{int(row['count'])} of {int(row.n)} ({percent(row.share, 0)} {ends})"


def _range(values: pd.Series) -> str:
    low, high = number(values.min(), 2), number(values.max(), 2)
    return low if low == high else f"{low} to {high}"
