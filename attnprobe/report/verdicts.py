"""Whether attention explains, on the page: of each map that attention makes its verdict, or the shares of a set."""

import math
from collections import Counter
from typing import Any

import pandas as pd

from attnprobe.appearance import look, names, percent, signed
from attnprobe.comparison import Comparison
from attnprobe.explaining import said_causes
from attnprobe.judgement.rule import RULE, UNDECIDED, VERDICTS
from attnprobe.report.nouns import Nouns, nouns, of_tokens
from attnprobe.verdict_tables import BETWEEN
from attnprobe.wording import spaced

CAUSES = 4


def panel(comparison: Comparison, methods: list[str]) -> dict[str, Any] | None:
    """What the page says of the verdicts; None where no map was judged."""
    table = comparison.verdicts
    if table.empty:
        return None
    known = [m for m in methods if m in set(table.method)]
    one = len(comparison.studies) == 1
    noun = nouns(comparison)
    rows = _grouped([_of_one(table, m, noun) if one else _of_many(comparison, m) for m in known])
    rule = {name: percent(getattr(RULE, name), 0) for name in ("effective", "idle", "miss", "order", "top", "chance")}
    causes = _causes(table[table.method.isin(known)], noun) if one else []
    return {
        "one": one,
        "rows": rows,
        "causes": causes,
        "heading": _heading(table, known, one, noun),
        "rule": rule,
        "tested": not one and any(part["p"] for row in rows for part in row["maps"]),
    }


# What is said of a map alone, also where all else is said of several at once.
OF_A_MAP = ("method", "label", "beyond", "p")


def _grouped(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for all maps of which the same is to be said; its `maps` hold what is told of each."""
    found: list[dict[str, Any]] = []
    for row in rows:
        own = {name: row[name] for name in OF_A_MAP if name in row}
        shared = {name: value for name, value in row.items() if name not in OF_A_MAP}
        like = next((one for one in found if all(one[name] == value for name, value in shared.items())), None)
        if like is None:
            found.append({**row, "maps": [own]})
        else:
            like["maps"].append(own)
    return found


def _heading(table: pd.DataFrame, methods: list[str], one: bool, noun: Nouns) -> str:
    """How many of each verdict; 0 and all in words."""
    counts, total = Counter(table.verdict), len(table)
    maps = f"{len(methods)} map{'s' if len(methods) > 1 else ''}"
    of = f"{maps} of attention" if one else f"{total} verdicts ({maps} on {table.example_index.nunique()} {noun.texts})"
    said = [_counted(v, counts[v], total) for v in VERDICTS if counts[v] or v != UNDECIDED]
    return f"Of {of}: {', '.join(said)}"


def _counted(verdict: str, n: int, total: int) -> str:
    """A verdict and how many have it, such as "none explains", "2 mislead", "all 6 are undecided"."""
    if verdict == UNDECIDED:
        return f"all {n} are undecided" if 1 < n == total else f"{n} undecided"
    return f"{n or 'none'} {verdict}" if n < 2 else f"{f'all {n}' if n == total else n} {verdict[:-1]}"


def _of_one(table: pd.DataFrame, method: str, noun: Nouns) -> dict[str, Any]:
    row = table[table.method == method].iloc[0]
    return {
        "method": method,
        "label": look(method).label,
        "verdict": row.verdict,
        "reason": _sentence(str(row.reason), noun),
        "against": [_sentence(one, noun) for one in str(row.against).split(BETWEEN) if one],
    }


def _causes(table: pd.DataFrame, noun: Nouns) -> list[dict[str, Any]]:
    """Causes found on one text: most hold for all maps, so each stands once, with the maps that it holds for."""
    found: dict[str, list[str]] = {}
    for row in table.to_dict("records"):
        for one in str(row["causes"]).split(BETWEEN):
            if one:
                found.setdefault(_sentence(one, noun), []).append(look(row["method"]).label)
    return [{"said": said, "maps": names(maps), "all": len(maps) == len(table)} for said, maps in found.items()]


def _sentence(said: str, noun: Nouns) -> str:
    said = noun.said(of_tokens(said)).strip().rstrip(".").replace(" -0%", " 0%")
    return spaced(f"{said[:1].upper()}{said[1:]}.") if said else ""


def _of_many(comparison: Comparison, method: str) -> dict[str, Any]:
    table = comparison.verdict_shares
    mine = table[table.method == method].set_index("verdict")
    rows = comparison.verdicts[comparison.verdicts.method == method]
    first = mine.iloc[0]
    parts = [
        _part(verdict, float(mine["count"][verdict]), mine.share[verdict], mine.low[verdict], mine.high[verdict])
        for verdict in VERDICTS
    ]
    beyond = f"{signed(100 * first.difference, 0)} points"
    p = "" if pd.isna(first.p_holm) else f"p {first.p_holm:.2g}" if first.p_holm >= 1e-4 else "p < 0.0001"
    found, noun = said_causes(rows)[:CAUSES], nouns(comparison)
    return {
        "method": method,
        "label": look(method).label,
        "n": int(first.n),
        "parts": parts,
        "beyond": beyond if math.isfinite(first.difference) else "–",
        "p": p,
        "causes": [{"name": name, "n": len(said), "first": _sentence(said[0], noun)} for name, said in found],
    }


def _part(verdict: str, count: float, share: float, low: float, high: float) -> dict[str, Any]:
    """One of the three shares, in words and as a width in percent."""
    return {
        "verdict": verdict,
        "count": int(count),
        "share": percent(share, 0),
        "ends": f"{percent(low, 0)} to {percent(high, 0)}",
        "width": round(100 * share, 2),
    }
