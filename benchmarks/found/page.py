"""The text of benchmarks/FOUND_BLIND.md; every number comes from the tables."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnprobe.head_profile import HeadProfile
from benchmarks.found import sources
from benchmarks.found.learning import EVERY, N_STEPS, at_the_end, crossing
from benchmarks.found.repeats import FRONT, HALVES, LENGTH, NOTHING, Heads, rises
from benchmarks.mapping.naming import ANY, ELEMENT
from benchmarks.mapping.reading import Tokens

# The bars: how much more the five in front must cost than five others, and when induction counts as learned.
TIMES, LEARNED = 5.0, 0.6
HIGH = 0.3  # of an induction score: draws that hold a head above it are told apart
# A trial before, by other code, on 1,240 atoms of 102 reactions of four templates: %, candidates of the same element.
TRIAL = {(10, 5): 98.1, (9, 5): 97.9, (11, 5): 97.9}
TRIAL_OTHER, TRIAL_CHANCE = 71, 21
# In FOUND_BLIND.md a score is named where head 5 of an upper layer is among so many first.
NEAR = 8


def beginning(versions: str) -> list[str]:
    """Title, and how the page was made."""
    return [
        "# Heads that are known from elsewhere, found blind\n",
        f"Made by `.venv/bin/python benchmarks/found_blind.py`. {versions}.\n",
        "Layers and heads count from 0; 17.3 is head 3 of layer 17. No score was told which head to find.",
    ]


def left_out(why: str) -> list[str]:
    """A part that could not be made."""
    return [f"\n## Left out\n\n{why}"]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _met(met: bool) -> str:
    return "met" if met else "**not met**"


# ---------------------------------------------------------------- SmolLM2


def smollm2(name: str, scores: pd.DataFrame, lost: pd.DataFrame, front: Heads) -> list[str]:
    """Which heads the probe puts in front, and what it costs to silence them."""
    ordered = scores.sort_values("induction", ascending=False, kind="stable")
    rows = [
        (f"{int(r.layer)}.{int(r['head'])}", f"{r.induction:.2f}", f"{r.previous_random:.2f}")
        for _, r in ordered.head(10).iterrows()
    ]
    lowest = min(layer for layer, _ in front)
    before = scores[scores.layer < lowest].sort_values("previous_random", ascending=False, kind="stable").head(3)
    named = ", ".join(f"{int(r.layer)}.{int(r['head'])} ({r.previous_random:.2f})" for _, r in before.iterrows())
    median, high = scores.induction.median(), int((scores.induction > HIGH).sum())
    return [
        f"\n## Induction heads of {name}\n",
        "![scores by layer and head, and what silencing costs](found-smollm2.png)\n",
        "The probe `induction`: 25 random tokens, four times behind a begin token, ten such texts; weight on the "
        "tokens that followed the query's token elsewhere, mean over the queries that were said before. The first ten "
        f"of {len(scores)} heads ({high} are above {HIGH}; the median is {median:.3f}):\n",
        _table(("head", "induction", "previous token"), rows),
        f"\nAn induction head needs a head below it that looks on the token before. Below layer {lowest} those that do "
        f"so most are {named}.",
        *_cost(scores, lost, front),
    ]


def _cost(scores: pd.DataFrame, lost: pd.DataFrame, front: Heads) -> list[str]:
    """The five in front against draws of five others: rise of the loss on each copy."""
    plain = lost[lost.silenced == NOTHING].groupby("half").value.mean()
    rows = []
    for half in HALVES:
        found = rises(lost, half)
        mine, others = found.loc[FRONT], found.drop(index=FRONT).mean(axis=1)
        rows.append(
            (
                half,
                f"{plain[half]:.2f}",
                f"{mine.mean():+.3f} ({mine.min():+.3f} to {mine.max():+.3f})",
                f"{others.mean():+.3f} ± {others.std():.3f} ({others.min():+.3f} to {others.max():+.3f})",
            )
        )
    found = rises(lost, "second")
    others = found.drop(index=FRONT).mean(axis=1)
    mine, ratio = found.loc[FRONT].mean(), found.loc[FRONT].mean() / others.mean()
    low, high = ratio_interval(found)
    first = ", ".join(f"{layer}.{head}" for layer, head in front)
    where = " and ".join(str(layer) for layer in sorted({layer for layer, _ in front}))
    return [
        f"\n### Silencing {first}\n",
        f"{found.shape[1]} other texts: {LENGTH} random tokens, said twice. Beside the five in front stand "
        f"{len(others)} different draws of five other heads of the same layers ({where}), as many in each. Loss in "
        "nats; in brackets the range over texts, or over draws; ±: standard deviation of draws. Of the second copy "
        "its first token is left out, since nothing says that a copy begins.\n",
        _table(("copy", "loss, nothing silenced", "rise, the five in front", "rise, five others"), rows),
        f"\nThe five in front cost **{ratio:.1f} times** what five others do ({low:.1f} to {high:.1f}, 95 % bootstrap "
        f"over texts and draws), and {mine / others.max():.1f} times what the costliest draw does. Bar, {TIMES:g} "
        f"times: {_met(ratio >= TIMES)}.",
        _with_another(scores, lost, others),
    ]


def ratio_interval(found: pd.DataFrame, n_resamples: int = 2000, seed: int = 0) -> tuple[float, float]:
    """95 % bootstrap of the rise of the five in front over the mean rise of the draws: texts and draws resampled."""
    draw = np.random.default_rng(seed)
    mine, others = found.loc[FRONT].to_numpy(), found.drop(index=FRONT).to_numpy()
    ratios = []
    for _ in range(n_resamples):
        texts = draw.integers(len(mine), size=len(mine))
        rows = draw.integers(len(others), size=len(others))
        ratios.append(mine[texts].mean() / others[np.ix_(rows, texts)].mean())
    return float(np.quantile(ratios, 0.025)), float(np.quantile(ratios, 0.975))


def _with_another(scores: pd.DataFrame, lost: pd.DataFrame, others: pd.Series) -> str:
    """Draws that hold another induction head against those that hold none."""
    known = {f"{int(r.layer)}.{int(r['head'])}" for _, r in scores[scores.induction > HIGH].iterrows()}
    heads = lost.drop_duplicates("silenced").set_index("silenced").heads
    holds = pd.Series({name: bool(known & set(str(heads[name]).split())) for name in others.index})
    if not holds.any():
        return f"No draw holds a head with a score above {HIGH}."
    said = [
        f"{int(mask.sum())} draws that hold {word} rise by {others[mask].mean():+.3f}"
        for mask, word in ((holds, f"another head with a score above {HIGH}"), (~holds, "none"))
        if mask.any()
    ]
    return "The " + ", the ".join(said) + "."


# ---------------------------------------------------------------- trained here


def learning(table: pd.DataFrame) -> list[str]:
    """Scores at the end of each training, and when induction was there."""
    last = at_the_end(table)
    rows = [
        (str(int(r.layers)), str(int(r.seed)), str(N_STEPS[int(r.layers)]), f"{r.induction:.2f}",
         f"{r.previous_random:.2f}", f"{r.loss:.2f}")
        for _, r in last.iterrows()
    ]  # fmt: skip
    two, one = last[last.layers == 2], last[last.layers == 1]
    most = table[(table.layers == 1) & (table.measure == "induction")].value.max()
    steps = ", ".join(str(step) for step in crossing(table, 2, "induction", LEARNED))
    before = ", ".join(str(step) for step in crossing(table, 2, "previous_random", 0.5))
    return [
        "\n## Two layers learn it, one does not\n",
        "![scores and loss while two depths learn](found-learning.png)\n",
        "Decoders (width 48, four heads, rotary positions) learn to repeat blocks of 8 to 24 random tokens as in "
        "`attnprobe.models.tasks.induction`; one layer gets twice the steps. Scores by the same probe (12 tokens, four "
        "times), of the head that has most; the loss is that on tokens that an earlier copy tells, ln 32 = 3.47 for "
        "who knows nothing.\n",
        _table(("layers", "seed", "steps", "induction", "previous token", "loss"), rows),
        f"\nTwo layers end at {two.induction.min():.2f} or more; the score is first above {LEARNED} at steps {steps} "
        f"(measured every {EVERY}), and that for the token before is first above 0.5 at steps {before}. "
        f"One layer never has more than "
        f"{most:.2f} at any step and ends with a loss of {one.loss.min():.2f} or more. Bar, two layers above "
        f"{LEARNED} and one layer not: {_met(bool((two.induction > LEARNED).all()) and most <= LEARNED)}.",
    ]


# ---------------------------------------------------------------- rxnmapper


def rxnmapper(found: HeadProfile, read: Sequence[Tokens]) -> list[str]:
    """Which heads name the source of an atom, and which scores that know no truth put them in front."""
    tables = {among: sources.pooled(found, read, among) for among in (ELEMENT, ANY)}
    same = tables[ELEMENT]
    n_atoms, templates = int(same.n.iloc[0]), {tokens.reaction.template for tokens in read}
    fives = same.head(int((same["head"] != sources.MAPPING_HEAD).to_numpy().argmax()))
    layers = ", ".join(str(layer) for layer in sorted(fives.layer))
    return [
        "\n## The head of rxnmapper that maps atoms\n",
        "![every head as a map of atoms, and the weight on the same token](found-sources.png)\n",
        f"{len(read)} reactions made by {len(templates)} templates, {n_atoms} product atoms; the templates say where "
        "each came from (`benchmarks/reactions.py`). `profile` gets a head score that is ten lines: the share of "
        "product atoms whose true source has the head's largest weight, among reactant atoms of the same element, or "
        "among all. Shares of all atoms, with Wilson's 95 % interval, beside a trial before (1,240 atoms of four "
        "templates, other code):\n",
        _table(("head", "same element", "trial", "any atom"), _mapping_rows(tables)),
        f"\nThe first {len(fives)} of 96 heads are head 5 of layers {layers}; the best of them is layer "
        f"{int(same.layer.iloc[0])} with {same.share.iloc[0]:.1%}. The layers of this ALBERT share their parameters: "
        "head 5 is one head that is applied twelve times, and from the middle on its layers differ by less than their "
        f"intervals. Bar, head 5 of layers 9, 10 and 11 in front of every other head: {_met(_in_front(tables))}.",
        f"\nBy template, head (10, 5), same element: {_by_template(found, read)}.",
        "\n### Without the truth\n",
        *_without_truth(found),
    ]


def _in_front(tables: dict[str, pd.DataFrame]) -> bool:
    """Whether the three heads stand before all that are no head 5, whatever the candidates."""
    return all(
        min(table.set_index(["layer", "head"]).share[at] for at in TRIAL)
        > table.share[table["head"] != sources.MAPPING_HEAD].max()
        for table in tables.values()
    )


def _by_template(found: HeadProfile, read: Sequence[Tokens]) -> str:
    shares = sources.by_template(found, read, (10, 5)).sort_values(ascending=False)
    return ", ".join(f"{name} {share:.1%}" for name, share in shares.items())


def _mapping_rows(tables: dict[str, pd.DataFrame]) -> list[tuple[str, str, str, str]]:
    by_head = {among: table.set_index(["layer", "head"]) for among, table in tables.items()}

    def cell(among: str, at: tuple[int, int]) -> str:
        row = by_head[among].loc[at]
        return f"{row.share:.1%} [{row.low:.1%}, {row.high:.1%}]"

    rows = [(f"({a}, {b})", cell(ELEMENT, (a, b)), f"{said:.1f}%", cell(ANY, (a, b))) for (a, b), said in TRIAL.items()]
    best = {
        among: next((int(r.layer), int(r["head"])) for _, r in t.iterrows() if r["head"] != sources.MAPPING_HEAD)
        for among, t in tables.items()
    }
    others = [f"{cell(among, at)}, {at}" for among, at in best.items()]
    medians, chances = ([f"{value:.1%}" for value in column] for column in _middle(tables))
    rows.append(("the best that is no head 5", others[0], f"{TRIAL_OTHER}%", others[1]))
    rows.append(("the median head", medians[0], "20%", medians[1]))
    rows.append(("chance", chances[0], f"{TRIAL_CHANCE}%", chances[1]))
    return rows


def _middle(tables: dict[str, pd.DataFrame]) -> tuple[list[float], list[float]]:
    return [float(t.share.median()) for t in tables.values()], [float(t.chance.iloc[0]) for t in tables.values()]


def _without_truth(found: HeadProfile) -> list[str]:
    """Where the desk's other scores, which know nothing of sources, rank these heads."""
    table = sources.ranks(found)
    table = table[~table.score.isin(list(sources.SCORES.values()))]
    ranked = [column for column in table.columns if column not in ("score", "first", "value")]
    near = table[(table[ranked].min(axis=1) <= NEAR)].sort_values(ranked, key=lambda c: c)
    rows = [
        (f"`{r.score}`", str(r["first"]), f"{r.value:.2f}", *(str(r[column]) for column in ranked))
        for _, r in near.iterrows()
    ]
    return [
        f"Of the {len(table)} head scores of the desk that tell heads apart here, {len(near)} rank head 5 of an upper "
        f"layer among the first {NEAR} of 96 (1: the most of it), with no list of sources at hand:\n",
        _table(("score", "first", "value there", *(f"rank of {column}" for column in ranked)), rows),
    ]
