"""What a head's weight lies on: kinds of tokens, segments, sources, patches; weights made by hand."""

import math

import pytest
import torch

from attnprobe.heads import head_scores, score_heads
from attnprobe.heads.segments import sentences, texts
from attnprobe.heads.tokens import token_counts
from attnprobe.models import load
from attnprobe.models.bundled import bundled_folder
from tests import tiny
from tests.heads.made import capture_of, one_hot, random_weights

TEXT = ("[CLS]", "the", "cat", ",", "the", "dog", ".", "a", "cat", "!", "[SEP]")
N = len(TEXT)


def score(name, capture, **options):
    return head_scores[name].function(capture, **options)


@pytest.fixture
def capture():
    return capture_of(random_weights(2, 2, N, N), TEXT)


def by_hand(capture, pairs):
    """Mean over the queries that have a pair of their weight on it; pairs: (query, key) of TEXT."""
    queries = sorted({i for i, _ in pairs})
    maps = torch.stack(capture.maps())
    return sum(sum(maps[:, :, i, j] for k, j in pairs if k == i) for i in queries) / len(queries)


KINDS = {"special_mass": (0, 10), "punctuation": (3, 6, 9), "sentence_boundary": (6, 9)}


@pytest.mark.parametrize("name", list(KINDS))
def test_mass_on_a_kind_of_token_is_the_weight_in_its_columns(name, capture):
    expected = by_hand(capture, [(i, j) for i in range(N) for j in KINDS[name]])
    torch.testing.assert_close(score(name, capture), expected)


def test_mass_on_the_same_token_is_weight_on_its_other_places(capture):
    same = [(1, 4), (4, 1), (2, 8), (8, 2)]
    torch.testing.assert_close(score("same_token", capture), by_hand(capture, same))
    torch.testing.assert_close(score("duplicate_token", capture), by_hand(capture, [(4, 1), (8, 2)]))


def test_special_tokens_that_come_twice_are_no_duplicates():
    capture = capture_of(random_weights(1, 1, 3, 3), ("[SEP]", "a", "[SEP]"))
    assert score("same_token", capture).isnan().all()


@pytest.mark.parametrize("name", ["special_mass", "punctuation", "sentence_boundary", "same_token", "duplicate_token"])
def test_where_there_is_no_such_token_there_is_no_number(name):
    assert score(name, capture_of(random_weights(1, 1, 3, 3), ("a", "b", "c"))).isnan().all()


class TestRareWords:
    def test_the_rarest_by_count_are_looked_at_or_not(self):
        rare, common = one_hot([0, 2, 2, 2, 5, 5], 6), one_hot([0, 1, 1, 1, 1, 1], 6)
        tokens = ("[CLS]", "the", "okapi", "is", "a", "quokka")
        capture = capture_of(torch.stack([rare, common])[None], tokens)
        counts = {1: 900, 2: 1, 3: 500, 4: 700}  # quokka (5) never
        # The first query sees [CLS] alone, which is left out: 5 queries are left.
        assert score("rare_words", capture, counts=counts).tolist() == [[1.0, 0.0]]
        assert score("rare_words", capture, counts=counts, n=1).tolist() == [[2 / 5, 0.0]]

    def test_without_counts_high_ids_are_rare(self):
        capture = capture_of(one_hot([1, 1, 1, 0], 4)[None, None], ids=[7, 50, 9, 8])
        assert score("rare_words", capture, n=1).item() == 3 / 4
        assert score("rare_words", capture, n=2).item() == 3 / 4
        assert score("rare_words", capture, n=3).item() == 3 / 4
        assert score("rare_words", capture, n=4).isnan().all()  # every token would be rare

    def test_counts_are_those_of_the_texts(self):
        model = tiny.loaded("bert")
        assert token_counts(model, [[5, 6, 5], [5, 9]]) == {5: 3, 6: 1, 9: 1}


