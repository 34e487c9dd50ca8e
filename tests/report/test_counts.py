"""Numbers in sentences: no negative fall, no 0 where "none" is meant, one count of methods, the rest folded."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from attnprobe.appearance import MINUS
from attnprobe.comparison import compare
from attnprobe.judgement.rule import EXPLAINS, MISLEADS, UNDECIDED
from attnprobe.report import page
from attnprobe.report.claims import top
from attnprobe.report.data import _all_of
from attnprobe.report.making import brief
from attnprobe.report.scores import Unit, unit_of
from attnprobe.report.verdicts import _heading
from attnprobe.viewer.nouns import TEXTS
from tests.report.test_page import read
from tests.report.test_parts import judged
from tests.report.test_wording import with_row

POINTS = Unit(100.0, 1, "points", "the probability")


@pytest.mark.parametrize(
    ("fall", "said"),
    [(0.012, "falls by 1.2 points"), (-0.106, "rises by 10.6 points"), (0.0, "stays as it is"),
     (-0.0004, "stays as it is"), (0.0006, "falls by 0.1 points")],
)  # fmt: skip
def test_a_fall_is_told_without_a_sign(fall, said):
    assert POINTS.falls(fall) == said


@pytest.mark.parametrize("which", ["one", "many"])
def test_no_sentence_of_the_page_falls_or_rises_by_a_signed_number(which, request):
    found = request.getfixturevalue(which)
    for metric in ("comprehensiveness", "sufficiency"):
        found = with_row(found, metric, mean=-0.106, random_mean=0.02)
    words = " ".join(read(page(found)).words.split())
    assert not re.search(rf"\b(falls|rises|fall|rise|lowers|raises|by) by [+{MINUS}-]", words)
    assert f"by {MINUS}" not in words and "the answer rises by 10.6 points" in words
    assert unit_of(found).word == "points"


def verdicts_of(*kinds: str) -> pd.DataFrame:
    return pd.DataFrame({"verdict": kinds, "example_index": range(len(kinds))})


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        ((UNDECIDED,) * 6, "none explains, none misleads, all 6 are undecided"),
        ((EXPLAINS, *(UNDECIDED,) * 5), "1 explains, none misleads, 5 undecided"),
        ((EXPLAINS, EXPLAINS, MISLEADS), "2 explain, 1 misleads"),
        ((MISLEADS,) * 3, "none explains, all 3 mislead"),
    ],
)
def test_the_heading_of_verdicts_has_no_zero(kinds, said):
    methods = [str(i) for i in range(len(kinds))]
    of = f"{len(kinds)} maps of attention"
    assert _heading(verdicts_of(*kinds), methods, True, TEXTS) == f"Of {of}: {said}"
    several = _heading(verdicts_of(*kinds), ["a"], False, TEXTS)
    assert several == f"Of {len(kinds)} verdicts (1 map on {len(kinds)} texts): {said}"


@pytest.mark.parametrize(
    ("kinds", "claim", "rest"),
    [
        ([UNDECIDED] * 7, "Attention explains none of 7 predictions and misleads on none", "All 7 stay undecided."),
        ([EXPLAINS] * 7, "Attention explains all 7 predictions", "The tokens"),
        ([MISLEADS] * 7, "Attention explains none of 7 predictions and misleads on all", "The tokens"),
        ([EXPLAINS] * 2 + [UNDECIDED] * 5, "Attention explains 2 of 7 predictions and misleads on none", "5 stay"),
    ],
)
def test_the_claim_of_a_set_says_none_and_all(many, kinds, claim, rest):
    said = top(judged(many, kinds))
    assert said["headline"] == claim and said["lede"].startswith(rest)


def test_a_tau_that_rounds_to_0_is_near_it(many):
    near = replace(many, agreement=many.agreement.assign(mean=-0.001, low=-0.2, high=0.2))
    assert next(n["value"] for n in top(near)["numbers"] if "rank" in n["question"]) == "τ near 0"
    assert "τ 0.00" not in " ".join(str(group) for group in top(near)["other_side"]["groups"])


def test_the_page_counts_the_control_apart_everywhere(model):
    names = ["raw_attention", "rollout", "value_norms", "attention_x_gradient", "input_x_gradient", "leave_one_out"]
    names += ["integrated_gradients", "random_scores"]
    found = compare(model, "the film is good", names, n_random=4, n_resamples=20, verdicts=False, progress=False)
    html = page(found)
    assert ">6 methods</button>" in html and ">All 7 and the control</button>" in html and ">All 8<" not in html
    words = " ".join(read(html).words.split())
    assert re.search(r"of (the )?7 methods", words) and not re.search(r"\b8 methods", words)


def test_a_set_without_a_control_has_none_in_its_count():
    assert _all_of({"a": "attention", "b": "gradient"}) == "2"
    assert _all_of({"a": "attention", "r": "control", "s": "control"}) == "1 and 2 controls"


def test_settings_that_fill_more_than_a_line_are_folded_with_how_many_there_are(model):
    said = "gate half, absorbed (constants −0.7, norm shifts −0.1, softmax 1.0), most_in (a 0.6, b 0), rules (norm 3)"
    assert brief(said) == "gate half, absorbed (constants −0.7, norm shifts −0.1, softmax 1.0) and 2 more"
    assert brief("one " * 40) == "one " * 40 and brief("window 3") == ""
    found = compare(model, "the film is good", ["attn_lrp"], n_random=2, n_resamples=10, verdicts=False, progress=False)
    html = page(found)
    folded = re.search(r'<details class="set"><summary>Set: (.*?)</summary>(.*?)</details>', html)
    assert len(folded[1]) < 110 < len(folded[2]) and folded[2].startswith(folded[1].split(" and ")[0])


def test_a_page_made_again_differs_in_times_alone(model):
    def made():
        words = read(page(compare(model, ["a good film", "bad plot"], ["rollout", "leave_one_out", "random_scores"],
                                  n_random=4, n_resamples=20, progress=False))).words  # fmt: skip
        assert "only times change" in words
        return re.sub(r"(under )?\d+(\.\d+)?\s?(ms|s|min)\b", "TIME", words)

    first, second = made(), made()
    assert first == second and first.count("TIME") >= 4
