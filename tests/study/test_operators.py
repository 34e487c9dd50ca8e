"""Several operators: named in every row, set beside one another, and left out where a model does not have them."""

import math
import re
from dataclasses import replace
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from attnprobe.comparison import compare
from attnprobe.finding import findings
from attnprobe.judged_tables import RANDOM
from attnprobe.metrics import agreement
from attnprobe.models.planted import planted
from attnprobe.significance import holm
from attnprobe.tables import null_band
from attnprobe.verdict_tables import BETWEEN, shares
from attnprobe.wording import of_tokens, spaced
from tests import tiny

FEW = ["raw_attention", "leave_one_out", "random_scores"]


@pytest.fixture(scope="module")
def model():
    return tiny.loaded("bert", "sdpa", scale=2.0)


@pytest.fixture(scope="module")
def seven(model):
    """Seven texts under an operator of each kind, and one that the model lacks."""
    examples = [model.example(tiny.IDS[start : start + 6]) for start in range(7)]
    return compare(
        model,
        examples,
        FEW,
        operators=["mask", "mean", "attention_mask"],
        n_random=20,
        n_resamples=100,
        verdicts=False,
        progress=False,
    )


def test_each_row_names_its_operator_and_kind(seven):
    for table in (seven.faithfulness, seven.positions, seven.tests):
        kinds = set(zip(table.operator, table.kind, strict=True))
        assert kinds == {("mean", "content"), ("attention_mask", "renormalising")}
    assert set(seven.curves.operator) == {"mean"} and set(seven.main.operator) == {"mean"}


def test_an_operator_that_the_model_lacks_leaves_the_denominator_and_the_result_says_so(seven):
    table = seven.operators.set_index("operator")
    assert table.n.to_dict() == {"mean": 7, "attention_mask": 7, "mask": 0} and set(table.texts) == {7}
    assert "no 'mask' embedding" in table.lacking["mask"] and table.lacking["mean"] == ""
    assert table.main["mean"] and set(seven.faithfulness.n) == {7}
    (finding,) = [f for f in findings(seven) if f.topic == "operators"]
    assert "Left out where they do not work: mask (0 of 7 texts)" in finding.claim


def test_stability_is_the_agreement_of_methods_and_of_leave_one_out_effects(seven):
    means = seven.faithfulness.pivot(index="method", columns=["operator", "metric"], values="mean")
    for row in seven.stability[seven.stability.ranked == "methods"].itertuples():
        x, y = means[row.operator_a, row.metric], means[row.operator_b, row.metric]
        assert row.kendall_tau == pytest.approx(stats.kendalltau(x, y).statistic) and row.n == len(FEW)
    (tokens,) = seven.stability[seven.stability.ranked == "tokens"].itertuples()
    taus = [
        stats.kendalltau(s.under("mean").effects, s.under("attention_mask").effects).statistic for s in seven.studies
    ]
    assert tokens.kendall_tau == pytest.approx(np.mean(taus)) and tokens.n == 7 and tokens.low <= tokens.high


def test_tests_are_scipys_on_the_values_of_the_examples_and_corrected_in_families(seven):
    table = seven.tests
    assert len(table) == 2 * 3 * 2 * (3 + 3)
    values = seven.positions.pivot(index="example_index", columns=["operator", "metric", "method"], values="value")
    rows = table[(table.operator == "mean") & (table.metric == "sufficiency") & (table.test == "wilcoxon")]
    between, beside = rows[rows.method_b != RANDOM], rows[rows.method_b == RANDOM]
    for row in between.itertuples():
        # Lower is better: the first is better by what the second has more.
        better = values["mean", "sufficiency", row.method_b] - values["mean", "sufficiency", row.method_a]
        assert row.p == pytest.approx(stats.wilcoxon(better).pvalue) and row.difference == pytest.approx(better.mean())
    for part in (between, beside):
        assert part.p_holm.tolist() == pytest.approx(holm(part.p.tolist())) and len(part) == 3


