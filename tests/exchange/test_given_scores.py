"""Scores that were computed elsewhere join attribute() and compare(), and are matched to tokens by name."""

from itertools import pairwise

import hypothesis
import pandas as pd
import pytest
import torch
from hypothesis import strategies as st

import attnprobe
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.exchange import from_scores
from attnprobe.exchange.matching import fitted, form_of

TEXT = "An unpredictable, warm film."
OTHER = "Not good at all."


@pytest.fixture(scope="module")
def model():
    return attnprobe.load("attnprobe/sentiment")


def scores_of(model, given, text=TEXT, **options):
    return attnprobe.attribute(model, text, from_scores("mine", {text: given}, **options)).scores


def word_of(model, text=TEXT):
    example = model.example(text)
    return example, dict(zip(example.pieces, range(example.n_tokens), strict=True))


def test_a_score_a_token_is_taken_as_it_is(model):
    numbers = torch.arange(model.example(TEXT).n_tokens) / 7
    assert torch.equal(scores_of(model, numbers), numbers.float())
    assert torch.equal(scores_of(model, numbers.tolist()), numbers.float())
    assert torch.equal(scores_of(model, numbers.numpy()), numbers.float())


def test_without_special_tokens_they_get_zero(model):
    n = model.example(TEXT).n_tokens
    found = scores_of(model, list(range(1, n - 1)))
    assert found.tolist() == [0, *range(1, n - 1), 0]


def test_a_words_score_is_shared_among_its_pieces(model):
    example, _ = word_of(model)
    pieces = [group for group in example.word_groups() if len(group) > 1]
    assert pieces, "the text needs a word of several tokens"
    words = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0][: len(example.word_groups()) - 2]
    found = scores_of(model, words)
    groups = [group for group in example.word_groups() if not example.is_special[group[0]]]
    for group, score in zip(groups, words, strict=True):
        assert torch.allclose(found[group], torch.full((len(group),), score / len(group)))
    copied = scores_of(model, words, spread="copy")
    assert copied[pieces[0]].unique().tolist() == [words[groups.index(pieces[0])]]


def test_names_are_matched_as_words_and_as_pieces_whatever_their_case(model):
    example, place = word_of(model)
    named = {"An": 1.0, "Unpredictable": 3.0, ",": 0.5, "warm": -2.0, "FILM": 4.0, ".": 0.0}
    found = scores_of(model, named)
    assert found[place["warm"]] == -2 and found[place["film"]] == 4
    group = next(group for group in example.word_groups() if len(group) > 1)
    assert torch.allclose(found[group], torch.full((len(group),), 3.0 / len(group)))
    by_piece = {example.tokens[i]: float(i) for i in range(example.n_tokens)}
    assert scores_of(model, by_piece).tolist() == list(map(float, range(example.n_tokens)))


def test_pairs_keep_words_that_come_twice_apart(model):
    text = "good, good film"
    example = model.example(text)
    found = scores_of(model, [("good", 1.0), (",", 0.0), ("good", 2.0), ("film", 3.0)], text)
    assert found.tolist() == [0, 1, 0, 2, 3, 0]
    assert example.n_tokens == 6


def test_tokens_of_another_tokenizer_are_matched_by_their_characters(model):
    example, place = word_of(model)
    cut = [("<s>", 9.0), ("An", 1.0), ("Ġun", 1.0), ("predict", 2.0), ("able", 3.0), (",", 0.0)]
    cut += [("Ġwa", 1.0), ("rm", 1.5), ("Ġfilm.", 4.0), ("</s>", 9.0)]
    found = scores_of(model, cut)
    group = next(group for group in example.word_groups() if len(group) > 1)
    assert torch.isclose(found[group].sum(), torch.tensor(6.0))
    assert found[place["warm"]] == 2.5
    assert found[place["film"]] == 2 and found[place["."]] == 2
    assert found[0] == 0 and found[-1] == 0


