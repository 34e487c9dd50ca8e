"""The published trends, each tested on what was measured here: it is there if it holds in every seed."""

from collections.abc import Callable

import pandas as pd

from benchmarks.published.readers import TASKS
from benchmarks.published.summing import Claim, by_seed, one_by_one, said

ABNAR = "Abnar & Zuidema 2020"
JAIN = "Jain & Wallace 2019"
SERRANO = "Serrano & Smith 2019"
WIEGREFFE = "Wiegreffe & Pinter 2019"
MUCH_WEIGHT, LITTLE_CHANGE = 0.5, 0.1
FAR, CLOSE = 0.4, 0.05  # JSD of attention that is another; total variation of predictions that are the same
NEARLY = 0.03  # accuracy that uniform attention may lose


def depth_claims(depth: pd.DataFrame) -> list[Claim]:
    """What table 1 of Abnar & Zuidema shows."""
    found = by_seed(depth[depth.against == "size"], ["map", "layer"])
    wide = found.pivot_table(index="seed", columns=["map", "layer"], values="value")
    last = int(depth.layer.max())
    raw, rollout, flow = wide["raw"], wide["rollout"], wide["flow"]
    upper = raw[list(range(2, last + 1))]
    return [
        Claim(
            ABNAR,
            "raw attention agrees with blank-out best in the first layer",
            f"layer 1 {said(raw[1])}, best layer above it {said(upper.max(axis=1))}",
            tuple(raw[1] > upper.max(axis=1)),
        ),
        Claim(
            ABNAR,
            "rollout agrees better the more layers it covers",
            f"layer 1 {said(rollout[1])}, layer {last} {said(rollout[last])}",
            tuple(rollout[last] > rollout[1]),
        ),
        Claim(
            ABNAR,
            "flow agrees better the more layers it covers",
            f"layer 1 {said(flow[1])}, layer {last} {said(flow[last])}",
            tuple(flow[last] > flow[1]),
        ),
        Claim(
            ABNAR,
            "flow is there earlier than rollout (layer 3)",
            f"flow {said(flow[3])}, rollout {said(rollout[3])}",
            tuple(flow[3] > rollout[3]),
        ),
        Claim(
            ABNAR,
            "in the last layer rollout and flow are ahead of raw attention",
            f"raw {said(raw[last])}, rollout {said(rollout[last])}, flow {said(flow[last])}",
            tuple((rollout[last] > raw[last]) & (flow[last] > raw[last])),
        ),
    ]


def values_of(attending: pd.DataFrame, task: str, measure: str, encoder: str, variant: str = "") -> pd.DataFrame:
    """One measure by seed of one reader."""
    rows = attending[(attending.task == task) & (attending.encoder == encoder) & (attending.measure == measure)]
    return by_seed(rows[rows.variant == variant], ["measure"])


def each_task(build: Callable[[str], Claim]) -> list[Claim]:
    """The same claim on every task."""
    return [build(task) for task in TASKS]


def weight_claims(attending: pd.DataFrame) -> list[Claim]:
    """What Jain & Wallace say of gradients, removal, other attention and permutation."""

    def lower(measure: str, of: str) -> Callable[[str], Claim]:
        def build(task: str) -> Claim:
            pair = [values_of(attending, task, measure, encoder).value for encoder in ("recurrent", "average")]
            return Claim(
                JAIN,
                f"{task}: a recurrent encoder lowers Kendall's τ of attention and {of}",
                f"recurrent {said(list(pair[0]))}, average {said(list(pair[1]))}",
                tuple(pair[0].to_numpy() < pair[1].to_numpy()),
            )

        return build

    def other(task: str) -> Claim:
        rows = attending[(attending.experiment == "counterfactual") & (attending.measure == "jsd")]
        rows = rows[(rows.task == task) & (rows.encoder == "recurrent")]
        middle = by_seed(rows, ["task"], "median").value
        return Claim(
            JAIN,
            f"{task}: very other attention (median JSD above {FAR}) gives the recurrent reader the same output",
            f"median JSD {said(list(middle))}",
            tuple(middle > FAR),
        )

    def permuted(task: str) -> Claim:
        share = little_change(attending, task, "recurrent")
        return Claim(
            JAIN,
            f"{task}: of texts with a weight of {MUCH_WEIGHT} or more, most change by less than {LITTLE_CHANGE} when "
            "weights are permuted (recurrent)",
            f"share {said(list(share))}",
            tuple(share > 0.5),
        )

    builds = (lower("tau_gradient", "the gradient"), lower("tau_removal", "leave-one-out"), other, permuted)
    return [claim for build in builds for claim in each_task(build)]


