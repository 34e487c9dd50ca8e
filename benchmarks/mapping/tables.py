"""Records of predictions -> long tables with n and intervals.

Masked atoms of one reaction depend on one another: intervals of means and all tests are over reactions (the mean of a
reaction's atoms counts once). Wilson's intervals of shares take every atom for itself and are, if anything, narrow.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.intervals import over_texts
from attnprobe.judgement.rule import VERDICTS
from attnprobe.judgement.verdict_sets import wilson
from attnprobe.significance import holm, paired
from attnprobe.study import ORACLE, RANDOM_ORDER
from benchmarks.mapping.naming import ANY, ELEMENT
from benchmarks.mapping.reading import element

Records = Sequence[Mapping[str, Any]]
N_RESAMPLES = 2000
# Whether more of it is better.
BETTER = {"comprehensiveness": 1, "sufficiency": -1, "deletion_area": -1}
FOCUS = "head (10, 5)"


def verdict_rows(found: Records) -> pd.DataFrame:
    """A row a prediction and map: both claims, side by side."""
    rows = []
    for r in found:
        facts = {key: r[key] for key in ("template", "reaction", "atom", "token", "predicted", "probability")}
        facts["element"] = "carbon" if element(r["token"]) == "C" else "other"
        for m in r["maps"]:
            claims = {"names_source": m["names_source"][ELEMENT], "names_source_any": m["names_source"][ANY]}
            kept = {key: m[key] for key in ("map", "attention", "verdict", "quality", "random", "reason")}
            calls = {f"call_{one['operator']}": one["call"] or "neither" for one in m["readings"]}
            rows.append(facts | kept | claims | calls)
    return pd.DataFrame(rows)


def verdict_shares(verdicts: pd.DataFrame, by: Sequence[str] = ("map",)) -> pd.DataFrame:
    """A row a map and verdict: its share, with Wilson's interval and one over reactions."""
    rows = []
    for group, part in verdicts.groupby(list(by), sort=False):
        for verdict in VERDICTS:
            is_it = part.verdict == verdict
            low, high = wilson(int(is_it.sum()), len(part))
            over = mean_over(part.assign(value=is_it.astype(float)))
            numbers = (
                is_it.mean(),
                low,
                high,
                over.low,
                over.high,
                int(is_it.sum()),
                len(part),
                part.reaction.nunique(),
            )
            rows.append((*group, verdict, *numbers))
    columns = ["share", "low", "high", "low_over_reactions", "high_over_reactions", "count", "n", "n_reactions"]
    return pd.DataFrame(rows, columns=[*by, "verdict", *columns])


def by_reaction(rows: pd.DataFrame) -> pd.Series:
    """The mean of `value` of each reaction."""
    return rows.groupby("reaction", sort=True).value.mean()


def mean_over(rows: pd.DataFrame) -> Any:
    """The mean of `value` over reactions, with its bootstrap interval."""
    return over_texts(by_reaction(rows).tolist(), n_resamples=N_RESAMPLES, seed=0)


