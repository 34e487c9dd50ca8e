"""The viewer's script, and pages that hold a viewer and nothing else."""

import json
import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from attnprobe.theme import css
from attnprobe.viewer.still import ALIVE, HIDDEN, still

_ASSETS = Path(__file__).parent / "assets"
SCRIPTS = (
    "core.js",
    "data.js",
    "colours.js",
    "overview.js",
    "map.js",
    "arcs.js",
    "picture.js",
    "cell.js",
    "card.js",
    "address.js",
    "mount.js",
)
STYLES = ("viewer.css",)
# Control characters are not allowed in HTML; their pictures stand for them.
CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r\f"}


@cache
def script() -> str:
    """The viewer as one script: it sets `attnprobe_viewer.mount(element, data, options)` and touches nothing else.

    Its styles are inside, for the shadow root of each viewer.
    """
    styles = json.dumps("\n".join(_asset(name) for name in STYLES)).replace("<", "\\u003c")
    parts = "\n".join(_asset(name) for name in SCRIPTS)
    return f'(function () {{\n"use strict";\nvar STYLES = {styles};\n{parts}\n}})();'


def _asset(name: str) -> str:
    lines = (_ASSETS / name).read_text("utf-8").splitlines()
    return "\n".join(line.strip() for line in lines if line.strip() and not re.fullmatch(r"/\*.*\*/", line.strip()))


def embedded(value: Any) -> str:
    r"""A value as JSON that is safe between script tags: nothing in it can end the tag or start another.

    >>> embedded("</script>&")
    '"\\u003c/script\\u003e\\u0026"'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def page(facts: dict[str, Any], title: str, text: str = "") -> str:
    """A whole page with one viewer; it asks for nothing from outside. text: a line below the title."""
    whole = f"""<!doctype html>
<html lang="en" data-theme="auto">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)} | attnprobe</title>
{ALIVE}
<style>
{css()}
{HIDDEN}
body{{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 var(--sans)}}
main{{max-width:1160px;margin:0 auto;padding:16px 20px 24px}}
@page{{size:A4;margin:14mm}}
@media print{{body{{background:#fff}}main{{zoom:.62;padding:0;max-width:none}}}}
h1{{font:600 19px/1.3 var(--serif);margin:0;overflow-wrap:anywhere}}
.still p{{max-width:44em}}.still table{{border-collapse:collapse;font-size:14px}}
.still :is(th,td){{text-align:left;padding:4px 20px 4px 0;border-bottom:1px solid var(--hair)}}
h1+p{{margin:0;color:var(--mute);font-size:14.5px;overflow-wrap:anywhere}}
</style>
</head>
<body>
<main>
<h1>{escape(title)}</h1>
{f"<p><bdi>{escape(text)}</bdi></p>" if text else ""}
<div id="viewer">{still(facts)}</div>
</main>
<script type="application/json" id="data">{embedded(facts)}</script>
<script>
{script()}
var data = JSON.parse(document.getElementById("data").textContent);
attnprobe_viewer.mount(document.getElementById("viewer"), data, {{page: true}});
attnprobe_viewer.fit();
</script>
</body>
</html>
"""
    return whole.translate(CONTROLS)


def frame(whole: str, title: str, height: int) -> str:
    """A page in an isolated frame, for a notebook: no script of it reaches the notebook, several do not mix."""
    return (
        f'<iframe title="{escape(title)}" srcdoc="{escape(whole)}" '
        f'style="width:100%;height:{height}px;border:0;display:block" loading="lazy"></iframe>'
    )
