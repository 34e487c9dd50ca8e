"""A comparison as one JSON document: claims, texts, every table, and what they were made with.

`schema` names the layout: its number goes up when a key is renamed, taken away, or means something else.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from attnprobe.comparison import Comparison
from attnprobe.report.claims import top
from attnprobe.report.formats.tabular import every_table, records
from attnprobe.report.making import model_name, without_paths
from attnprobe.report.nouns import told

SCHEMA = "attnprobe.comparison/1"


def document(
    comparison: Comparison, *, command: str = "", summary: Sequence[str] = (), without: Sequence[str] = ()
) -> dict[str, Any]:
    """Everything as plain values. tables: a list of records a table; columns: their names, in order.

    Tables hold full precision, and None where a number is not defined.
    """
    tables = every_table(comparison, without)
    first = top(comparison)
    return {
        "schema": SCHEMA,
        "claim": " ".join(part for part in (first["headline"].rstrip(".") + ".", first["lede"]) if part),
        "scope": first["scope"],
        "summary": list(summary),
        "findings": [_finding(found) for found in told(comparison)],
        "model": _plain({**comparison.model, "name": model_name(comparison)}),
        "settings": _plain(asdict(comparison.settings)),
        "provenance": {
            "command": without_paths(command),
            "versions": dict(comparison.provenance),
            "seconds": comparison.seconds,
            "methods": list(comparison.methods),
        },
        "columns": {name: [str(column) for column in table.columns] for name, table in tables.items()},
        "tables": {name: records(table) for name, table in tables.items()},
        "left_out": list(without),
    }


def document_text(comparison: Comparison, **told: Any) -> str:
    """The document as text, a record a line so that two of them can be compared."""
    whole = document(comparison, **told)
    tables = whole.pop("tables")
    head = json.dumps(whole, ensure_ascii=False, indent=1, allow_nan=False)
    body = ",\n".join(f'  "{name}": {_rows(rows)}' for name, rows in tables.items())
    return f'{head[:-2]},\n "tables": {{\n{body}\n }}\n}}\n'


def _rows(rows: list[dict[str, Any]]) -> str:
    lines = ",\n".join("   " + json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    return f"[\n{lines}\n  ]" if rows else "[]"


def _finding(found: Any) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "verdict": found.verdict,
        "claim": found.claim,
        "against": list(found.against),
        "causes": list(found.causes),
        "evidence": records(found.evidence),
    }


def _plain(value: Any) -> Any:
    """Only what JSON knows; anything else as its text."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and value != value:
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
