"""A profile is its scores, example by example, with means and intervals; what fails is told and the rest stays."""

import numpy as np
import pandas as pd
import pytest
import torch

from attnprobe import HeadProfile, profile
from attnprobe.errors import InputError
from attnprobe.heads import head_scores, probe_scores, score_heads
from attnprobe.intervals import over_texts
from attnprobe.intervention import silence_head
from attnprobe.models.evaluator import targets
from attnprobe.models.rows import Row
from tests import tiny

IDS = [[5, 6, 7, 8, 9], [9, 10, 5, 9], [3, 4, 5], [20, 21, 22, 23, 24, 25], [30, 31], [40, 41, 42], [50, 51, 50]]
PLACE = ["stack", "kind", "layer", "head"]


def ablation(model, example, target, stack):
    """How much the target falls without each head."""
    places = [(layer, head) for layer, n in enumerate(stack.n_heads) for head in range(n)]
    where = {"stack": stack.name, "kind": stack.kind}
    rows = [Row(example), *(Row(example, edits=(silence_head(*place, **where),)) for place in places)]
    y = targets(model, rows, target)
    found = torch.full((stack.n_layers, max(stack.n_heads)), torch.nan)
    for place, value in zip(places, y[0] - y[1:], strict=True):
        found[place] = value
    return found


def failing(capture, *, most: int = 3):
    """A score that does not do longer texts."""
    if capture.example.n_tokens > most:
        raise ValueError("too long")
    return capture.weights().double().amax((-2, -1))


@pytest.fixture(scope="module")
def bert():
    return tiny.loaded("bert")


@pytest.fixture(scope="module")
def found(bert):
    return profile(
        bert, IDS, ["spread", "previous_token", "same_token"], ablation, "induction", n_resamples=200, seed=4
    )


def test_values_are_those_of_the_scores_on_each_example(bert, found):
    for index, ids in enumerate(IDS):
        expected = score_heads(bert.capture(bert.example(ids)))
        rows = found.long(examples=True)
        rows = rows[rows.example_index == index].pivot(index=PLACE, columns="score", values="value").reset_index()
        for name in ("spread", "previous_token", "same_token"):
            assert rows[name].tolist() == pytest.approx(expected[name].tolist(), nan_ok=True)


def test_effects_are_those_of_the_function_on_the_target_that_is_named(bert, found):
    values = found.values["ablation"]
    example = bert.example(IDS[3])
    expected = ablation(bert, example, bert.resolve(example), bert.stacks[0])
    assert values[3] == pytest.approx(expected.flatten().numpy())
    named = profile(bert, IDS[:1], (), [ablation], target=2)
    assert named.targets == ("logit of LABEL_2",) and found.scores[-2:] == ("ablation", "induction")
    example = bert.example(IDS[0])
    expected = ablation(bert, example, bert.resolve(example, 2), bert.stacks[0])
    assert named.values["ablation"][0] == pytest.approx(expected.flatten().numpy())


def test_a_probe_is_one_number_a_head_with_the_seed_of_the_profile(bert, found):
    expected = probe_scores["induction"].function(bert, bert.stacks[0], seed=4).flatten().tolist()
    assert found.to_frame().induction.tolist() == pytest.approx(expected)
    rows = found.long()[found.long().score == "induction"]
    assert set(rows.n) == {1} and rows.low.isna().all()
    assert "induction" not in set(found.long(examples=True).score)


def test_means_and_intervals_are_over_the_examples_that_have_a_number(found):
    table = found.long().set_index(["score", *PLACE])
    for name in ("spread", "same_token", "ablation"):
        for at, place in enumerate(found.heads.itertuples(index=False)):
            expected = over_texts(found.values[name][:, at].tolist(), n_resamples=200, seed=4)
            row = table.loc[(name, *place)]
            assert row["mean"] == pytest.approx(expected.mean)
            assert (row.low, row.high) == pytest.approx((expected.low, expected.high), nan_ok=True)
            assert row.n == expected.n
    assert set(table.loc["same_token"].n) == {2}  # two texts say a token twice


