"""What a notebook shows of a result at the end of a cell: tokens in their colours, a claim with its table."""

import math
from collections.abc import Sequence
from html import escape

from attnprobe.appearance import FULL_SHARE, look, number, signed
from attnprobe.attribution import Attribution
from attnprobe.comparison import Comparison
from attnprobe.report.formats.digest import Block, digest
from attnprobe.theme import LIGHT, SHAPE
from attnprobe.viewer.tokens import shown

_CARD = (
    f"background:{LIGHT['card']};color:{LIGHT['ink']};font-family:{SHAPE['sans']};"
    "padding:12px;max-width:60em;line-height:1.7"
).replace('"', "'")
_NOTE = f"color:{LIGHT['mute']};font-size:.9em"


def attribution_html(attribution: Attribution) -> str:
    """The tokens, each on the colour that the page gives it; its score stands in its title."""
    scores = [float(score) for score in attribution.scores]
    whole = sum(abs(score) for score in scores if math.isfinite(score)) or 1.0
    pieces = zip(shown(attribution.example), scores, strict=True)
    tokens = " ".join(_token(text, score, score / whole, attribution.signed) for text, score in pieces)
    of = attribution.target.description if attribution.signed else "how much, without a direction"
    head = f"<b>{escape(look(attribution.method).label)}</b> <span style='{_NOTE}'>{escape(of)}</span>"
    return f'<div style="{_CARD}"><div>{head}</div><div>{tokens}</div></div>'


def _token(text: str, score: float, share: float, has_direction: bool) -> str:
    pole = LIGHT["wt" if not has_direction else "neg" if score < 0 else "pos"]
    size = min(1.0, math.sqrt(abs(share) / FULL_SHARE)) if math.isfinite(share) else 0.0
    colour = f"color-mix(in oklab,{LIGHT['zero']},{pole} {100 * size:.1f}%)"
    said = (signed if has_direction else number)(score, 4)
    return f'<span title="{said}" style="background:{colour};padding:2px 4px"><bdi>{escape(text)}</bdi></span>'


def comparison_html(comparison: Comparison) -> str:
    """The claim, what it is about, and each method beside random orders; all else is in the report."""
    found = digest(comparison)
    block = next((one for one in found.blocks if one.title == "Comprehensiveness"), None)
    note = "comparison.report('page.html') writes all of it"
    return (
        f'<div style="{_CARD}"><div><b>{escape(found.claim)}</b></div>'
        f'<div style="{_NOTE}">{escape(found.scope)}; {escape(note)}</div>'
        f"{'' if block is None else _table(block)}</div>"
    )


def _table(block: Block) -> str:
    filled = [column for column in range(len(block.headers)) if any(row[column] for row in block.rows)]
    sides = ["left" if column in block.left else "right" for column in filled]
    head = _row("th", [block.headers[column] for column in filled], sides)
    rows = "".join(_row("td", [row[column] for column in filled], sides) for row in block.rows)
    caption = f'<caption style="text-align:left;{_NOTE}">{escape(block.note)}</caption>'
    return f"<table>{caption}<thead>{head}</thead><tbody>{rows}</tbody></table>"


def _row(tag: str, cells: Sequence[str], sides: Sequence[str]) -> str:
    found = zip(cells, sides, strict=True)
    inner = "".join(f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>' for cell, side in found)
    return f"<tr>{inner}</tr>"