@hypothesis.given(data=st.data())
def test_however_the_text_is_cut_the_scores_add_up_where_both_cuts_meet(data):
    letters = data.draw(st.text("abc", min_size=1, max_size=12))
    ours, theirs = (
        sorted({0, len(letters), *data.draw(st.lists(st.integers(1, len(letters)), max_size=6))}) for _ in range(2)
    )
    spans = tuple(pairwise(ours))
    pieces = tuple(letters[a:b] for a, b in spans)
    example = Example(letters, {}, pieces, spans, (False,) * len(pieces), tuple(range(len(pieces))))
    scores = [float(data.draw(st.integers(-5, 5))) for _ in theirs[1:]]
    given = form_of([(letters[a:b], s) for (a, b), s in zip(pairwise(theirs), scores, strict=True)], "here")
    found = fitted(given, example).tolist()
    for begin, end in pairwise(sorted(set(ours) & set(theirs))):
        inside = [s for s, (a, b) in zip(found, spans, strict=True) if begin <= a and b <= end]
        total = sum(s for s, (a, b) in zip(scores, pairwise(theirs), strict=True) if begin <= a and b <= end)
        assert inside == pytest.approx([total / len(inside)] * len(inside))


def test_a_frame_of_an_attribution_comes_back_as_it_was(model):
    there = attnprobe.attribute(model, TEXT, "leave_one_out")
    assert torch.equal(scores_of(model, there.to_frame()), there.scores)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([1.0, 2.0], "2 scores fit no reading"),
        ({"warn": 1.0}, "'warn'.*did you mean 'warm'"),
        ({"film": 1.0}, "no score is given for 'An'"),
        ([("An", 1.0), ("odd", 2.0)], "token 2 of the given scores is 'odd'"),
        ([("An", 1.0)], "end before 'unpredict"),
        ([float("nan")] * 3, "finite number"),
        ([("An", 1.0), 2.0], "pairs"),
        ("warm", "expected scores"),
        (pd.DataFrame({"a": [1.0]}), "columns 'token' and 'score'"),
        ({"An": "much"}, "one number"),
    ],
)
def test_what_does_not_match_is_named(model, given, said):
    with pytest.raises(InputError, match=said):
        scores_of(model, given)


def test_tokens_that_are_not_named_may_have_a_score_of_their_own(model):
    _, place = word_of(model)
    found = scores_of(model, {"warm": 2.0}, missing=0.0)
    assert found[place["warm"]] == 2 and found.count_nonzero() == 1


def test_the_text_is_found_by_itself_its_number_or_its_tokens(model):
    example = model.example(OTHER)
    pairs = [(piece, 1.0 * i) for i, piece in enumerate(example.pieces)]
    n = model.example(TEXT).n_tokens
    expected = list(map(float, range(example.n_tokens)))
    for method in (
        from_scores("mine", {OTHER: pairs, TEXT: [0.0] * n}),
        from_scores("mine", {example: pairs}),
        from_scores("mine", {1: pairs, 0: [0.0] * n}, texts=[TEXT, OTHER]),
        from_scores("mine", [[0.0] * n, pairs], texts=[TEXT, OTHER]),
        from_scores("mine", [[("another", 1.0)], pairs]),
    ):
        assert attnprobe.attribute(model, OTHER, method).scores.tolist() == expected


def test_a_text_without_scores_is_named_with_the_nearest(model):
    with pytest.raises(InputError, match=r"no scores of “Not good at all.”.*did you mean 'Not good at all!'"):
        attnprobe.attribute(model, OTHER, from_scores("mine", {"Not good at all!": [1.0]}))
    with pytest.raises(InputError, match="none of the 2 lists of tokens fits"):
        attnprobe.attribute(model, OTHER, from_scores("mine", [[("a", 1.0)], [("b", 1.0)]]))