def test_the_wide_table_has_a_row_a_head_and_a_column_a_score(found):
    frame = found.to_frame()
    assert list(frame.columns) == [*PLACE, "n", *found.scores]
    assert len(frame) == 12 and set(frame.n) == {len(IDS)}
    for name in ("spread", "same_token"):  # which two of the texts have
        assert frame[name].tolist() == pytest.approx(np.nanmean(found.values[name], axis=0).tolist())


def test_the_top_heads_are_those_with_the_highest_mean(found):
    frame = found.to_frame().sort_values("spread", ascending=False)
    top = found.top("spread", 3)
    assert top[PLACE].values.tolist() == frame[PLACE].head(3).values.tolist()
    assert top["mean"].tolist() == pytest.approx(frame.spread.head(3).tolist())
    assert found.top("spread", 1, lowest=True)["mean"].item() == pytest.approx(frame.spread.min())
    with pytest.raises(InputError, match="spread"):
        found.top("spreed")
    with pytest.raises(InputError, match="at least 1"):
        found.top("spread", 0)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "vit", "gpt_oss"])
def test_every_score_of_every_architecture_has_a_row_for_each_stack_and_head(name):
    model = tiny.loaded(name)
    made = profile(model, [tiny.example(model, name)], effects=ablation, probes={"induction": {"n_samples": 1}})
    # A picture has no words to repeat, and what was asked for is not left out in silence.
    assert [warning.split(":")[0] for warning in made.warnings] == (["induction"] if name == "vit" else [])
    assert set(made.scores) == {*head_scores, "ablation", "induction"}
    expected = [(s.name, s.kind, layer, h) for s in model.stacks for layer, n in enumerate(s.n_heads) for h in range(n)]
    assert list(made.heads.itertuples(index=False, name=None)) == expected
    assert made.to_frame().ablation.notna().all() and made.to_frame().spread.notna().all()


def test_a_stack_or_kind_is_asked_for_by_name():
    model = tiny.loaded("t5")
    example = tiny.example(model, "t5")
    made = profile(model, example, "spread", stack="decoder", kind="cross")
    assert made.heads[["stack", "kind"]].drop_duplicates().values.tolist() == [["decoder", "cross"]]
    assert len(profile(model, example, "spread", kind="self").heads) == 2 * 12
    with pytest.raises(InputError, match="decoder cross"):
        profile(model, example, stack="vision")


def layer(capture):
    """A score under the name of a column."""
    return capture.weights().amax((-2, -1))


