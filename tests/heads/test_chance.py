"""Chance levels: the same numbers as a run whose attention was made even; said digits, units, and one column scheme."""

import math
from inspect import unwrap

import numpy as np
import pytest

from attnprobe import load, profile
from attnprobe.errors import InputError
from attnprobe.head_cluster_figure import cluster_map
from attnprobe.head_clusters import clusters
from attnprobe.head_figures import head_maps, top_heads
from attnprobe.head_page import pictures, top_table
from attnprobe.head_profile import HeadProfile, titled
from attnprobe.heads import head_scores
from attnprobe.heads.addresses import head_of
from attnprobe.heads.circuits import ov_top_tokens, qk_top_tokens
from attnprobe.heads.induction import induction
from attnprobe.heads.information_flow import information_flow
from attnprobe.heads.measuring import head_effect
from attnprobe.heads.pair_scores import head_pairs_of
from attnprobe.heads.pairs import pair
from attnprobe.heads.patching import patch_heads
from attnprobe.heads.spoken import said
from attnprobe.heads.whole import whole
from attnprobe.intervention import silence_head, uniform
from attnprobe.patching_figures import edge_matrix, flow_curves, patching_map
from attnprobe.pruning_figure import pruning_lines, sufficient_lines
from attnprobe.target import Target
from tests import tiny
from tests.heads.test_head_figures import made

TEXT = "a good film but not a great plot"


@pytest.fixture(scope="module")
def sentiment():
    return load("attnprobe/sentiment")


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit"])
def test_chance_is_what_the_scores_say_of_a_run_whose_attention_was_made_even(name):
    model = tiny.loaded(name)
    example = tiny.example(model, name)
    found = profile(model, [example], progress=False)
    for stack, kind in found.heads[["stack", "kind"]].drop_duplicates().itertuples(index=False):
        run = model.capture(example, edits=[uniform(stack=stack, kind=kind)])
        run = whole(run.only(stack, kind))
        mine = ((found.heads["stack"] == stack) & (found.heads["kind"] == kind)).to_numpy()
        for score, entry in head_scores.items():
            values = entry.function(run)
            values = values[~values.isnan()]
            expected = float(values.mean()) if len(values) else math.nan
            assert found.chance_of(score)[mine] == pytest.approx(expected, abs=1e-5, nan_ok=True), score


def test_chance_of_induction_is_that_of_even_attention_by_hand():
    model = tiny.loaded("gpt2")
    found = profile(model, [tiny.IDS], ["entropy"], probes={"induction": {"length": 5, "repeats": 3}}, progress=False)
    first = int(getattr(model.config, "bos_token_id", None) is not None)  # where the random tokens begin
    levels = []
    for query in range(5, 15):
        keys = [key for key in range(query + 1) if key % 5 == (query + 1) % 5 and key > 0 and key != query + 1]
        levels.append(len(keys) / (query + 1 + first))
    assert found.chance_of("induction") == pytest.approx(np.mean(levels), abs=1e-6)
    assert induction(model, model.stacks[0], length=5, repeats=3).shape == (3, 4)


def test_chance_and_units_are_in_every_table_and_in_what_is_saved(sentiment, tmp_path):
    found = profile(
        sentiment, [TEXT], ["entropy"], ["zero_ablation"], target=Target(scale="probability"), progress=False
    )
    long = found.long().set_index("score")
    assert set(long.loc["entropy"].unit) == {"nats"} and set(long.loc["zero_ablation"].unit) == {"probability"}
    n = sentiment.example(TEXT).n_tokens
    assert long.loc["entropy"].chance.tolist() == pytest.approx([math.log(n)] * 12)
    assert long.loc["zero_ablation"].chance.isna().all()
    assert HeadProfile.load(found.save(tmp_path / "p")).long().equals(found.long())
    assert found.top("entropy", 1).chance[0] == pytest.approx(math.log(n))
    assert titled(found, "zero_ablation") == "Zero ablation, probability (+: falls without it)"
    assert titled(found, "entropy") == "Entropy, nats"
    titles = [axes.get_title(loc="left") for axes in head_maps(found).axes]
    assert any(title.startswith("Entropy, nats\nchance 2.") for title in titles)
    assert any(" ".join(title.split()).startswith("Zero ablation, probability (+: falls") for title in titles)
    assert {row["score"]: row["chance"] for row in top_table(found, 2)}["zero_ablation"] == "–"


