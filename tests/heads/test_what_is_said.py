"""What a profile, an effect or a picture says of itself: reasons, signs, numbers of texts, no raw numbers."""

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from attnprobe import head_effect, information_flow, load, pair, patch_heads, profile
from attnprobe.card import head_card
from attnprobe.errors import InputError
from attnprobe.head_clusters import clusters
from attnprobe.head_figures import head_maps, top_heads
from attnprobe.head_page import top_table, write_desk
from attnprobe.head_profile import HeadProfile
from attnprobe.heads import head_effects
from attnprobe.heads.edges import edge_attribution
from attnprobe.patching_figures import patching_map
from attnprobe.pruned_saving import save_pruned
from attnprobe.pruning import head_order, pruning_curve
from attnprobe.pruning_figure import pruning_lines

TEXTS = ["Not good.", "A fine film. It moved me.", "A warm, clever film.", "I hated it.", "Dull.", "Good, good fun."]


@pytest.fixture(scope="module")
def sentiment():
    return load("attnprobe/sentiment")


@pytest.fixture(scope="module")
def found(sentiment):
    return profile(sentiment, TEXTS, None, ["zero_ablation"], progress=False)


@pytest.fixture(scope="module")
def ids_only():
    torch.manual_seed(0)
    return load(GPT2LMHeadModel(GPT2Config(vocab_size=500, n_layer=2, n_head=2, n_embd=16, n_positions=128)).eval())


def test_a_score_that_was_asked_for_and_has_no_number_is_a_warning_with_the_reason(sentiment):
    asked = profile(sentiment, TEXTS[:1], ["coverage"], progress=False)
    assert asked.top("coverage").empty and "cross-attention" in asked.reason("coverage")
    assert asked.warnings == (f"coverage: {asked.reason('coverage')}",)
    (row,) = top_table(asked, 3)
    assert row["warned"] and "cross-attention" in row["reason"] and "coverage" in repr(asked)


def test_scores_that_nobody_named_have_a_reason_but_no_warning(found):
    assert found.reason("coverage") and not found.reason("entropy") and not found.warnings
    rows = {row["score"]: row for row in top_table(found, 2)}
    assert rows["coverage"]["reason"] and not rows["coverage"]["warned"]
    with pytest.raises(InputError, match="did you mean 'entropy'"):
        found.reason("entropi")


def test_ids_without_a_tokenizer_are_the_reason_where_words_are_needed(ids_only):
    asked = profile(ids_only, [[1, 2, 3, 4]], ["punctuation"], progress=False)
    assert "without a tokenizer" in asked.reason("punctuation") and "without a tokenizer" in asked.warnings[0]


def test_a_begin_token_outside_of_the_vocabulary_is_left_out_and_said(ids_only):
    asked = profile(ids_only, [[1, 2, 3]], ["entropy"], (), ["induction"], progress=False)
    assert np.isfinite(asked.values["induction"]).all()
    assert len(asked.warnings) == 1 and all(word in asked.warnings[0] for word in ("50256", "bos_token_id", "500 ids"))


def test_resampling_takes_the_other_examples_where_there_are_enough(sentiment):
    resampled = profile(sentiment, TEXTS, ["entropy"], ["resample_ablation"], progress=False)
    first = head_effect(sentiment, TEXTS[0], "resample_ablation", data=TEXTS[1:]).values
    assert np.allclose(resampled.values["resample_ablation"][0], first.flatten())
    told = resampled.facts["resample_ablation"]
    assert "5 other" in told.label and "5 other" in told.options["data"] and not resampled.warnings
    few = profile(sentiment, TEXTS[:4], ["entropy"], ["resample_ablation"], progress=False)
    assert len(few.warnings) == 1 and "3 other examples are too few" in few.warnings[0]


def test_effects_of_two_inputs_say_once_what_a_profile_lacks(sentiment):
    asked = profile(sentiment, TEXTS, ["entropy"], ["indirect_effect"], progress=False)
    assert len(asked.warnings) == 1 and "pair(model, clean, corrupt)" in asked.reason("indirect_effect")
    with pytest.raises(InputError, match="corrupt input"):
        profile(sentiment, TEXTS, (), ["indirect_effect"], progress=False)


def test_every_effect_says_what_its_sign_means(found):
    assert all(head_effects[name].facts["sign"] for name in head_effects)
    (row,) = [row for row in top_table(found, 2) if row["score"] == "zero_ablation"]
    assert "+: falls without it" in row["label"]


def test_a_gate_with_its_sign_says_what_it_means(sentiment):
    effects = {"gate_gradient": {"signed": True}}
    signed = profile(sentiment, TEXTS[:1], (), effects, progress=False).facts["gate_gradient"]
    assert signed.sign == "+: rises with it" == head_effect(sentiment, TEXTS[0], "gate_gradient", signed=True).sign
    assert signed.low is None


def test_scores_of_fewer_texts_than_all_say_of_how_many(found):
    rows = {row["score"]: row for row in top_table(found, 2)}
    assert {head["n"] for head in rows["same_sentence"]["heads"]} == {"n=1"}
    assert {head["n"] for head in rows["entropy"]["heads"]} == {""}
    titles = [axes.get_title(loc="left") for axes in head_maps(found, ["same_sentence", "entropy"]).axes]
    assert ["of 6 examples" in title for title in titles if title] == [True, False]