class TestFailures:
    def test_an_example_that_cannot_be_read_is_named_and_the_others_are_there(self, bert):
        made = profile(bert, [IDS[0], [999], IDS[2]], "spread", ablation)
        assert len(made.warnings) == 1 and made.warnings[0].startswith("example 1: there is no token with the id 999")
        assert np.isnan(made.values["spread"]).any(1).tolist() == [False, True, False]
        assert made.n_examples == 3 and set(made.to_frame().n) == {2}

    def test_a_text_is_named_by_its_first_words(self, bert):
        made = profile(bert, [bert.example(IDS[0]), "a text that nobody can read without a tokenizer"], "spread")
        assert made.warnings[0].startswith("example 1 ('a text that nobody can read wi'): ")

    def test_a_score_that_fails_leaves_the_others(self, bert):
        made = profile(bert, [IDS[0], IDS[2]], ["spread", failing], failing_effect)
        assert made.warnings == (
            "example 0, failing: ValueError: too long",
            "example 0, failing_effect, encoder self-attention: RuntimeError: no",
            "example 1, failing_effect, encoder self-attention: RuntimeError: no",
        )
        assert np.isnan(made.values["failing"]).all(1).tolist() == [True, False]
        assert not np.isnan(made.values["spread"]).any()

    def test_what_a_score_warns_of_is_kept(self, bert):
        def loud(capture):
            """A score that warns."""
            import warnings

            warnings.warn("not sure", stacklevel=1)
            return capture.weights().double().amax((-2, -1))

        assert profile(bert, IDS[:2], loud).warnings == ("example 0, loud: not sure", "example 1, loud: not sure")

    def test_where_nothing_could_be_read_the_reason_is_raised(self, bert):
        with pytest.raises(InputError, match="no example could be profiled: example 0: there is no token"):
            profile(bert, [[999], [998]])

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ({"scores": "spreed"}, "spread"),
            ({"effects": ["zero_ablatoin"]}, "no head effect"),
            ({"probes": "inductoin"}, "induction"),
            ({"scores": ()}, "nothing is asked"),
            ({"scores": ["spread", "spread"]}, "two of the scores are named 'spread'"),
            ({"scores": {"sink": {"epsilon": "high"}}}, "epsilon"),
            ({"scores": {"sink": {"epsilonn": 0.1}}}, "epsilon"),
            ({"scores": [layer]}, "'layer' is a column of every profile"),
            ({"n_resamples": 0}, "n_resamples is a whole number of at least 1, got 0"),
            ({"seed": -1}, "seed is a whole number of at least 0, got -1"),
        ],
    )
    def test_a_wrong_name_or_option_is_refused_before_any_work(self, bert, arguments, said):
        with pytest.raises(InputError, match=said):
            profile(bert, [[999]], **arguments)

    def test_no_example_is_refused(self, bert):
        with pytest.raises(InputError, match="no example"):
            profile(bert, [])


def test_numbers_of_another_shape_are_a_failure_and_not_cut_to_fit(bert):
    def wide(capture):
        """As many heads as no layer has."""
        return torch.zeros(3, 9)

    made = profile(bert, IDS[:1], ["spread", wide])
    assert made.warnings == ("example 0, wide: 'wide' gives a number for each [layer head] (3, 4), got (3, 9)",)
    assert np.isnan(made.values["wide"]).all()


def test_entries_of_a_registry_are_asked_for_as_they_are(bert):
    by_name = profile(bert, IDS[:2], "spread").values["spread"]
    for asked in (head_scores["spread"], [head_scores["spread"]]):
        assert np.array_equal(profile(bert, IDS[:2], asked).values["spread"], by_name)


def failing_effect(model, example, target, stack):
    """An effect that fails."""
    raise RuntimeError("no")


def test_options_reach_the_score_and_are_told(bert):
    made = profile(bert, IDS[:2], {"sink": {"epsilon": 0.0}, "spread": {}})
    assert (made.values["sink"] == 1).all()
    assert made.facts["sink"].options == {"epsilon": 0.0} and made.facts["spread"].options == {}
    assert made.facts["spread"].label == "Spread" and made.facts["spread"].form == "score"


def test_a_profile_that_was_saved_is_loaded_as_it_was(found, tmp_path):
    again = HeadProfile.load(found.save(tmp_path / "profile"))
    pd.testing.assert_frame_equal(again.to_frame(), found.to_frame())
    pd.testing.assert_frame_equal(again.long(), found.long())
    pd.testing.assert_frame_equal(again.long(examples=True), found.long(examples=True))
    assert (again.facts, again.targets, again.warnings) == (found.facts, found.targets, found.warnings)
    for name, rows in found.values.items():
        assert np.array_equal(again.values[name], rows, equal_nan=True)


def test_what_is_no_profile_is_refused(tmp_path):
    with pytest.raises(InputError, match="whole profile"):
        HeadProfile.load(tmp_path)
    (tmp_path / "profile.json").write_text("{}")
    with pytest.raises(InputError, match="whole profile"):
        HeadProfile.load(tmp_path)


def test_the_front_door_stays_a_function_whatever_was_imported_before():
    import attnprobe
    import attnprobe.profiling

    assert callable(attnprobe.profile) and attnprobe.profile is attnprobe.profiling.profile