def test_a_score_that_warns_or_needs_more_than_weights_has_no_chance(sentiment):
    def of_logits(capture):
        return capture.tensor("scores")[0].new_zeros(3, 4) if capture.sites[0].scores is not None else 1 / 0

    found = profile(sentiment, [TEXT], ["entropy", of_logits], progress=False)
    assert np.isnan(found.chance_of("of_logits")).all() and not np.isnan(found.chance_of("entropy")).any()


def test_the_top_heads_of_effects_are_drawn_too(sentiment):
    found = profile(sentiment, [TEXT], ["entropy"], ["zero_ablation"], progress=False)
    drawn = pictures(found, [sentiment.capture(sentiment.example(TEXT))], k=2)
    picture = next(one for one in drawn if one.name == "top-zero_ablation")
    assert picture.caption == "Largest in: Zero ablation, logits (+: falls without it)"
    best = found.top("zero_ablation", 2)
    titles = [axes.get_title(loc="left") for axes in picture.figure.axes[:2]]
    assert [title.split()[0] for title in titles] == [
        f"{layer}.{head}" for layer, head in zip(best.layer, best["head"], strict=True)
    ]
    assert all(title.split()[1][0] in "+−" for title in titles)


def test_small_numbers_keep_their_digits_and_columns_their_decimals():
    assert said([0.000123, 0.0000456]) == ["0.000123", "0.000046"]
    assert said([1.0, 1e-12]) == ["1.00", "1e−12"] and said([1.0, 1e-12], small=False) == ["1.00", "0"]
    assert said([-0.5, 0.25], signs=True) == ["−0.500", "+0.250"] and said([123.4, 1.0]) == ["123", "1"]


# ---------------------------------------------------------------- names of kinds


def test_a_kind_is_not_named_by_a_score_that_is_near_zero_however_much_it_stands_out():
    tiny_values = [0.0002] * 4 + [0.004, 0.0041]  # twenty times as much as all, and nothing
    near = clusters(made({"probe": [tiny_values]}, units={"probe": (0, 1)}), n=2)
    assert set(near.names) == {"mixed (1)", "mixed (2)"}
    large = clusters(made({"probe": [[0.02] * 4 + [0.4, 0.41]]}, units={"probe": (0, 1)}), n=2)
    assert "high: PROBE" in large.names


# ---------------------------------------------------------------- what is no result is told so


@pytest.mark.parametrize("wrong", ["a text", None, 3])
def test_figures_say_what_they_take(wrong):
    for figure in (head_maps, cluster_map, clusters, patching_map, flow_curves, edge_matrix, pruning_lines,
                   sufficient_lines):  # fmt: skip
        with pytest.raises(InputError, match=r"expected what .* gives, got"):
            unwrap(figure)(wrong)  # without the checks of types that tests run under


def test_the_strip_says_what_captures_are(sentiment):
    found = profile(sentiment, [TEXT], ["entropy"], progress=False)
    for wrong in (TEXT, sentiment.example(TEXT), [TEXT], [sentiment.example(TEXT)]):
        with pytest.raises(InputError, match=r"expected what model.capture\(example\) gives"):
            unwrap(top_heads)(found, "entropy", wrong)
    with pytest.raises(InputError, match="profile"):
        unwrap(top_heads)("entropy", found, [])


@pytest.mark.parametrize("address", ["2.1", "L2H1", "encoder.self.2.1", "self.2.1", "encoder.2.1", " 2.1 "])
def test_a_head_is_silenced_by_its_address(sentiment, address):
    example = sentiment.example(TEXT)
    silenced = sentiment.capture(example, edits=[silence_head(address)]).logits
    assert silenced.equal(sentiment.capture(example, edits=[silence_head(2, 1)]).logits)
    assert not silenced.equal(sentiment.capture(example).logits)


