"""attnprobe head: one head's card: its map on a text, its scores and effects, its words, and heads like it."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from attnprobe.cli.completion import Effects, HeadScores
from attnprobe.cli.options import HOW, READ, WRITE, Flag, Format, RunOptions, TargetOptions, TextOptions
from attnprobe.cli.output import printable, tell
from attnprobe.cli.places import PICTURES, check_place, written
from attnprobe.cli.printing import emit, show_note, show_table

if TYPE_CHECKING:
    import pandas as pd

    from attnprobe.card import HeadCard

MOST_QUERIES = 24  # rows of the map that are printed
MOST_PARTNERS = 3


@Parameter(name="*", group=HOW)
@dataclass(frozen=True, kw_only=True)
class CardOptions:
    """What is asked of the head."""

    score: HeadScores = None
    """Scores of its map, with commas between, such as entropy,previous_token; units: `attnprobe heads --list`.
    [default: all]"""

    effect: Effects = None
    """Effects on the prediction, with commas between, such as mean_ablation, or none; in the unit of --scale, which is
    logits unless you say otherwise. [default: zero_ablation,gate_gradient,direct_logit]"""

    composition: Flag = False
    """Look for heads that it works with also where the stack has more than 256 heads, which takes long.
    [default: off]"""


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
    format: Format = "table",
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
        Layer and head, counted from 0: 5.1, 5,1, "(5, 1)" or L5H1; with the stack where there are several:
        decoder.cross.5.1.
    text
        The text to read, such as "a dull film".
    truncate
        Cut a text that is longer than the model takes. [default: it is refused]
    out
        Where a picture goes (.png, .svg or .pdf), such as head.png. [default: none is drawn]
    """
    if out is not None:
        check_place(out, PICTURES)
    from attnprobe.cli.surroundings import quiet
    from attnprobe.cli.texts import read_texts

    texts = read_texts(TextOptions(text=[text], truncate=truncate))
    with quiet():
        card = _card(model, address, texts, truncate, target, ask, run)
        emit(format, card.to_dict, lambda: show(card), lambda: card.scores)
        if out is not None:
            tell(_draw(card, out))


def _card(
    model: str, address: str, texts: list[str], truncate: bool, target: TargetOptions, ask: CardOptions, run: RunOptions
) -> "HeadCard":
    """What was typed, checked before any work, and measured."""
    from attnprobe.card import EFFECTS, head_card
    from attnprobe.cli.choices import chosen_target
    from attnprobe.cli.desk import effects_named, read, scores_named
    from attnprobe.cli.surroundings import load
    from attnprobe.heads.addresses import head_of
    from attnprobe.models.evaluator import batch_rows

    scores, effects = scores_named(ask.score), effects_named(ask.effect, EFFECTS, len(texts))
    loaded = load(model, device=run.device, dtype=run.dtype)
    where = head_of(loaded, address)
    (example,) = read(loaded, texts, truncate)
    goal, composed = chosen_target(loaded, target), ask.composition or None
    with batch_rows(run.batch_rows):
        return head_card(loaded, where, example, goal, scores=scores, effects=effects, composition=composed)


def show(card: "HeadCard") -> None:
    """The card as tables with headings."""
    from attnprobe.heads.spoken import said

    show_note(f"head {card.head} of {card.model}")
    rows = card.looks()
    weights = said(rows.weight.tolist())
    lines = [[printable(q), printable(k), w] for q, k, w in zip(rows["query"], rows.key, weights, strict=True)]
    left = [] if len(lines) <= MOST_QUERIES else [[f"… {len(lines) - MOST_QUERIES} more", "", ""]]
    _part("where it looks", ["from", "most to", "weight"], lines[:MOST_QUERIES] + left, words=2)
    differ = card.scores[card.scores.differs]
    scores, effects = (differ[(differ.form == "effect") == is_effect] for is_effect in (False, True))
    _ranked("scores, beside all heads of its stack (chance: what even attention scores here)", scores)
    if len(effects):
        unit = effects.unit.iloc[0]
        _ranked(f"effects on the {card.target}, in {unit} (rank by size, whatever the direction)", effects)
    _show_words(card.words)
    _show_alike(card)
    _show_partners(card.partners)
    if card.notes:
        print("\nnot here")
        for note in card.notes:
            show_note(f"- {note}")


def _part(title: str, headers: list[str], rows: list[list[str]], *, words: int) -> None:
    """A table with a line of its own above it; nothing where it has no rows. words: so many columns of words."""
    if rows:
        print()
        show_table(headers, rows, left=range(words), title=title)


def _ranked(title: str, scores: "pd.DataFrame") -> None:
    from attnprobe.heads.spoken import said

    rows, chances = [], bool(scores.chance.notna().any())
    for row in scores.to_dict(orient="records"):
        value, mean, chance = said([row["value"], row["mean"], row["chance"]], signs=bool(row["signed"]))
        label = f"{row['label']} ({row['sign']})" if row["sign"] else str(row["label"])
        rows.append([label, value, f"{row['rank']} of {row['n_heads']}", mean, *[chance] * chances])
    _part(title, ["", "value", "rank", "mean head", *["chance"] * chances], rows, words=1)


def _show_words(words: "pd.DataFrame") -> None:
    from attnprobe.heads.spoken import said

    rows = []
    for token, part in words.groupby("token", sort=False) if len(words) else ():
        pairs = zip(part.word, said(part.logit.tolist(), signs=True), strict=True)
        rows.append([printable(str(token)), ", ".join(f"{printable(str(word))} {logit}" for word, logit in pairs)])
    headers = ["token", "words, with what it adds to their logits"]
    _part("words that it raises where it looks at", headers, rows, words=2)


def _show_alike(card: "HeadCard") -> None:
    def named(frame: "pd.DataFrame") -> str:
        if frame.empty:
            return "–"
        pairs = zip(frame["head"], frame.distance, strict=True)
        return ", ".join(f"{_short(head)} ({d:.2f})" for head, d in pairs) or "–"

    rows = [["by scores, standard deviations apart", named(card.like_scores)],
            ["by its map here, Jensen-Shannon distance", named(card.like_maps)]]  # fmt: skip
    _part("heads most like it", ["", "heads (distance)"], rows, words=2)


def _show_partners(partners: "pd.DataFrame") -> None:
    from attnprobe.heads.spoken import said

    rows = []
    for (score, direction), part in partners.groupby(["score", "direction"], sort=False) if len(partners) else ():
        above = part[part.value > 0].head(MOST_PARTNERS)
        numbers = said(above.value.tolist(), signs=True)
        named = (f"{_short(head)} ({value})" for head, value in zip(above["head"], numbers, strict=True))
        rows.append([str(score), str(direction), ", ".join(named) or "none above chance"])
    _part("heads it works with", ["", "", "heads (how much, less chance)"], rows, words=3)


def _short(head: str) -> str:
    """Layer and head: all that are named are of one stack."""
    return ".".join(head.split(".")[-2:])


def _draw(card: "HeadCard", out: Path) -> str:
    from attnprobe.figure_files import save
    from attnprobe.head_card_figure import card_figure

    figure = card_figure(card)
    return written(out, lambda: save(figure, out))