def little_change(attending: pd.DataFrame, task: str, encoder: str) -> pd.Series:
    """By seed: of the texts with much weight on one token, the share that changes little under permutation."""
    rows = attending[(attending.experiment == "permuted") & (attending.task == task) & (attending.encoder == encoder)]
    wide = rows.pivot_table(index=["seed", "example_index"], columns="measure", values="value")
    heavy = wide[wide.max_weight >= MUCH_WEIGHT]
    return (heavy.median_change < LITTLE_CHANGE).groupby("seed").mean()


def flip_claims(attending: pd.DataFrame) -> list[Claim]:
    """What Serrano & Smith say of the top weight and of orders."""

    def neither(task: str) -> Claim:
        found = values_of(attending, task, "flips_neither", "recurrent").value
        return Claim(
            SERRANO,
            f"{task}: without the top weight, as without a random one, the decision mostly stays (recurrent)",
            f"neither flips it in {said(list(found))}",
            tuple(found > 0.5),
        )

    def alone(task: str) -> Claim:
        top, drawn = (values_of(attending, task, f"flips_{name}", "recurrent").value for name in ("top", "random"))
        return Claim(
            SERRANO,
            f"{task}: the top weight alone flips it more often than a random one alone (recurrent)",
            f"only the top one {said(list(top))}, only the random one {said(list(drawn))}",
            tuple(top > drawn),
        )

    def slower(task: str) -> Claim:
        found = {
            name: values_of(attending, task, "removed", "recurrent", name).value
            for name in ("attention", "gradient_x_attention", "random")
        }
        middle, best, worst = found["attention"], found["gradient_x_attention"], found["random"]
        return Claim(
            SERRANO,
            f"{task}: by attention more must go until the flip than by gradient × attention, less than at random "
            "(recurrent)",
            f"share of the keys {said(list(best))}, {said(list(middle))}, {said(list(worst))}",
            tuple((best < middle) & (middle < worst)),
        )

    return [claim for build in (neither, alone, slower) for claim in each_task(build)]


def training_claims(training: pd.DataFrame, attending: pd.DataFrame) -> list[Claim]:
    """What Wiegreffe & Pinter say of uniform attention, twins and the diagnostic network."""
    claims = [_uniform(training, task) for task in TASKS]
    twins = training[(training.experiment == "twins") & (training.encoder == "recurrent")]
    reached = far_twins(twins)
    searched = by_seed(
        attending[(attending.measure == "jsd") & (attending.task == "order") & (attending.encoder == "recurrent")],
        ["task"],
    ).value
    claims.append(
        Claim(
            WIEGREFFE,
            f"order: one model with the same predictions (total variation up to {CLOSE}) cannot look as far away as a "
            "search text by text finds (recurrent)",
            f"JSD of the farthest twin {said(list(reached))}, of the search {said(list(searched))}",
            tuple(reached.to_numpy() < searched.to_numpy()),
        )
    )
    found = by_seed(training[(training.experiment == "diagnostic") & (training.measure == "right")], ["variant"])
    wide = found.pivot(index="seed", columns="variant", values="value")
    claims.append(
        Claim(
            WIEGREFFE,
            "order: trained weights help a network without context more than uniform ones do, and more than a twin's",
            f"right: trained {said(wide.trained)}, uniform {said(wide.uniform)}, twin's {said(wide.adversarial)}",
            tuple((wide.trained > wide.uniform) & (wide.adversarial < wide.trained)),
        )
    )
    return claims


def _uniform(training: pd.DataFrame, task: str) -> Claim:
    rows = training[(training.experiment == "uniform") & (training.task == task)]
    wide = rows[rows.encoder == "recurrent"].pivot(index="seed", columns="variant", values="value")
    return Claim(
        WIEGREFFE,
        f"{task}: trained with uniform attention, a recurrent reader is nearly as right (within {NEARLY})",
        f"learned {said(wide.learned, 3)}, uniform {said(wide.uniform, 3)}",
        tuple(wide.learned - wide.uniform <= NEARLY),
    )


def far_twins(twins: pd.DataFrame) -> pd.Series:
    """By seed: the largest mean JSD of a twin whose predictions are the same."""
    wide = twins[twins.variant != "another seed"].pivot_table(
        index=["seed", "variant"], columns="measure", values="value"
    )
    return wide[wide.total_variation <= CLOSE].groupby("seed").jsd.max()


__all__ = ["depth_claims", "flip_claims", "one_by_one", "training_claims", "weight_claims"]