def test_the_page_lists_the_texts_and_says_which_maps_are_drawn(found, sentiment, tmp_path):
    captures = [sentiment.capture(sentiment.example(text)) for text in TEXTS[:2]]
    page = write_desk(found, tmp_path / "desk", captures=captures, k=2)[-1].read_text(encoding="utf-8")
    assert all(text in page for text in TEXTS) and "Maps of 2 of 6 texts" in page and "n=1" in page
    assert HeadProfile.load(tmp_path / "desk").texts == tuple(TEXTS)
    assert "maps of 2 of 6 texts" in top_heads(found, "entropy", captures, k=2).get_suptitle()


def test_a_picture_of_a_score_without_a_number_gives_the_reason(found, sentiment):
    with pytest.raises(InputError, match=r"coverage.*cross-attention"):
        top_heads(found, "coverage", sentiment.capture(sentiment.example(TEXTS[0])))


def test_without_effects_no_unit_and_no_target_is_claimed(sentiment):
    assert profile(sentiment, TEXTS[:1], ["entropy"], progress=False).target_unit == ""


def test_small_numbers_share_a_power_of_ten_and_close_ones_a_beginning():
    heads = pd.DataFrame(
        [("encoder", "self", 0, head) for head in range(3)], columns=["stack", "kind", "layer", "head"]
    )
    told = profile(load("attnprobe/sentiment"), TEXTS[:1], ["entropy", "spread"], progress=False).facts
    values = {"entropy": np.array([[0.00012, 0.00042, 0.0]]), "spread": np.array([[0.313, 0.314, 0.315]])}
    axes = head_maps(HeadProfile("m", heads, values, told, ("",)), ["entropy", "spread"]).axes
    small, close = axes[0], axes[2] if axes[1].get_title(loc="left") == "" else axes[1]
    assert "10⁻⁴" in small.get_title(loc="left") and [text.get_text() for text in small.texts] == ["1.20", "4.20", "0"]
    assert "scale from 0.313" in close.get_title(loc="left")
    assert close.collections[0].norm.vmin == pytest.approx(0.313)


def test_reprs_are_a_few_lines_without_raw_numbers(found, sentiment):
    two = pair(sentiment, "A good film.", "A bad film.")
    kinds = clusters(found)
    made = [found, kinds, head_effect(sentiment, two, "indirect_effect"), patch_heads(sentiment, two)]
    made += [edge_attribution(sentiment, two), information_flow(sentiment, TEXTS[0])]
    for one in made:
        assert "tensor(" not in repr(one) and "array(" not in repr(one) and repr(one).count("\n") < 8
    assert "12 heads" in repr(found) and "entropy" in repr(found)
    assert all(f"{row.layer}.{row.head}" in repr(kinds) for row in kinds.to_frame().itertuples())


def test_heads_are_grouped_by_what_they_do_and_not_by_how_much_they_matter(found):
    assert "zero_ablation" not in clusters(found).scores
    assert clusters(found, scores=["zero_ablation"]).scores == ("zero_ablation",)


def test_a_pair_is_its_clean_input_with_the_corrupt_one(sentiment):
    two = pair(sentiment, "A good film.", "A bad film.")
    direct = head_effect(sentiment, two.clean, "indirect_effect", two.target, corrupt=two.corrupt)
    assert head_effect(sentiment, two, "indirect_effect").values.equal(direct.values)
    with pytest.raises(InputError, match="looks at one input, got a pair"):
        head_effect(sentiment, two, "zero_ablation")
    with pytest.raises(InputError, match="leave out corrupt"):
        head_effect(sentiment, two, "indirect_effect", corrupt="A bad film.")


def test_an_order_of_several_scores_says_how_to_choose_one(found, sentiment):
    with pytest.raises(InputError, match=r"head_order\(model, heads, 'zero_ablation'\)"):
        pruning_curve(sentiment, TEXTS, {"zero_ablation": found}, progress=False)


def test_a_curve_says_what_counts_as_right_and_the_legend_what_is_dotted(found, sentiment):
    orders = {"by ablation": head_order(sentiment, found, "zero_ablation")}
    own = pruning_curve(sentiment, TEXTS, orders, steps=[6], progress=False)
    axes = pruning_lines(own, level=0.5)
    assert own.right == "own answer" and "own answers" in axes.get_ylabel()
    assert "by construction" in axes.get_title(loc="left")
    assert "guessing, 0.5" in [text.get_text() for text in axes.get_legend().get_texts()]
    labelled = pruning_curve(sentiment, TEXTS, orders, ["positive"] * 6, steps=[6], progress=False)
    assert labelled.right == "label" and pruning_lines(labelled).get_ylabel() == "accuracy"


def test_pruning_nothing_is_refused(sentiment, tmp_path):
    with pytest.raises(InputError, match="heads is empty"):
        save_pruned(sentiment, [], tmp_path / "pruned")


def test_cells_near_zero_say_so_and_rows_name_the_head_that_moved_most(sentiment):
    patched = patch_heads(sentiment, pair(sentiment, "A good film.", "A bad film."), positions="each")
    axes = patching_map(patched).axes[0]
    assert "" not in [text.get_text() for text in axes.texts] and "0" in [text.get_text() for text in axes.texts]
    best = patched.values.abs().amax(2).argmax(1)
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"{at}.{head}" for at, head in enumerate(best)]
    drawn = axes.collections[0].get_array().reshape(len(best), -1)
    assert np.allclose(drawn, patched.values[range(len(best)), best])


def test_a_card_names_the_call_in_python_and_not_an_argument_it_lacks(sentiment):
    notes = head_card(sentiment, "2.1", TEXTS[0], scores=["entropy"], effects=()).notes
    assert any("in Python ov_top_tokens" in note for note in notes)