@pytest.mark.parametrize("metric", ["kendall_tau", "spearman", "top_k_overlap"])
def test_the_null_of_agreement_is_that_of_all_permutations(metric):
    import torch

    ranks = torch.arange(5).float()
    every = [agreement[metric].function(ranks, ranks[list(order)]) for order in permutations(range(5))]
    low, high = null_band(metric, (5,), 0)
    assert low == pytest.approx(np.quantile(every, 0.025), abs=0.15)
    assert high == pytest.approx(np.quantile(every, 0.975), abs=0.15)
    narrow = null_band(metric, (5,) * 20, 0)
    assert narrow[1] - narrow[0] < (high - low) / 2


def test_random_scores_agree_no_more_than_the_null_and_a_metric_of_values_has_none(seven):
    rows = seven.agreement[(seven.agreement.method_b == "random_scores") & (seven.agreement.direction == "signed")]
    assert (rows.null_low <= rows["mean"]).all() and (rows["mean"] <= rows.null_high).all()
    assert all(math.isnan(end) for end in null_band("jensen_shannon", (5,), 0))


@pytest.fixture(scope="module")
def misled():
    made = planted("P2", n_tokens=10)
    return compare(
        made.model, made.example, ["raw_attention", "leave_one_out"], operators="zero", n_random=5, progress=False
    )


def test_a_map_that_is_known_to_mislead_is_not_said_to_explain(misled):
    (row,) = misled.verdicts.itertuples()
    assert row.method == "raw_attention" and row.verdict in ("misleads", "undecided")
    assert set(misled.verdict_evidence.operator) >= {"value_zero"}
    first = findings(misled)[0]
    assert (
        first.topic == "explanation"
        and first.verdict == row.verdict
        and spaced(of_tokens(row.reason.rstrip("."))) in first.claim
    )


def with_verdicts(comparison, verdicts, quality):
    """The comparison with these verdicts on raw attention, and with this quality beside random orders' 0.4."""
    rows = pd.DataFrame(
        {
            "example_index": range(len(verdicts)),
            "method": "raw_attention",
            "verdict": verdicts,
            "reason": "so it is",
            "against": [f"one{BETWEEN}two"] + ["one"] * (len(verdicts) - 1),
            "causes": ["sink: it rests on 'a'; look at value_norms"] * 2 + [""] * (len(verdicts) - 2),
            "quality": quality,
            "random": 0.4,
        }
    )
    return replace(comparison, verdicts=rows, verdict_shares=shares(rows))


def test_maps_of_which_the_same_is_to_be_said_share_one_finding(misled):
    row = misled.verdicts.iloc[[0]].assign(verdict="undecided", reason="so it is", against="", causes="")
    said = [row.assign(method=name) for name in ("raw_attention", "rollout", "attention_flow")]
    rows = pd.concat([*said, row.assign(method="grad_sam", reason="it is not")], ignore_index=True)
    found = [f for f in findings(replace(misled, verdicts=rows)) if f.topic == "explanation"]
    assert [f.claim for f in found] == [
        "Whether raw attention, rollout and attention flow explain this prediction is undecided: so it is.",
        "Whether Grad-SAM explains this prediction is undecided: it is not.",
    ]
    assert list(found[0].evidence.method) == ["raw_attention", "rollout", "attention_flow"]


def test_a_set_has_shares_with_intervals_a_test_what_speaks_against_and_causes(seven):
    found = with_verdicts(seven, ["misleads"] * 11 + ["explains"], np.linspace(0.1, 0.35, 12))
    first = findings(found)[0]
    assert first.verdict == "misleads"
    assert spaced("explains 1 of 12 (8% [1%, 35%]), misleads on 11 of 12") in first.claim
    # The mean of 0.1 to 0.35 is 0.225: 17.5 points below the 0.4 of random orders, and printed as 17 or 18.
    assert re.search(r"have 1[78] points less of the effect than those of random orders", first.claim)
    assert "1 text: explains" in first.against and "one (12 texts)" in first.against and "two" in first.against
    assert first.causes == ("sink on 2 of 12 texts; on the first: it rests on 'a'; look at value_norms",)
    p = stats.wilcoxon(np.linspace(0.1, 0.35, 12) - 0.4).pvalue
    assert found.verdict_shares.p.tolist() == pytest.approx([p] * 3) and found.verdict_shares.p_holm[0] == p


def test_a_set_without_a_clear_majority_is_undecided(seven):
    found = with_verdicts(seven, ["misleads"] * 3 + ["explains"] * 4, [0.5] * 7)
    assert findings(found)[0].verdict == "undecided"
