"""The text of benchmarks/TRENDS.md; every number in it is filled in from the tables."""

import pandas as pd

from attnprobe.appearance import number, percent
from attnprobe.intervals import over_texts
from benchmarks.published import claims
from benchmarks.published.bundled import EPS
from benchmarks.published.depth import MAPS, PAPER
from benchmarks.published.readers import ENCODERS, TASKS
from benchmarks.published.summing import ABSENT, PARTLY, THERE, Claim, by_seed, markdown, said
from benchmarks.published.training import DIAGNOSED
from benchmarks.published.words import AS_CITED, PAGE

AGAINST = ("size", "signed", "with [CLS]", "top word")


def page(found: dict[str, pd.DataFrame]) -> str:
    """The page, from the tables by name."""
    depth, attending, training, bundled = (found[name] for name in ("depth", "attention", "training", "bundled"))
    parts = {
        "depth": claims.depth_claims(depth),
        "weights": claims.weight_claims(attending),
        "flips": claims.flip_claims(attending),
        "training": claims.training_claims(training, attending),
    }
    every = [claim for part in parts.values() for claim in part]
    counts = {word: sum(claim.there == word for claim in every) for word in (THERE, PARTLY, ABSENT)}
    return PAGE.format(
        n_seeds=depth.seed.nunique(),
        minutes=round(seconds(found) / 60),
        n_claims=len(every),
        n_there=counts[THERE],
        n_partly=counts[PARTLY],
        n_absent=counts[ABSENT],
        absent=listed(every, ABSENT),
        partly=listed(every, PARTLY),
        diagnosed=DIAGNOSED,
        **{f"{name}_claims": claim_table(part) for name, part in parts.items()},
        **_depth(depth),
        **_attending(attending),
        **_training(training),
        **_bundled(bundled),
        as_cited=AS_CITED,
    )


def listed(every: list[Claim], there: str) -> str:
    """The trends that are so much there, a line each."""
    return "\n".join(f"- {one.source}; {one.trend}: {one.seen}" for one in every if one.there == there) or "- none"


def seconds(found: dict[str, pd.DataFrame]) -> float:
    """CPU seconds of all tables, training included."""
    columns = {name: ["seed", "seconds"] if "seed" in table else ["seconds"] for name, table in found.items()}
    return float(sum(table[columns[name]].drop_duplicates().seconds.sum() for name, table in found.items()))


def claim_table(found: list[Claim]) -> str:
    """A row a claim."""
    rows = [(one.trend, one.seen, one.there) for one in found]
    return markdown(pd.DataFrame(rows, columns=["published trend", "here", "there"]))


def _depth(depth: pd.DataFrame) -> dict[str, object]:
    """Tables and numbers of the part on layers."""
    accuracy = {name: depth[depth["map"] == name].value.tolist() for name in ("accuracy", "accuracy with attractors")}
    n = int(depth[depth.example_index >= 0].groupby("seed").example_index.nunique().max())
    layers = sorted(layer for layer in depth.layer.unique() if layer > 0)
    found = by_seed(depth[depth.example_index >= 0], ["map", "against", "layer"])
    rows: list[list[str]] = []
    for name in MAPS:
        if name in PAPER:
            rows.append([name, "**paper**", *(number(value, 2) for value in PAPER[name])])
        for against in AGAINST:
            part = found[(found["map"] == name) & (found.against == against)]
            rows.append([name, against, *(said(part[part.layer == layer].value.tolist()) for layer in layers)])
    frame = pd.DataFrame(rows, columns=["map", "blank-out", *(f"layer {layer}" for layer in layers)])
    top = found[(found.against == "top word") & (found.layer == layers[-1])]
    tops = {f"{name}_top": said(top[top["map"] == name].value.tolist()) for name in PAPER}
    limited = found[(found.against == "limited below") & (found.layer == layers[-1])]
    return {
        **tops,
        "flow_limited": said(limited.value.tolist()),
        "depth_table": markdown(frame),
        "depth_n": n,
        "depth_accuracy": said(accuracy["accuracy"]),
        "depth_attractors": said(accuracy["accuracy with attractors"]),
    }


