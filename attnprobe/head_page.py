"""A profile of heads as one self-contained page, with its tables and pictures in the folder beside it.

>>> from attnprobe import profile
>>> from attnprobe.head_page import write_desk
>>> write_desk(profile(model, texts), "desk")     # doctest: +SKIP
"""

import base64
import io
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from attnprobe.capture import Capture
from attnprobe.errors import InputError
from attnprobe.head_cluster_figure import cluster_map
from attnprobe.head_clusters import clusters
from attnprobe.head_figures import head_maps, top_heads
from attnprobe.head_profile import HeadProfile, titled
from attnprobe.heads.spoken import NO_NUMBER, need, said
from attnprobe.placing import placed, placed_text
from attnprobe.report.making import lines, without_paths
from attnprobe.theme import css

_REPORT = Path(__file__).parent / "report"
DPI = 130
SILENT = "no head has a number; "  # what a warning begins with that is said in other words here
MOST_TOP = 6  # scores of maps whose best heads are drawn, beside those of all effects


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
    need(profile, HeadProfile, "attnprobe.profile(…)")
    folder = profile.save(folder)
    drawn = pictures(profile, captures, k=k)
    paths = [folder / "heads.csv", folder / "scores.csv", folder / "profile.json", folder / "values.csv"]
    try:
        placed(paths[0], lambda new: profile.to_frame().to_csv(new, index=False))
        placed(paths[1], lambda new: profile.long().to_csv(new, index=False))
        images = []
        for picture in drawn:
            data = _png(picture.figure)
            paths.append(folder / f"{picture.name}.png")
            placed(paths[-1], partial(_written, data))
            images.append((picture, base64.b64encode(data).decode()))
        page = folder / "heads.html"
        placed_text(page, _page(profile, images, k, command))
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
    for name in (*drawn_effects(profile), *standing_out(profile, MOST_TOP)) if captures else ():
        which = "Largest" if profile.facts[name].form == "effect" else "Highest"
        caption = f"{which} in: {titled(profile, name)}{_drawn(profile, captures)}"
        found.append(Picture(f"top-{name}", caption, top_heads(profile, name, captures, k=min(k, 5))))
    return found


def _drawn(profile: HeadProfile, captures: Sequence[Capture]) -> str:
    """Which of the texts the maps are of, where they are not all."""
    if len(captures) == profile.n_examples:
        return ""
    named = ", ".join(f"'{textwrap.shorten(one.example.text, 40, placeholder='…')}'" for one in captures)
    return f". Maps of {len(captures)} of {profile.n_examples} texts ({named}); mean and interval over all"


def drawn_effects(profile: HeadProfile) -> list[str]:
    """The effects in which heads differ."""
    frame = profile.to_frame()
    return [name for name in profile.scores if profile.facts[name].form == "effect" and frame[name].nunique() > 1]


def standing_out(profile: HeadProfile, n: int) -> list[str]:
    """The scores of maps in whose best head stands furthest above the mean head, in standard deviations."""
    frame = profile.to_frame()
    names = [name for name in profile.scores if profile.facts[name].form == "score" and frame[name].nunique() > 1]
    above = {name: (frame[name].max() - frame[name].mean()) / frame[name].std() for name in names}
    return sorted(names, key=lambda name: -above[name])[:n]


def top_table(profile: HeadProfile, k: int) -> list[dict[str, Any]]:
    """A row a score: label with unit, what it is, chance, and its k highest heads with their intervals, in words.

    One without a number has the reason instead of heads; warned: whether that is a warning of the profile, as it is of
    all that was asked for by name. n: of the heads' texts, where a score has no number on some.
    """
    several = profile.heads[["stack", "kind"]].drop_duplicates().shape[0] > 1
    rows = []
    for name in profile.scores:
        told, best, reason = profile.facts[name], profile.top(name, k), profile.reason(name).removeprefix(SILENT)
        facts = {"form": told.form, "source": told.source, "description": told.description, "reason": reason}
        warned = any(reason in warning for warning in profile.warnings) if reason else False
        rows.append({"score": name, "label": titled(profile, name), **facts, "warned": warned, "needs": told.needs})
        n = 0 if told.form == "probe" else profile.n_examples
        rows[-1].update(_in_words(best, told.low != 0, several, n))
    return sorted(rows, key=lambda row: bool(row["reason"]))


def _in_words(best: pd.DataFrame, signs: bool, several: bool, n_examples: int) -> dict[str, Any]:
    """The heads of a score and its chance level, their numbers with as many decimals; n where it is not that of all."""
    if best.empty:
        return {"heads": [], "chance": NO_NUMBER}
    table = best[["mean", "low", "high"]].to_numpy(dtype=float)
    *numbers, chance = said([*table.ravel().tolist(), _one_chance(best)], signs=signs)
    heads = []
    for at, (stack, kind, layer, head) in enumerate(best[["stack", "kind", "layer", "head"]].itertuples(index=False)):
        mean, low, high = numbers[3 * at : 3 * at + 3]
        ends = "" if low == NO_NUMBER else f"[{low}, {high}]"
        n = int(best["n"].iloc[at])
        heads.append({"head": f"{stack}.{kind}." * several + f"{layer}.{head}", "mean": mean, "interval": ends,
                      "n": f"n={n}" * (n_examples not in (0, n))})  # fmt: skip
    return {"heads": heads, "chance": chance}


def _one_chance(best: pd.DataFrame) -> float:
    """The chance level of these heads; of several stacks, whose levels differ, there is not one."""
    return float(best.chance.iloc[0]) if best.chance.nunique() == 1 else math.nan


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=DPI)
    return buffer.getvalue()


def _written(data: bytes, path: Path) -> None:
    path.write_bytes(data)


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
        css=Markup(css()),
        model=without_paths(profile.model).removeprefix("…/"),
        n_examples=profile.n_examples,
        n_heads=len(profile.heads),
        unit=profile.target_unit,
        texts=[text for text in profile.texts if text],
        rows=top_table(profile, k),
        k=k,
        images=[(picture.caption, picture.name, data) for picture, data in images],
        targets=[(str(target), int(n)) for target, n in targets.items()],
        warnings=[without_paths(warning) for warning in profile.warnings],
        command=lines(without_paths(command)),
    )
