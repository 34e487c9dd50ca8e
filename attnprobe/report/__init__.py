"""A comparison as one self-contained page, and its tables as CSV in the folder of the same name beside it.

>>> from attnprobe import compare
>>> page = compare(model, texts).report("page.html")     # doctest: +SKIP
"""

import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from attnprobe.appearance import NARROW_SPACE, number, percent, signed
from attnprobe.comparison import Comparison
from attnprobe.errors import InputError, nearest
from attnprobe.placing import check_takes_files
from attnprobe.report.best_orders import best_orders
from attnprobe.report.data import EXTRA, TABLE_NAMES, build
from attnprobe.report.heads import BUDGET, scored
from attnprobe.report.texts import listed
from attnprobe.theme import by_theme, css
from attnprobe.viewer.markup import script
from attnprobe.viewer.still import ALIVE, HIDDEN

_HERE = Path(__file__).parent
STYLES = (
    "page.css",
    "rows.css",
    "parts.css",
    "counterfactual.css",
    "alignment.css",
    "pictures.css",
    "screens.css",
    "print.css",
)
SCRIPTS = (
    *("core.js", "state.js", "strip.js", "texts.js", "spread.js", "curves.js", "agreement.js", "heads.js"),
    *("pictures.js", "counterfactual.js", "alignment.js", "lists.js", "start.js"),
)

# Files of these names are carried only where the part is on the page.
OF_PARTS = ("alignment", "counterfactual", "pictures")


def write(
    comparison: Comparison,
    path: str | Path,
    *,
    command: str = "",
    summary: Sequence[str] = (),
    without: Sequence[str] = (),
    map_bytes: int = BUDGET,
) -> Path:
    """Write the page to `path` and the tables as CSV into the folder beside it (`page.html`: `page/`).

    command: what made the comparison; shown with a button that copies it. summary: sentences of your own for the top of
    the page. without: tables that are not written; the page says so. map_bytes: of attention weights at most, texts in
    their order. The page is complete before anything is written, and takes its place in one step. Errors: `InputError`
    where the path cannot be written, or a table to leave out does not exist.
    """
    path = Path(path)
    check_writable(path)
    check_tables(without)
    whole = page(comparison, command=command, stem=path.stem, summary=summary, without=without, map_bytes=map_bytes)
    folder = path.with_suffix("")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.stem}.") as stage:
            new = Path(stage) / path.name
            new.write_text(whole, encoding="utf-8", errors="replace", newline="\n")
            for table in _save_tables(comparison, Path(stage) / "tables"):
                if table.stem not in without:
                    table.replace(folder / table.name)
            new.replace(path)
    except OSError as error:
        raise InputError(
            f"the page cannot be written to {path}: {error.strerror or error}; choose another place"
        ) from error
    return path


def _save_tables(comparison: Comparison, folder: Path) -> list[Path]:
    """The comparison's tables, and two that only the page makes: head scores, and the list of texts."""
    paths = comparison.save_tables(folder)
    made = {
        "heads": scored([s.capture for s in comparison.studies]),
        "texts": listed(comparison),
        "best_orders": best_orders(comparison),
    }
    for name in EXTRA:
        paths.append(folder / f"{name}.csv")
        made[name].to_csv(paths[-1], index=False)
    return paths


def check_tables(without: Sequence[str], said: str = "") -> None:
    """`InputError` for a table to leave out that does not exist. said: what the list is called where it was given."""
    known = [*TABLE_NAMES, *EXTRA]
    for name in without:
        if name not in known:
            raise InputError(
                f"{said or f'without={list(without)}'}: no table is named '{name}'; {nearest(str(name), known)}"
            )


def check_writable(path: str | Path) -> None:
    """`InputError` where a page and its tables cannot be written to `path`; nothing is left behind.

    Folders that are missing are made when the page is written, not here.
    """
    path = Path(path)
    folder = path.with_suffix("")
    if not path.suffix:
        raise InputError(
            f"a page needs a name that ends in .html, got '{path}'; its tables go into the folder without that ending"
        )
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a page, for example {path / 'page.html'}")
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"the tables go into the folder {folder}, but that is a file; choose another name for the page"
        )
    for place in (path.parent, folder):
        check_takes_files(place, path)
    if path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"{path} may not be overwritten; choose another name")


# Control characters are not allowed in HTML; their pictures stand for them.
CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n\r\f"}


def page(
    comparison: Comparison,
    *,
    command: str = "",
    stem: str = "page",
    summary: Sequence[str] = (),
    without: Sequence[str] = (),
    map_bytes: int = BUDGET,
) -> str:
    """The whole page as text. stem: the folder beside it that holds the tables."""
    facts = build(comparison, command, stem, summary, without, map_bytes)
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    formats: dict[str, Any] = {
        "pc": lambda v, digits=1: "–" if v is None else percent(v, digits),
        "sg": lambda v, digits: "–" if v is None else signed(v, digits),
        "nu": number,
        "nn": NARROW_SPACE,
        "formula": formula,
        "embedded": embedded,
    }
    environment.globals.update(formats)
    template = environment.get_template("page.html.j2")
    whole = template.render(
        **facts,
        css=Markup(
            "\n".join([css(), HIDDEN, _colours(facts["viewer"]), *map(_asset, _needed(STYLES, facts["parts"]))])
        ),
        js=Markup("\n".join([script(), *map(_asset, _needed(SCRIPTS, facts["parts"]))])),
        alive=Markup(ALIVE),
        json=embedded(facts["viewer"]),
    )
    return whole.translate(CONTROLS)


def _needed(names: Sequence[str], parts: Sequence[Mapping[str, Any]]) -> list[str]:
    """The files that a page with these parts uses; pictures may stand in place of words in other parts."""
    there = {part["name"] for part in parts}
    if any(isinstance(part["facts"], Mapping) and part["facts"].get("pictures") for part in parts):
        there.add("pictures")
    if "counterfactual" in there:
        there.add("pictures")  # whose strips ask whether a text is one
    return [name for name in names if (stem := name.partition(".")[0]) not in OF_PARTS or stem in there]


def _colours(viewer: Mapping[str, Any]) -> str:
    """The colour of each method as --m0, --m1, ..., for both themes."""
    looks = [viewer["methods"][name] for name in viewer["order"]]
    light, dark = ({f"m{i}": look[kind] for i, look in enumerate(looks)} for kind in ("light", "dark"))
    return by_theme(light, dark)


def _asset(name: str) -> str:
    lines = (_HERE / "assets" / name).read_text("utf-8").splitlines()
    return "\n".join(line.strip() for line in lines if line.strip() and not re.fullmatch(r"/\*.*\*/", line.strip()))


def formula(text: str) -> Markup:
    """A formula in one line of text, with its subscripts and superscripts raised and lowered; all else escaped.

    >>> str(formula("A^{l,h}_{ij} < x_i"))
    'A<sup>l,h</sup><sub>ij</sub> &lt; x<sub>i</sub>'
    """
    parts = re.split(r"([_^])(\{[^{}]*\}|[^\s_^{}])", text)
    found = escape(parts[0])
    for sign, inner, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        tag = "sub" if sign == "_" else "sup"
        found += Markup("<{0}>{1}</{0}>").format(Markup(tag), inner.strip("{}")) + escape(rest)
    return found


def embedded(value: Any) -> Markup:
    r"""A value as JSON that is safe between script tags: nothing in it can end the tag or start another.

    >>> str(embedded("</script>&"))
    '"\\u003c/script\\u003e\\u0026"'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