def test_a_pair_of_texts_is_found_by_both(model):
    example = model.example(TEXT, pair=OTHER)
    method = from_scores("mine", {(TEXT, OTHER): [1.0] * example.n_tokens})
    assert attnprobe.attribute(model, example, method).scores.tolist() == [1.0] * example.n_tokens
    with pytest.raises(InputError, match="no scores"):
        attnprobe.attribute(model, TEXT, method)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "my method", "scores": {TEXT: [1.0]}}, "a word such as"),
        ({"scores": {}}, "no scores"),
        ({"scores": {"warm": 1.0}}, "one number a text"),
        ({"scores": {TEXT: [1.0]}, "family": "atention"}, "did you mean 'attention'"),
        ({"scores": {TEXT: [1.0]}, "spread": "all"}, "'share' or 'copy'"),
        ({"scores": {0: [1.0]}}, "need texts"),
        ({"scores": {3: [1.0]}, "texts": [TEXT]}, "no text 3"),
        ({"scores": {None: [1.0]}}, "by text"),
        ({"scores": 3}, "got int"),
    ],
)
def test_what_cannot_be_a_method_is_refused_at_once(arguments, said):
    with pytest.raises(InputError, match=said):
        from_scores(**{"name": "mine", **arguments})


@pytest.fixture(scope="module")
def compared(model):
    texts = ["A warm film.", "Not good."]
    known = {text: attnprobe.attribute(model, text, "leave_one_out") for text in texts}
    pairs = {text: list(zip(a.example.pieces, a.scores.tolist(), strict=True)) for text, a in known.items()}
    same = from_scores("elsewhere", pairs)
    claims = from_scores("claimed_map", {text: a.scores.abs() for text, a in known.items()}, family="attention",
                         signed=False)  # fmt: skip
    return attnprobe.compare(
        model, texts, ["leave_one_out", same, claims], n_random=5, operators="mask", progress=False
    )


def test_a_given_method_is_judged_as_the_same_scores_of_our_own(compared):
    table = compared.faithfulness.set_index(["metric", "method"])["mean"]
    for metric in table.index.get_level_values("metric").unique():
        assert table[metric, "elsewhere"] == table[metric, "leave_one_out"]
    agreement = compared.agreement
    pair = agreement[(agreement.method_a == "leave_one_out") & (agreement.method_b == "elsewhere")]
    assert (pair[pair.metric == "kendall_tau"]["mean"] > 1 - 1e-12).all()
    assert compared.failures.empty


def test_what_claims_to_be_attention_gets_a_verdict(compared):
    assert set(compared.verdicts.method) == {"claimed_map"}
    assert len(compared.verdicts) == 2


def test_a_given_method_is_on_the_page(compared, tmp_path):
    page = compared.report(tmp_path / "page.html").read_text("utf-8")
    assert "Elsewhere" in page and "source given by the caller" in page


def test_other_scores_are_another_comparison_on_disk(model, tmp_path):
    options = {"n_random": 2, "operators": "mask", "progress": False, "verdicts": False, "oracle": False}
    n = model.example(OTHER).n_tokens
    for _ in range(2):
        scores = {OTHER: list(range(n))}
        attnprobe.compare(model, OTHER, [from_scores("mine", scores)], folder=tmp_path / "kept", **options)
    with pytest.raises(InputError, match="something else"):
        scores = {OTHER: [1.0] * n}
        attnprobe.compare(model, OTHER, [from_scores("mine", scores)], folder=tmp_path / "kept", **options)


def test_given_scores_cost_no_passes(model):
    method = from_scores("mine", {TEXT: [0.0] * model.example(TEXT).n_tokens})
    assert attnprobe.passes(model, TEXT, method) == (0, 0)


@pytest.mark.parametrize("name", ["raw_attention", "random_scores"])
def test_a_name_that_attnprobe_has_is_refused_at_once(name):
    with pytest.raises(InputError, match=f"a method named '{name}'; give from_scores another name"):
        from_scores(name, {TEXT: [1.0]})


def test_one_text_with_scores_is_called_one_text(model):
    with pytest.raises(InputError, match="it has scores of 1 text; "):
        attnprobe.attribute(model, OTHER, from_scores("mine", {TEXT: [1.0]}))


def test_help_says_what_a_name_is():
    assert "one word of letters, digits and _" in (from_scores.__doc__ or "")
