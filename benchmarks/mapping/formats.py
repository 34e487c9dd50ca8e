"""How numbers, tables and paragraphs of the page are written."""

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from attnprobe.appearance import number, percent

WIDTH = 120


def wrapped(text: str) -> str:
    """A page with its paragraphs and lists broken at `WIDTH`; tables, headings and pictures stay as they are."""
    return "\n\n".join(_block(block) for block in text.strip().split("\n\n")) + "\n"


def _block(block: str) -> str:
    if block[0] in "|#!":
        return block
    items = re.split(r"\n(?=- |\d+\. )", block)
    return "\n".join(_item(" ".join(item.split("\n"))) for item in items)


def _item(text: str) -> str:
    start = re.match(r"- |\d+\. ", text)
    indent = " " * len(start.group()) if start else ""
    one = re.sub(" +", " ", text)
    return textwrap.fill(one, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table."""
    head = "| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0])
    return "\n".join([head, *("| " + " | ".join(map(str, row.values())) + " |" for row in rows)])


def share(row: Any) -> str:
    """A share with its interval: 95 % [93, 96]."""
    return f"{percent(row.share, 0)} [{100 * row.low:.0f}, {100 * row.high:.0f}]"


def mean(row: Any, value: str = "mean", digits: int = 2, start: str = "") -> str:
    """A mean with its interval."""
    low, high = row[f"{start}low"], row[f"{start}high"]
    return f"{number(row[value], digits)} [{number(low, digits)}, {number(high, digits)}]"


def pick(table: pd.DataFrame, **wanted: Any) -> Any:
    """The only row with these values."""
    for column, value in wanted.items():
        table = table[table[column] == value]
    if len(table) != 1:
        raise LookupError(f"{wanted}: one row is expected, {len(table)} are there")
    return table.iloc[0]


def p_value(p: float) -> str:
    """A p-value: "p = 0.03", "p < 0.001"."""
    return "p not defined" if math.isnan(p) else "p < 0.001" if p < 0.001 else f"p = {number(p, 3)}"
