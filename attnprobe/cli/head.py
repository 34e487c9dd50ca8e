"""attnprobe head: one head's card: its map on a text, its scores and effects, its words, and heads like it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from attnprobe.cli.options import HOW, READ, WRITE, Flag, RunOptions, TargetOptions, TextOptions
from attnprobe.cli.output import printable, table, tell
from attnprobe.cli.places import PICTURES, check_place, written

if TYPE_CHECKING:
    import pandas as pd

    from attnprobe.card import HeadCard

MOST_QUERIES = 24  # rows of the map that are printed
MOST_PARTNERS = 3


@Parameter(name="*", group=HOW)
@dataclass(frozen=True, kw_only=True)
class CardOptions:
    """What is asked of the head."""

    score: list[str] | None = None
    """Head scores, with commas between. [default: all]"""

    effect: list[str] | None = None
    """Head effects, with commas between, or none. [default: zero_ablation,gate_gradient,direct_logit]"""

    composition: Flag = False
    """Look for heads that it works with also where the stack has more than 256 heads, which takes long."""


def head(
    model: str,
    address: str,
    /,
    ask: CardOptions = CardOptions(),
    target: TargetOptions = TargetOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    *,
    text: Annotated[str, Parameter(group=READ)],
    truncate: Annotated[Flag, Parameter(group=READ)] = False,
    out: Annotated[Path | None, Parameter(group=WRITE)] = None,
    format: Annotated[Literal["table", "json"], Parameter(group=WRITE)] = "table",
) -> None:
    """Print what one head does on a text: where it looks, how it scores and what it does beside all heads of its stack.

    Then the words that it raises where it looks (of a model that answers with words), the
    heads that are most like it, and those of other layers that it works with.

    Example:
      attnprobe head attnprobe/sentiment 2.1 --text "a dull film" --out head.png

    Parameters
    ----------
    model
        A Hugging Face Hub id, a folder with a saved model, or attnprobe/sentiment, which comes with attnprobe.
    address
        Layer and head, counted from 0: 5.1 or L5H1; with the stack where there are several: decoder.cross.5.1.
    text
        The text to read.
    truncate
        Cut a text that is longer than the model takes, instead of refusing it.
    out
        Where a picture goes (.png, .svg or .pdf). [default: none is drawn]
    format
        A table to read, or json for programs.
    """
    if out is not None:
        check_place(out, PICTURES)
    from attnprobe.cli.surroundings import quiet
    from attnprobe.cli.texts import read_texts

    texts = read_texts(TextOptions(text=[text], truncate=truncate))
    with quiet():
        card = _card(model, address, texts, truncate, target, ask, run)
        print(json.dumps(card.to_dict(), indent=2, ensure_ascii=False) if format == "json" else in_words(card))
        if out is not None:
            tell(_draw(card, out))


def _card(
    model: str, address: str, texts: list[str], truncate: bool, target: TargetOptions, ask: CardOptions, run: RunOptions
) -> "HeadCard":
    """What was typed, checked before any work, and measured."""
    from attnprobe.card import EFFECTS, head_card
    from attnprobe.cli.choices import chosen_target
    from attnprobe.cli.desk import effects_named, scores_named
    from attnprobe.cli.making import read_examples
    from attnprobe.cli.surroundings import load
    from attnprobe.heads.addresses import head_of
    from attnprobe.models.evaluator import batch_rows

    scores, effects = scores_named(ask.score), effects_named(ask.effect, EFFECTS)
    loaded = load(model, device=run.device, dtype=run.dtype)
    where = head_of(loaded, address)
    (example,) = read_examples(loaded, texts, truncate)
    goal, composed = chosen_target(loaded, target), ask.composition or None
    with batch_rows(run.batch_rows):
        return head_card(loaded, where, example, goal, scores=scores, effects=effects, composition=composed)


def in_words(card: "HeadCard") -> str:
    """The card as tables with headings."""
    parts = [f"head {card.head} of {card.model}", "", "where it looks", _looks(card)]
    differ = card.scores[card.scores.differs]
    scores, effects = (differ[(differ.form == "effect") == is_effect] for is_effect in (False, True))
    parts += ["", "scores, beside all heads of its stack", _ranked(scores)]
    if len(effects):
        parts += ["", f"effects on the {card.target}", _ranked(effects)]
    if len(card.words):
        parts += ["", "words that it raises where it looks at", _words(card.words)]
    parts += ["", "heads most like it", _alike(card)]
    if len(card.partners):
        parts += ["", "heads it works with", _partners(card.partners)]
    if card.notes:
        parts += ["", "not here", *(f"- {note}" for note in card.notes)]
    return "\n".join(parts)


def _looks(card: "HeadCard") -> str:
    rows = card.looks()
    lines = [
        [printable(q), printable(k), f"{w:.2f}"] for q, k, w in zip(rows["query"], rows.key, rows.weight, strict=True)
    ]
    left = [] if len(lines) <= MOST_QUERIES else [[f"… {len(lines) - MOST_QUERIES} more", "", ""]]
    return table(["from", "most to", "weight"], lines[:MOST_QUERIES] + left)


def _ranked(scores: "pd.DataFrame") -> str:
    rows = [
        [str(row["label"]), f"{row['value']:.3g}", f"{row['rank']} of {row['n_heads']}", f"{row['mean']:.3g}"]
        for row in scores.to_dict(orient="records")
    ]
    return table(["", "value", "rank", "mean head"], rows)


def _words(words: "pd.DataFrame") -> str:
    rows = [
        [
            printable(str(token)),
            ", ".join(f"{printable(str(w))} {x:+.2f}" for w, x in zip(part.word, part.logit, strict=True)),
        ]
        for token, part in words.groupby("token", sort=False)
    ]
    return table(["token", "words, with what it adds to their logits"], rows)


def _alike(card: "HeadCard") -> str:
    def named(frame: "pd.DataFrame") -> str:
        pairs = zip(frame["head"], frame.distance, strict=True)
        return ", ".join(f"{_short(head)} ({d:.2f})" for head, d in pairs) or "–"

    rows = [["by scores, standard deviations apart", named(card.like_scores)],
            ["by its map here, Jensen-Shannon distance", named(card.like_maps)]]  # fmt: skip
    return table(["", "heads (distance)"], rows)


def _partners(partners: "pd.DataFrame") -> str:
    rows = []
    for (score, direction), part in partners.groupby(["score", "direction"], sort=False):
        above = part[part.value > 0].head(MOST_PARTNERS)
        named = (f"{_short(head)} ({value:+.2f})" for head, value in zip(above["head"], above.value, strict=True))
        rows.append([str(score), str(direction), ", ".join(named) or "none above chance"])
    return table(["", "", "heads (how much, less chance)"], rows)


def _short(head: str) -> str:
    """Layer and head: all that are named are of one stack."""
    return ".".join(head.split(".")[-2:])


def _draw(card: "HeadCard", out: Path) -> str:
    from attnprobe.head_card_figure import card_figure

    figure = card_figure(card)
    return written(out, lambda: figure.savefig(out, dpi=160))
