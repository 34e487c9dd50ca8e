"""Every attribution method on planted models, as planted and in three variants: writes PLANTED.md and planted.png.

Run: .venv/bin/python benchmarks/planted.py   (one thread, some minutes)
"""

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnprobe.benchmark import AS_PLANTED, Cell, benchmark_planted, by_method, to_frame
from attnprobe.benchmark_figure import benchmark_picture
from attnprobe.models.planted import NAMES, acts_one_by_one, planted

HERE = Path(__file__).parent
RESULTS = HERE / "PLANTED.md"
KINDS = {AS_PLANTED: "as planted", "rotation 1": "another basis", "noise 10 %": "10 % noise"}

PAGE = """# Attribution methods on planted models

A planted model is a small network built so that the effect of every token is known exactly. This page sets what each
method says beside that truth. Made by `benchmarks/planted.py`; the same table on your terminal:
`attnprobe benchmark planted`. All options are the defaults; 0 is what stands in for a token that is taken away.

![agreement of each method with the truth on each model](planted.png)

**How to read it.** Agreement is Kendall's τ-b of a method's scores and the truth over all tokens: 1 is the true order
with its ties, −1 its reverse. Scores that differ by less than 1/1000 of the largest, or by less than their standard
error, count as equal; scores that are all equal agree with nothing (0). Methods without a sign (attention weights,
norms) are compared with the size of the truth. Where the truth is the same for all tokens there is no order (blank),
and only the share on idle tokens tells. *First*: the largest score by size is at a token of the largest truth, with its
sign. *Idle*: share of the scores' size on tokens that have no effect. *True order*: n of the m models that the method
does.

**What truth is.** On {n_additive} of the {n_models} models tokens act one by one, so that every definition of their
effect says the same. On the others they act on one another, and the truth here is the exact Shapley value against zero
contents. That is a choice, and it is the one that Shapley methods make: their 1.00 in *together* says that they compute
what they say, and not that no other reading is right. {n_other} of the models carry another reading by name
(`planted("P12").other_truth`). Tokens are few, so that sampling methods can try every coalition; how they fare with
more tokens is in the table of variants, where most pairs of tokens are one with an effect and one without, and numbers
are not to be compared with those of the plans as they are.

## Methods

Means over models; *one by one* and *together* are the two kinds of models. F and B: forward and backward passes of a
single row, over all models; seconds on one thread.

{methods}

## Agreement, model by model

{matrix}

– refused, blank: no order to agree with. An asterisk: the order of another truth of that model.

## The models

{models}

## In another basis, with noise, with more tokens

Mean agreement over all models: as planted; with the residual stream turned by a random rotation; with every weight w
made w (1 + 0.1 · N(0, 1)), y and truth computed anew from all coalitions; and with 12 tokens in another order
(distractors have content and attention, and no effect).

{variants}

## Refusals

{refusals}

{n_cells} entries in {seconds} s.
"""


def markdown(frame: pd.DataFrame) -> str:
    """A Markdown table, numbers to the right."""
    head = "| " + " | ".join(map(str, frame.columns)) + " |\n|" + "---|" + "---:|" * (len(frame.columns) - 1)
    return "\n".join([head, *("| " + " | ".join(map(str, row)) + " |" for row in frame.to_numpy().tolist())])


def share(value: float | None, digits: int = 2) -> str:
    """A number, nothing where there is none."""
    return "" if value is None or math.isnan(value) else f"{round(value, digits) + 0.0:.{digits}f}".replace("-", "−")


def method_rows(cells: Sequence[Cell]) -> pd.DataFrame:
    """The summary of every method."""
    rows = []
    for row in by_method(cells).to_dict("records"):
        means = {
            "mean": row["agreement"],
            "one by one": row["additive"],
            "together": row["interacting"],
            "first": row["top1"],
            "idle": row["idle"],
        }
        counts = {"true order": f"{row['n_correct']} of {row['n_models']}", "F": row["forward"], "B": row["backward"]}
        shown = {name: share(value) for name, value in means.items()}
        rows.append(
            {"method": f"`{row['method']}`", "family": row["family"], **shown, **counts, "s": share(row["seconds"])}
        )
    return pd.DataFrame(rows)


def matrix_rows(cells: Sequence[Cell]) -> pd.DataFrame:
    """A row a method, a column a model."""
    at = {(cell.method, cell.model): cell for cell in cells}

    def entry(cell: Cell) -> str:
        if cell.scores is None:
            return "–"
        star = "*" if cell.correct_otherwise and not cell.correct else ""
        return share(cell.agreement) + star

    order = list(by_method(cells).method)
    return pd.DataFrame([{"method": f"`{m}`", **{n: entry(at[m, n]) for n in NAMES}} for m in order])


def model_rows() -> pd.DataFrame:
    """What was planted in each model."""
    rows = []
    for name in NAMES:
        made = planted(name)
        truth = ", ".join(
            f"{token} {share(value)}"
            for token, value in zip(made.example.tokens, made.truth.tolist(), strict=True)
            if value
        )
        kind = "one by one" if acts_one_by_one(made) else "together"
        rows.append(
            {"model": name, "title": made.plan.title, "tokens act": kind, "truth": truth or "0", "story": made.story}
        )
    return pd.DataFrame(rows)


def variant_rows(cells: Sequence[Cell]) -> pd.DataFrame:
    """Mean agreement of every method by kind of variant."""
    frame = to_frame(cells)
    frame["kind"] = frame.variant.map(lambda variant: KINDS.get(variant, "12 tokens"))
    table = frame.pivot_table(index="method", columns="kind", values="agreement", aggfunc="mean")
    table = table.reindex(columns=[*KINDS.values(), "12 tokens"]).sort_values("as planted", ascending=False)
    shown = table.map(share)
    shown.insert(0, "method", [f"`{method}`" for method in shown.index])
    return shown


def refusal_lines(cells: Sequence[Cell]) -> str:
    """Each reason once, with its models."""
    found: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.refused or cell.fault:
            reason = (cell.refused or f"fault: {cell.fault}").removeprefix(f"{cell.model}: ")
            found.setdefault((cell.method, reason.removeprefix(f"{cell.method}: ")), []).append(cell.model)
    return "\n".join(f"- `{m}` on {', '.join(models)}: {reason}" for (m, reason), models in found.items())


def main() -> None:
    """Ask every method, and write PLANTED.md."""
    started = time.process_time()
    cells = benchmark_planted(n_variants=3)
    plain = [cell for cell in cells if cell.variant == AS_PLANTED]
    benchmark_picture(plain).savefig(HERE / "planted.png", dpi=90)
    page = PAGE.format(
        n_additive=len({cell.model for cell in plain if cell.additive}),
        n_models=len(NAMES),
        n_other=sum(bool(planted(name).other_truth) for name in NAMES),
        methods=markdown(method_rows(plain)),
        matrix=markdown(matrix_rows(plain)),
        models=markdown(model_rows()).replace("---:|", "---|"),
        variants=markdown(variant_rows(cells)),
        refusals=refusal_lines(plain) or "None.",
        n_cells=len(cells),
        seconds=f"{time.process_time() - started:.0f}",
    )
    RESULTS.write_text(page, "utf-8")
    print(page)


if __name__ == "__main__":
    main()
