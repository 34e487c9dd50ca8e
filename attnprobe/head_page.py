"""A profile of heads as one self-contained page, with its tables and pictures in the folder beside it.

>>> from attnprobe import profile
>>> from attnprobe.head_page import write_desk
>>> write_desk(profile(model, texts), "desk")     # doctest: +SKIP
"""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from attnprobe.appearance import number
from attnprobe.capture import Capture
from attnprobe.errors import InputError
from attnprobe.head_cluster_figure import cluster_map
from attnprobe.head_clusters import clusters
from attnprobe.head_figures import head_maps, top_heads
from attnprobe.head_profile import HeadProfile
from attnprobe.report.making import lines, without_paths

_REPORT = Path(__file__).parent / "report"
DPI = 130
MOST_TOP = 6  # scores whose best heads are drawn


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure with the name of its file, and what is to be seen on it."""

    name: str
    caption: str
    figure: Figure


def write_desk(
    profile: HeadProfile, folder: str | Path, *, captures: Sequence[Capture] = (), k: int = 5, command: str = ""
) -> list[Path]:
    """Write a profile into a folder: heads.csv, scores.csv, profile.json, values.csv, pictures, and heads.html.

    heads.csv: a row a head; scores.csv: a row a head and score, with intervals. captures: of examples, whose maps under
    the top heads are drawn. Gives the paths, the page last. Errors: `InputError` where nothing can be written.
    """
    folder = profile.save(folder)
    drawn = pictures(profile, captures, k=k)
    paths = [folder / "heads.csv", folder / "scores.csv", folder / "profile.json", folder / "values.csv"]
    try:
        profile.to_frame().to_csv(paths[0], index=False)
        profile.long().to_csv(paths[1], index=False)
        images = []
        for picture in drawn:
            data = _png(picture.figure)
            paths.append(folder / f"{picture.name}.png")
            paths[-1].write_bytes(data)
            images.append((picture, base64.b64encode(data).decode()))
        page = folder / "heads.html"
        page.write_text(_page(profile, images, k, command), encoding="utf-8", errors="replace", newline="\n")
    except OSError as error:
        raise InputError(f"{folder} cannot be written to ({error.strerror}); choose another place") from error
    return [*paths, page]


def pictures(profile: HeadProfile, captures: Sequence[Capture] = (), *, k: int = 5) -> list[Picture]:
    """For each stack a map of every score and the heads that score alike; then the top heads of some scores."""
    frame, found = profile.to_frame(), []
    for stack, kind in frame[["stack", "kind"]].drop_duplicates().itertuples(index=False):
        mine = frame[(frame["stack"] == stack) & (frame["kind"] == kind)]
        where = f"{stack} {kind}-attention"
        names = [name for name in profile.scores if mine[name].nunique() > 1]
        if names:
            figure = head_maps(profile, names, stack=stack, kind=kind)
            found.append(Picture(f"maps-{stack}-{kind}", f"Every score of {where}, layer by head", figure))
        try:
            groups = clusters(profile, stack=stack, kind=kind)
        except InputError:  # too few heads, or no score that differs
            continue
        found.append(Picture(f"kinds-{stack}-{kind}", f"Heads of {where} that score alike", cluster_map(groups)))
    for name in standing_out(profile, MOST_TOP) if captures else ():
        label = profile.facts[name].label
        found.append(Picture(f"top-{name}", f"Highest in: {label}", top_heads(profile, name, captures, k=min(k, 5))))
    return found


def standing_out(profile: HeadProfile, n: int) -> list[str]:
    """The scores of maps in whose best head stands furthest above the mean head, in standard deviations."""
    frame = profile.to_frame()
    names = [name for name in profile.scores if profile.facts[name].form == "score" and frame[name].nunique() > 1]
    above = {name: (frame[name].max() - frame[name].mean()) / frame[name].std() for name in names}
    return sorted(names, key=lambda name: -above[name])[:n]


def top_table(profile: HeadProfile, k: int) -> list[dict[str, Any]]:
    """A row a score: its label, what it is, and its k highest heads with their intervals, in words."""
    several = profile.heads[["stack", "kind"]].drop_duplicates().shape[0] > 1
    rows = []
    for name in profile.scores:
        told, best = profile.facts[name], profile.top(name, k)
        if best.empty:
            continue
        heads = [_in_words(dict(zip(best.columns, row, strict=True)), several) for row in best.to_numpy(dtype=object)]
        rows.append({"score": name, "label": told.label, "form": told.form, "description": told.description,
                     "source": told.source, "heads": heads})  # fmt: skip
    return rows


def _in_words(row: dict[str, Any], several: bool) -> dict[str, str]:
    where = f"{row['stack']}.{row['kind']}." if several else ""
    known = row["low"] == row["low"]
    return {
        "head": f"{where}{row['layer']}.{row['head']}",
        "mean": number(row["mean"], 2),
        "interval": f"[{number(row['low'], 2)}, {number(row['high'], 2)}]" if known else "",
    }


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def _page(profile: HeadProfile, images: Sequence[tuple[Picture, str]], k: int, command: str) -> str:
    environment = Environment(
        loader=FileSystemLoader(_REPORT / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    targets = pd.Series([target for target in profile.targets if target]).value_counts()
    return environment.get_template("desk.html.j2").render(
        css=Markup((_REPORT / "assets" / "theme.css").read_text("utf-8")),
        model=without_paths(profile.model).removeprefix("…/"),
        n_examples=profile.n_examples,
        n_heads=len(profile.heads),
        rows=top_table(profile, k),
        k=k,
        images=[(picture.caption, picture.name, data) for picture, data in images],
        targets=[(str(target), int(n)) for target, n in targets.items()],
        warnings=[without_paths(warning) for warning in profile.warnings],
        command=lines(without_paths(command)),
    )