def quality(verdicts: pd.DataFrame) -> pd.DataFrame:
    """A row a map: its quality (1 - M), that of random orders, their difference with interval, and the paired test."""
    rows, tests = [], []
    for name, part in verdicts.groupby("map", sort=False):
        apart = mean_over(part.assign(value=part.quality - part.random))
        tests.append(paired(by_reaction(part.assign(value=part.quality - part.random)).to_numpy()))
        numbers = (mean_over(part.assign(value=part.quality)).mean, mean_over(part.assign(value=part.random)).mean)
        rows.append((name, *numbers, apart.mean, apart.low, apart.high, tests[-1].p, tests[-1].effect, apart.n))
    columns = ["map", "quality", "random", "difference", "low", "high", "p", "effect", "n_reactions"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(p_holm=holm([test.p for test in tests]))


def erasure_rows(found: Records) -> pd.DataFrame:
    """A row a prediction, metric and order: its value; random orders are their mean."""
    rows = [
        (r["reaction"], metric, name, value)
        for r in found
        if r["erasure"] is not None
        for metric, values in r["erasure"].items()
        for name, value in values.items()
    ]
    return pd.DataFrame(rows, columns=["reaction", "metric", "map", "value"])


def erasure(rows: pd.DataFrame) -> pd.DataFrame:
    """A row a metric and map: mean with interval, beside random orders and the best; position: 0 random, 1 best."""
    found, tests = [], []
    for metric, part in rows.groupby("metric", sort=False):
        of = {name: by_reaction(one) for name, one in part.groupby("map", sort=False)}
        for name, values in of.items():
            if name in (RANDOM_ORDER, ORACLE):
                continue
            mean = over_texts(values.tolist(), n_resamples=N_RESAMPLES, seed=0)
            better = BETTER[str(metric)] * (values - of[RANDOM_ORDER])
            tests.append(paired(better.to_numpy()))
            random, best = float(of[RANDOM_ORDER].mean()), float(of[ORACLE].mean())
            position = (mean.mean - random) / (best - random)
            facts = (mean.mean, mean.low, mean.high, random, best, position, tests[-1].p, tests[-1].effect, mean.n)
            found.append((metric, name, *facts))
    columns = ["mean", "low", "high", "random", "oracle", "position", "p", "effect", "n_reactions"]
    table = pd.DataFrame(found, columns=["metric", "map", *columns])
    return table.assign(p_holm=holm([test.p for test in tests]))


def pairs_of_maps(verdicts: pd.DataFrame, erased: pd.DataFrame) -> pd.DataFrame:
    """Paired tests (Wilcoxon, Holm over all of a measure) of every two maps: quality, and what erasure says.

    difference: by how much a is better than b.
    """
    measured = {"quality": (verdicts.assign(value=verdicts.quality), 1)}
    measured |= {str(m): (part, BETTER[str(m)]) for m, part in erased.groupby("metric", sort=False)}
    tables = []
    for measure, (rows, sign) in measured.items():
        of = {n: sign * by_reaction(p) for n, p in rows.groupby("map", sort=False) if n not in (RANDOM_ORDER, ORACLE)}
        tests = [(a, b, paired((of[a] - of[b]).to_numpy())) for a, b in combinations(of, 2)]
        table = pd.DataFrame([(measure, a, b, t.difference, t.p, t.effect, t.n) for a, b, t in tests])
        table.columns = ["measure", "map_a", "map_b", "difference", "p", "effect", "n_reactions"]
        tables.append(table.assign(p_holm=holm(table.p.to_numpy())))
    return pd.concat(tables, ignore_index=True)


def effects_of_parts(found: Records) -> pd.DataFrame:
    """A row an operator and part of the input: the mean effect of its tokens, as a share of the largest."""
    rows = [
        (r["reaction"], "carbon" if element(r["token"]) == "C" else "other", e["operator"], part, value)
        for r in found
        for e in r["effects"]
        for part, value in e["parts"].items()
        if value is not None
    ]
    table = pd.DataFrame(rows, columns=["reaction", "element", "operator", "part", "value"])
    table = pd.concat([table.assign(element="all"), table], ignore_index=True)
    return means(table, ["element", "operator", "part"])


def weights_of_parts(found: Records) -> pd.DataFrame:
    """A row a map and part of the input: the share of the map that lies on its tokens."""
    rows = [
        (r["reaction"], m["map"], part, value) for r in found for m in r["maps"] for part, value in m["parts"].items()
    ]
    return means(pd.DataFrame(rows, columns=["reaction", "map", "part", "value"]), ["map", "part"])


def means(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """A row a group: the mean of `value` over reactions, with interval."""
    found = []
    for group, part in rows.groupby(by, sort=False):
        one = mean_over(part)
        found.append((*group, one.mean, one.low, one.high, one.n))
    return pd.DataFrame(found, columns=[*by, "mean", "low", "high", "n_reactions"])


def contexts(found: Records) -> pd.DataFrame:
    """A row a part that is gone: by how much the true token's log-probability falls, and how often it stays likely."""
    rows = [
        (r["reaction"], "carbon" if element(r["token"]) == "C" else "other", gone, r["log_probability"] - left, left)
        for r in found
        for gone, left in (r["context"] | {"nothing": r["log_probability"]}).items()
    ]
    table = pd.DataFrame(rows, columns=["reaction", "element", "gone", "value", "left"])
    table = pd.concat([table.assign(element="all"), table], ignore_index=True)
    stays = table.assign(value=(table.left > math.log(0.5)).astype(float))
    falls = means(table, ["element", "gone"]).rename(columns={"mean": "fall", "low": "fall_low", "high": "fall_high"})
    return falls.merge(means(stays, ["element", "gone"]).drop(columns="n_reactions"), on=["element", "gone"]).rename(
        columns={"mean": "still_likely", "low": "still_likely_low", "high": "still_likely_high"}
    )


def first_by_effect(found: Records) -> pd.DataFrame:
    """A row an operator and choice: how often the source has the largest effect of all reactant atoms."""
    rows = [
        (r["reaction"], e["operator"], among, hit)
        for r in found
        for e in r["effects"]
        for among, hit in e["source_first"].items()
    ]
    table = pd.DataFrame(rows, columns=["reaction", "operator", "among", "right"])
    return _shares(table, ["operator", "among"], lambda part: part.right)


def both_claims(verdicts: pd.DataFrame) -> pd.DataFrame:
    """A row a map and verdict: how many of the predictions have it, where the map names the source and where not.

    Named among all reactant atoms, of whatever element.
    """
    by = ["map", "names_source_any"]
    table = verdicts.groupby([*by, "verdict"], sort=False).size().rename("n").reset_index()
    return table.assign(share=table.n / table.groupby(by).n.transform("sum"))


def named_when_masked(verdicts: pd.DataFrame) -> pd.DataFrame:
    """A row a map and choice: how often its row of the masked position names the source."""
    parts = {ELEMENT: verdicts.names_source, ANY: verdicts.names_source_any}
    rows = pd.concat([verdicts[["map"]].assign(among=among, right=right) for among, right in parts.items()])
    return _shares(rows, ["map", "among"], lambda part: part.right)


def _shares(rows: pd.DataFrame, by: list[str], of: Callable[[pd.DataFrame], Iterable[bool]]) -> pd.DataFrame:
    found = []
    for group, part in rows.groupby(by, sort=False):
        right = int(sum(of(part)))
        found.append((*group, right / len(part), *wilson(right, len(part)), len(part)))
    return pd.DataFrame(found, columns=[*by, "share", "low", "high", "n"])


def heads_paired(names: pd.DataFrame, focus: str = "10.5") -> pd.DataFrame:
    """A row a map: by how much more a head names sources than it does, over reactions, with the paired test.

    Of the atoms of which one is right and the other not: only_focus and only_other.
    """
    same = names[names.among == ELEMENT].set_index(["reaction", "atom"])
    mine = same[same["map"] == focus].right
    rows, tests = [], []
    for name, part in same[same["map"] != focus].groupby("map", sort=False):
        apart = pd.DataFrame({"value": mine.astype(float) - part.right.astype(float)}).reset_index()
        tests.append(paired(by_reaction(apart).to_numpy()))
        over = mean_over(apart)
        only = (int((apart.value > 0).sum()), int((apart.value < 0).sum()))
        rows.append((focus, name, over.mean, over.low, over.high, *only, tests[-1].p, over.n))
    columns = ["focus", "map", "difference", "low", "high", "only_focus", "only_other", "p", "n_reactions"]
    return pd.DataFrame(rows, columns=columns).assign(p_holm=holm([test.p for test in tests]))


def silenced_heads(found: Records) -> pd.DataFrame:
    """A row a head: by how much the true token's log-probability falls when it is silenced, mean over reactions."""
    rows = [
        (r["reaction"], layer, head, value)
        for r in found
        for layer, values in enumerate(r["silenced"])
        for head, value in enumerate(values)
    ]
    table = means(pd.DataFrame(rows, columns=["reaction", "layer", "head", "value"]), ["layer", "head"])
    return table.rename(columns={"mean": "fall"}).sort_values("fall", ascending=False)


def causes(found: Records) -> pd.DataFrame:
    """A row a cause: in how many predictions it is present, of those where it was sought, and its median measure."""
    sought = [r["causes"] for r in found if r["causes"] is not None]
    rows = []
    for name in dict.fromkeys(name for one in sought for name in one):
        known = [one[name] for one in sought if one[name]["present"] is not None]
        n, median = sum(one["present"] for one in known), np.median([one["measure"] for one in known] or [math.nan])
        rows.append((name, n, len(known), *wilson(n, len(known)), float(median)))
    table = pd.DataFrame(rows, columns=["cause", "present", "n", "low", "high", "median_measure"])
    return table.sort_values("present", ascending=False)
