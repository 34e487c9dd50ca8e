"""COVERAGE.md from the rows of coverage.csv: counts by kind, what was refused and why, what was not built."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.covering.measuring import Measured

ROUTES = {
    "registry": "through transformers' attention registry",
    "softmax": "at the model's own softmax",
    "sdpa": "beside scaled_dot_product_attention",
    "layout": "laid out from bands, blocks, samples or hashes",
}


def badge(rows: Sequence[Measured]) -> str:
    """The line for README: exact on N of M."""
    attending, exact = _attending(rows), [row for row in rows if row.exact]
    missing = [row for row in rows if not row.built]
    reasons = Counter(_kind_of_reason(row.reason) for row in missing)
    why = ", ".join(f"{n} {reason}" for reason, n in reasons.most_common())
    return (
        f"exact on {len(exact)} of {len(attending)} attention-bearing model types of transformers "
        f"({len(missing)} not built: {why})"
    )


def coverage_text(rows: Sequence[Measured], argued: str) -> str:
    """The whole of COVERAGE.md; `argued` is what people wrote, put behind the tables of counts."""
    built, attending = [r for r in rows if r.built], _attending(rows)
    exact = [row for row in attending if row.exact]
    share = len(exact) / max(1, len(attending))
    return "\n".join(
        [
            "# Coverage",
            "",
            "Written by `benchmarks/coverage.py`, which builds a tiny random model of every model type in",
            "transformers, captures it, silences one head, and looks at what is left behind. One row a type:",
            "`coverage.csv`.",
            "",
            f"- **{badge(rows)}**",
            f"- {len(rows)} types, {len(built)} built, {len(attending)} of them run attention, "
            f"{len(exact)} exact ({share:.1%}).",
            "- *Exact*: weights bitwise equal to the model's own maps, or call by call to its own function; where",
            "  it offers neither, |weights @ value - z| at most 1e-5 of z; every output with capture bitwise equal",
            "  to that without; a silenced head equal within 1e-5 to its part of the projection's input set to",
            "  zero; model, random state and transformers as they were.",
            "",
            "## How attention is reached",
            "",
            *_table(["route", "types", "exact"], _by_route(attending)),
            "",
            "## What the weights were compared with",
            "",
            *_table(["reference", "types", "exact"], _counted(attending, lambda row: row.reference.split(";")[0])),
            "",
            f"In {sum('nothing reads z' in r.reference for r in attending)} types nothing reads z whole, so the edit",
            "was run, not compared.",
            "",
            argued.strip(),
            "",
            "## Not exact",
            "",
            *_list(row for row in attending if not row.exact),
            "",
            "## Without attention weights",
            "",
            *_list(row for row in built if not row.attention),
            "",
            "## Not built",
            "",
            *_list(row for row in rows if not row.built),
            "",
        ]
    )


def _attending(rows: Iterable[Measured]) -> list[Measured]:
    return [row for row in rows if row.built and row.attention]


def _by_route(rows: Sequence[Measured]) -> list[list[str]]:
    def words(row: Measured) -> str:
        return " + ".join(ROUTES.get(route, route) for route in row.route.split("+")) if row.route else "refused"

    return _counted(rows, words)


def _counted(rows: Sequence[Measured], key: Callable[[Measured], str]) -> list[list[str]]:
    whole, exact = Counter(key(row) for row in rows), Counter(key(row) for row in rows if row.exact)
    return [[name or "none", str(n), str(exact[name])] for name, n in whole.most_common()]


def _table(headers: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (headers, ["---"] * len(headers), *rows)]


def _list(rows: Iterable[Measured]) -> list[str]:
    """Types with the same reason on one line."""
    found: dict[str, list[str]] = {}
    for row in rows:
        found.setdefault(row.reason.replace(row.model_class or "\0", "…"), []).append(row.model_type)
    return [f"- {', '.join(names)}: {why or 'no reason given'}" for why, names in found.items()] or ["- none"]


def _kind_of_reason(reason: str) -> str:
    return reason.split(":")[0] or "no reason given"


def write_coverage(rows: Sequence[Measured], folder: Path) -> None:
    """Write COVERAGE.md beside the table; what people argued is kept in covering/ARGUED.md."""
    argued = (folder / "covering" / "ARGUED.md").read_text(encoding="utf-8")
    (folder / "COVERAGE.md").write_text(coverage_text(rows, argued), encoding="utf-8")