def test_what_is_no_address_says_how_one_is_written():
    for wrong in (("two.one",), ("2.1", 1), (2,)):
        with pytest.raises(InputError, match=r"5\.1|silence_head\('2\.1'\)"):
            silence_head(*wrong)


@pytest.mark.parametrize("written", ["2,1", "(2, 1)", "( 2,1 )", "encoder.self.2,1"])
def test_a_pair_may_be_typed(sentiment, written):
    assert str(head_of(sentiment, written)) == "encoder.self.2.1"


def test_sources_of_flow_may_be_words_that_stand_there_once(sentiment):
    by_word = information_flow(sentiment, TEXT, sources=["good", "plot"])
    by_number = information_flow(sentiment, TEXT, sources=[2, 8])
    assert dict(by_word.sources) == {"2 good": (2,), "8 plot": (8,)} == dict(by_number.sources)
    assert by_word.targets.equal(by_number.targets)
    assert dict(information_flow(sentiment, TEXT, sources={"both": ["good", 8]}).sources) == {"both": (2, 8)}
    split = information_flow(sentiment, "a disgusting film", sources=["disgusting"])
    assert dict(split.sources) == {"2 disgust ing": (2, 3)}
    with pytest.raises(InputError, match=r"'a' stands 2 times in the text; say which .*: 1, 6"):
        information_flow(sentiment, TEXT, sources=["a"])
    with pytest.raises(InputError, match="no word 'goood'; did you mean 'good'"):
        information_flow(sentiment, TEXT, sources=["goood"])


def test_a_pair_of_other_lengths_names_the_pieces(sentiment):
    with pytest.raises(InputError, match=r"has 1 \('good'\).* has 3 \('terribly', 'disgust', 'ing'\)"):
        pair(sentiment, "a good film", "a terribly disgusting film")


def test_a_classifier_is_told_of_the_input_embeddings(sentiment):
    with pytest.raises(InputError, match="words='embedding'"):
        ov_top_tokens(sentiment, "2.1", "good")
    assert len(ov_top_tokens(sentiment, "2.1", "good", 3, words="embedding")) == 3


def test_inputs_of_an_effect_may_come_from_anything_that_gives_them(sentiment):
    texts = ["a dull film", "a warm film", "not good"]
    expected = head_effect(sentiment, TEXT, "resample_ablation", data=texts).values
    assert head_effect(sentiment, TEXT, "resample_ablation", data=(t for t in texts)).values.equal(expected)
    effects = {"resample_ablation": {"data": (t for t in texts)}}
    found = profile(sentiment, [TEXT, TEXT], ["entropy"], effects, progress=False)  # asked twice
    assert not found.warnings and not np.isnan(found.values["resample_ablation"]).any()


def test_numbers_have_one_name_in_all_tables(sentiment):
    """score names what was measured, value is its number, share that of the way, answer the target of a run."""
    model = tiny.loaded("gpt2")
    effect = head_effect(sentiment, TEXT, "zero_ablation").to_frame()
    assert effect.columns.tolist() == ["stack", "kind", "layer", "head", "score", "value", "unit"]
    assert set(effect.unit) == {"logits"} and set(effect.score) == {"zero_ablation"}
    pairs = head_pairs_of(model, "v_composition").to_frame()
    assert pairs.columns.tolist() == ["score", "writer", "reader", "value"]
    patched = patch_heads(sentiment, pair(sentiment, "a good film", "a bad film")).to_frame()
    assert patched.columns.tolist() == ["stack", "kind", "layer", "head", "answer", "share"]
    assert qk_top_tokens(model, "0.0", 4, 5).columns.tolist() == ["rank", "token", "id", "value"]
    by_example = profile(sentiment, [TEXT], ["entropy"], progress=False).long(examples=True)
    assert {"score", "value", "unit"} <= set(by_example.columns)