class TestSegments:
    def test_sentences_end_with_their_marks_and_specials_are_in_none(self):
        example = capture_of(random_weights(1, 1, N, N), TEXT).example
        assert sentences(example).tolist() == [-1, 0, 0, 0, 0, 0, 0, 1, 1, 1, -1]

    def test_closing_marks_belong_to_the_sentence_before(self):
        tokens = ("he", "said", ".", '"', "she", "left", "?", "!", "no")
        example = capture_of(random_weights(1, 1, 9, 9), tokens).example
        assert sentences(example).tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 2]

    def test_weight_that_stays_is_a_share_of_the_weight_on_words(self):
        tokens = ("[CLS]", "a", ".", "b", "[SEP]")
        weights = torch.tensor(
            [
                [0.2, 0.2, 0.2, 0.2, 0.2],
                [0.5, 0.2, 0.2, 0.1, 0.0],
                [0.0, 0.0, 1.0, 0.0, 0.0],
                [0.6, 0.1, 0.1, 0.2, 0.0],
                [0.2, 0.2, 0.2, 0.2, 0.2],
            ]
        )
        assert score("same_sentence", capture_of(weights[None, None], tokens)).item() == pytest.approx(
            (0.4 / 0.5 + 1.0 + 0.2 / 0.4) / 3
        )

    def test_a_pair_has_two_texts_and_a_block_diagonal_head_stays_in_its_own(self):
        pair = (False, False, False, True, True)
        tokens = ("[CLS]", "a", "b", "c", "[SEP]")
        stays, leaves = one_hot([0, 2, 1, 3, 4], 5), one_hot([0, 3, 3, 1, 4], 5)
        capture = capture_of(torch.stack([stays, leaves])[None], tokens, pair=pair)
        assert texts(capture.example).tolist() == [-1, 0, 0, 1, -1]
        assert score("same_text", capture).tolist() == [[1.0, 0.0]]

    @pytest.mark.parametrize("name", ["same_text", "same_sentence"])
    def test_one_segment_alone_says_nothing(self, name):
        assert score(name, capture_of(random_weights(1, 1, 3, 3), ("a", "b", "."))).isnan().all()

    def test_the_pair_of_a_tokenizer_is_told_apart(self):
        model = load(str(bundled_folder()))
        example = model.example("a good film", "it was long")
        assert [texts(example).tolist().count(number) for number in (0, 1)] == [3, 3]


class TestAlignment:
    def cross(self, *heads):
        return capture_of(torch.stack(heads)[None], kind="cross", stack="decoder", answer=True)

    def test_going_forward_staying_and_going_back(self):
        forward, stays, back = one_hot([0, 1, 3], 4), one_hot([2, 2, 2], 4), one_hot([3, 1, 0], 4)
        capture = self.cross(forward, stays, back)
        assert score("monotonicity", capture).tolist() == [[1.0, 1.0, 0.0]]
        assert score("coverage", capture).tolist() == [[3 / 4, 1 / 4, 3 / 4]]

    def test_even_weights_have_no_order_and_cover_all(self):
        capture = self.cross(torch.full((3, 4), 0.25))
        assert score("monotonicity", capture).item() == pytest.approx(10 / 16)  # both keys at random: b >= a
        assert score("coverage", capture).item() == pytest.approx(1.0)

    def test_self_attention_aligns_nothing(self):
        capture = capture_of(random_weights(1, 1, 4, 4))
        assert score("monotonicity", capture).isnan().all() and score("coverage", capture).isnan().all()


class TestPatches:
    TOKENS = ("[CLS]", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2")

    def test_distance_is_measured_on_the_grid_in_patches(self):
        near, far = one_hot([0, 1, 2, 3, 4, 5, 6], 7), one_hot([0, 6, 6, 4, 3, 1, 1], 7)
        capture = capture_of(torch.stack([near, far])[None], self.TOKENS, axis="patches", stack="vision")
        root2, root5 = math.sqrt(2), math.sqrt(5)
        expected = (root5 + root2 + root5 + root5 + root2 + root5) / 6
        assert score("patch_distance", capture)[0].tolist() == pytest.approx([0.0, expected])
        assert score("near_patches", capture)[0].tolist() == pytest.approx([1.0, 2 / 6])

    def test_weight_on_special_tokens_is_no_distance(self):
        looks = one_hot([0, 2, 1, 2, 5, 4, 5], 7)
        mixed = 0.3 * looks + 0.7 * one_hot([0] * 7, 7)
        capture = capture_of(torch.stack([looks, mixed])[None], self.TOKENS, axis="patches", stack="vision")
        found = score("patch_distance", capture)[0]
        assert found[0].item() == pytest.approx(found[1].item()) == pytest.approx(1.0)

    def test_a_text_has_no_patches_and_a_picture_no_words(self, capture):
        assert score("patch_distance", capture).isnan().all()
        picture = tiny.loaded("vit")
        table = score_heads(picture.capture(tiny.example(picture, "vit")))
        assert table.patch_distance.notna().all() and table.special_mass.notna().all()
        for name in ("punctuation", "same_token", "rare_words", "same_sentence"):
            assert table[name].isna().all()


def test_the_answers_own_attention_is_not_scored_by_the_tokens_of_the_source():
    """The lengths may be equal by chance: 12 steps of an answer to 12 tokens."""
    model = tiny.loaded("t5")
    table = score_heads(model.capture(model.example([*tiny.IDS[:-1], 5], answer=tiny.IDS)))
    of_source = ["same_token", "rare_words"]
    assert table[(table["stack"] == "decoder") & (table["kind"] == "self")][of_source].isna().all().all()
    assert table[(table["stack"] == "encoder") & (table["kind"] == "self")][of_source].notna().all().all()
    assert (
        table[table["kind"] == "cross"].rare_words.notna().all()
        and table[table["kind"] == "cross"].same_token.isna().all()
    )
