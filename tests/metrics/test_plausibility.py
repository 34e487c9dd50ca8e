"""Plausibility beside scikit-learn and by hand; what counts as a rationale, by words, places and ratings."""

import inspect
import math
from dataclasses import replace

import pytest
import torch
from sklearn import metrics as sklearn

from attnprobe.attribution import Attribution
from attnprobe.errors import InputError
from attnprobe.example import Example, words_of_spans
from attnprobe.metrics import plausibility
from attnprobe.metrics.rationales import as_rationale, lexicon_rationale, rationale_of, read_ratings
from attnprobe.target import ResolvedTarget

TEXT = "Not bad, unbelievably good and good."
SPANS = ((0, 3), (4, 7), (7, 8), (9, 11), (11, 21), (22, 26), (27, 30), (31, 35), (35, 36))
TARGET = ResolvedTarget(0, "yes", None, None, None, "logit", 0, "yes", 0.9, 0.9)


@pytest.fixture
def example():
    spans = (None, *SPANS, None)
    tokens = ("[CLS]", *(TEXT[a:b] for a, b in SPANS), "[SEP]")
    special = (True, *(False for _ in SPANS), True)
    return Example(TEXT, {}, tokens, spans, special, words_of_spans(TEXT, spans))


def attribution(example, scores):
    return Attribution("own", "own", example, TARGET, torch.as_tensor(scores).float(), signed=True)


def plain(scores):
    """Scores of a text without special tokens."""
    n = len(scores)
    example = Example("x" * n, {}, ("x",) * n, ((0, 1),) * n, (False,) * n, tuple(range(n)))
    return attribution(example, scores)


def value(name, *given, **options):
    return plausibility[name].function(*given, **options)


def unchecked(name):
    """The metric without the checks that jaxtyping makes in tests alone."""
    return inspect.unwrap(plausibility[name].function)


def test_the_two_areas_differ_as_known():
    given, marked = plain([6.0, 5, 4, 3, 2, 1]), [True, False, False, False, True, False]
    assert value("auprc_trapezoid", given, marked) == pytest.approx(0.6625)
    assert value("average_precision", given, marked) == pytest.approx(0.7)


@pytest.mark.parametrize("rounded", [False, True], ids=["no ties", "ties"])
def test_curves_and_sets_are_those_of_sklearn(rounded):
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        scores, marked = torch.randn(12, generator=generator), torch.rand(12, generator=generator) < 0.3
        if not bool(marked.any()):
            continue
        given = plain(scores.round() if rounded else scores)
        precision, recall, _ = sklearn.precision_recall_curve(marked, given.scores)
        assert value("auprc_trapezoid", given, marked) == pytest.approx(sklearn.auc(recall, precision))
        expected = sklearn.average_precision_score(marked, given.scores)
        assert value("average_precision", given, marked) == pytest.approx(expected)
        for k in (None, 1, 4):
            top = torch.zeros(12, dtype=torch.bool)
            top[given.ranking()[: k or int(marked.sum())]] = True
            assert value("token_f1", given, marked, k=k) == pytest.approx(sklearn.f1_score(marked, top))
            assert value("iou", given, marked, k=k) == pytest.approx(sklearn.jaccard_score(marked, top))


def test_the_pointing_game_is_won_by_the_largest_score():
    given = plain([0.1, 0.9, -2.0])
    assert value("pointing_game", given, [False, True, False]) == 1
    assert value("pointing_game", given, [True, False, True]) == 0


def test_mass_is_of_positive_scores_or_of_sizes():
    given, marked = plain([1.0, 3.0, -4.0]), [True, False, True]
    assert value("mass_accuracy", given, marked) == 0.25
    assert value("mass_accuracy", given, marked, of="size") == 5 / 8
    assert math.isnan(value("mass_accuracy", plain([-1.0, 0.0, 0.0]), marked))
    with pytest.raises(InputError, match="of is 'positive' or 'size'"):
        unchecked("mass_accuracy")(given, marked, of="all")


def test_special_tokens_and_tokens_behind_the_answer_count_for_nothing(example):
    scores = torch.zeros(11)
    scores[[0, 6]] = torch.tensor([9.0, 1.0])
    given = attribution(example, scores)
    for name in plausibility:
        assert value(name, given, ["good"]) <= 1
        assert value(name, given, spans_of("good")[:1]) == 1
    behind = replace(given, target=replace(TARGET, last_seen=5))
    assert all(math.isnan(value(name, behind, ["good"])) for name in plausibility)


def spans_of(word):
    starts = [i for i in range(len(TEXT)) if TEXT.startswith(word, i)]
    return [(start, start + len(word)) for start in starts]


def test_a_rationale_is_the_same_by_words_spans_and_truth_values(example):
    by_word = rationale_of(example, ["GOOD"])
    assert by_word.nonzero().flatten().tolist() == [6, 8]
    assert torch.equal(by_word, rationale_of(example, spans=spans_of("good")))
    given = attribution(example, torch.arange(11))
    forms = [["good"], spans_of("good"), by_word, by_word.tolist()]
    assert len({value("average_precision", given, form) for form in forms}) == 1


def test_a_word_of_several_tokens_and_a_phrase_are_whole(example):
    assert rationale_of(example, ["unbelievably"]).nonzero().flatten().tolist() == [4, 5]
    assert rationale_of(example, ["not bad"]).nonzero().flatten().tolist() == [1, 2]
    assert rationale_of(example, spans=[(10, 12)]).nonzero().flatten().tolist() == [4, 5]


def test_a_rationale_that_is_not_in_the_text_is_refused(example):
    with pytest.raises(InputError, match="'god' is not in the text; did you mean 'good'"):
        rationale_of(example, ["god"])
    with pytest.raises(InputError, match=r"no token of .* between characters 80 and 90"):
        rationale_of(example, spans=[(80, 90)])
    with pytest.raises(InputError, match=r"give \['good'\]"):
        inspect.unwrap(rationale_of)(example, "good")
    with pytest.raises(InputError, match="give one of them"):
        rationale_of(example)
    for wrong in ([True, False], torch.ones(11), [0.5, 0.2], [1, 2]):
        with pytest.raises(InputError, match="a rationale is"):
            inspect.unwrap(as_rationale)(example, wrong)
    with pytest.raises(InputError, match="k is at least 1"):
        value("iou", attribution(example, torch.zeros(11)), ["good"], k=0)


def test_rated_words_are_a_rationale(example, tmp_path):
    path = tmp_path / "lexicon.txt"
    path.write_text("good\t1.9\t0.9\t[2, 1]\nBad\t-2.5\t0.7\t[-2]\n\nmeh\t-0.3\n")
    ratings = read_ratings(path)
    assert ratings == {"good": 1.9, "bad": -2.5, "meh": -0.3}
    marks = {side: lexicon_rationale(example, ratings, side=side).nonzero().flatten().tolist() for side in SIDES}
    assert marks == {"either": [2, 6, 8], "positive": [6, 8], "negative": [2]}
    assert lexicon_rationale(example, ratings, least=2.0).nonzero().flatten().tolist() == [2]
    assert not lexicon_rationale(example, {}).any()
    path.write_text("good\t1.9\nbad -2\n")
    with pytest.raises(InputError, match="line 2"):
        read_ratings(path)
    with pytest.raises(InputError, match="side is"):
        inspect.unwrap(lexicon_rationale)(example, ratings, side="left")


SIDES = ("either", "positive", "negative")