def _attending(attending: pd.DataFrame) -> dict[str, object]:
    """Tables of the parts on permuted and other attention, and on flips."""
    shown = {
        "right": "right",
        "tau_gradient": "τ, gradient",
        "tau_removal": "τ, leave-one-out",
        "max_weight": "largest weight",
        "median_change": "median change, permuted",
        "jsd": "JSD of other attention",
    }
    flips = {
        "flips_both": "both",
        "flips_top": "only the top",
        "flips_random": "only a random one",
        "flips_neither": "neither",
    }
    orders = ("random", "attention", "gradient", "gradient_x_attention")
    rows, flip_rows = [], []
    for task in TASKS:
        for encoder in ENCODERS:
            whose = (task, encoder)
            rows.append([*whose, *(_said(attending, task, name, encoder) for name in shown)])
            removed = [_said(attending, task, "removed", encoder, order) for order in orders]
            flip_rows.append([*whose, *(_said(attending, task, name, encoder) for name in flips), *removed])
    names = [*flips.values(), *(f"out, {order.replace('_x_', ' × ')}" for order in orders)]
    texts = attending[attending.experiment == "permuted"]
    searched = attending[attending.experiment == "counterfactual"]
    return {
        "attention_table": markdown(pd.DataFrame(rows, columns=["task", "encoder", *shown.values()])),
        "flips_table": markdown(pd.DataFrame(flip_rows, columns=["task", "encoder", *names])),
        "attention_n": texts.example_index.nunique(),
        "searched_n": searched.example_index.nunique(),
    }


def _said(attending: pd.DataFrame, task: str, measure: str, encoder: str, variant: str = "") -> str:
    return said(claims.values_of(attending, task, measure, encoder, variant).value.tolist())


def _training(training: pd.DataFrame) -> dict[str, object]:
    """Tables of the part on training."""
    uniform = by_seed(training[training.experiment == "uniform"], ["task", "encoder", "variant"])
    rows = [
        [task, encoder, *(said(part[part.variant == looks].value.tolist(), 3) for looks in ("learned", "uniform"))]
        for (task, encoder), part in uniform.groupby(["task", "encoder"], sort=False)
    ]
    twins = by_seed(training[training.experiment == "twins"], ["encoder", "variant", "measure"])
    twin_rows = []
    for (encoder, variant), part in twins.groupby(["encoder", "variant"], sort=False):
        by_measure = {name: said(values.value.tolist()) for name, values in part.groupby("measure")}
        name = variant if variant == "another seed" else f"λ = {float(variant):g}"
        twin_rows.append([encoder, name, *(by_measure[m] for m in ("jsd", "total_variation", "top_changed", "right"))])
    diagnostic = by_seed(training[training.experiment == "diagnostic"], ["variant", "measure"])
    diagnostic_rows = [
        [variant, *(said(part[part.measure == m].value.tolist()) for m in ("right", "mass_on_deciding"))]
        for variant, part in diagnostic.groupby("variant", sort=False)
    ]
    columns = ["encoder", "model", "JSD of the attention", "total variation", "another top token", "right"]
    return {
        "uniform_table": markdown(pd.DataFrame(rows, columns=["task", "encoder", "learned", "uniform"])),
        "twins_table": markdown(pd.DataFrame(twin_rows, columns=columns)),
        "diagnostic_table": markdown(
            pd.DataFrame(diagnostic_rows, columns=["weights", "right", "weight on the word that decides"])
        ),
        "training_n": training[training.experiment == "twins"].example_index.nunique(),
    }


def _bundled(bundled: pd.DataFrame) -> dict[str, object]:
    """The table of the search in the bundled model."""
    rows = []
    for place in dict.fromkeys(bundled.place):
        for eps in EPS:
            part = bundled[(bundled.place == place) & (bundled.eps == eps)]
            by_measure = {name: values.value.tolist() for name, values in part.groupby("measure")}
            jsd = over_texts(by_measure["jsd"], n_resamples=2000, seed=0)
            changed = sum(by_measure["top_changed"]) / len(by_measure["top_changed"])
            interval = f"{number(jsd.mean, 2)} [{number(jsd.low, 2)}, {number(jsd.high, 2)}]"
            moved = number(max(by_measure["total_variation"]), 4)
            rows.append([place, f"{eps:g}", interval, percent(changed, 0), moved])
    columns = ["layer", "output within", "JSD found, 95 % interval", "another top token", "largest total variation"]
    return {
        "bundled_table": markdown(pd.DataFrame(rows, columns=columns)),
        "bundled_n": bundled.example_index.nunique(),
    }
