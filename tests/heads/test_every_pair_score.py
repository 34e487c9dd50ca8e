"""Every registered score of pairs of heads passes here; a new one is tested without a new file."""

import math

import pytest
import torch

from attnprobe.errors import InputError
from attnprobe.heads import head_pairs
from attnprobe.heads.pair_scores import HeadPairs, head_pairs_of
from tests import tiny

# Norms behind the sums, before them, heads that share keys and values, several stacks, patches, RoPE with a factor.
MODELS = ("bert", "gpt2", "llama", "t5", "vit", "gpt_oss")
UNITS = ("share", "number", "target")
SMALL = {"n_draws": 2, "seed": 1}


def options_of(entry):
    return {key: value for key, value in SMALL.items() if key in entry.options}


@pytest.mark.parametrize("entry", head_pairs.values(), ids=lambda entry: entry.name)
def test_every_entry_says_what_it_is(entry):
    assert entry.description.endswith(".") and entry.source and entry.facts["label"]
    low, high = entry.facts["low"], entry.facts["high"]
    assert low is None or high is None or low < high
    assert entry.facts["unit"] in UNITS


@pytest.mark.parametrize("name", list(head_pairs))
def test_every_pair_score_has_a_number_in_range_for_every_head_and_every_later_head(name):
    """NaN where the reader comes no later; NaN throughout a stack in which nothing leads from one to the other."""
    entry = head_pairs[name]
    low, high = (
        bound if bound is not None else sign * math.inf
        for bound, sign in ((entry.facts["low"], -1), (entry.facts["high"], 1))
    )
    for architecture in MODELS:
        model = tiny.loaded(architecture)
        for stack in model.stacks:
            found = entry.function(model, stack, **options_of(entry))
            assert found.shape == (stack.n_layers, max(stack.n_heads)) * 2
            assert found.device.type == "cpu" and found.dtype == torch.float64
            for layer in range(stack.n_layers):
                for later in range(stack.n_layers):
                    part = found[layer, :, later]
                    assert part.isnan().all() if later <= layer or found.isnan().all() else part.isfinite().all()
            known = found[~found.isnan()]
            assert bool(((known >= low - 1e-9) & (known <= high + 1e-9)).all())
            again = entry.function(model, stack, **options_of(entry))
            torch.testing.assert_close(again, found, equal_nan=True, rtol=0, atol=0)


def test_the_front_door_gives_the_numbers_with_what_they_were_made_with():
    model = tiny.loaded("llama")
    made = head_pairs_of(model, "k_composition", n_draws=2, seed=7)
    assert (made.name, made.stack, made.kind, made.seed) == ("k_composition", "decoder", "self", 7)
    assert made.options == {"offset": 0, "baseline": "random", "n_draws": 2} and made.seconds > 0
    expected = head_pairs["k_composition"].function(model, model.stacks[0], n_draws=2, seed=7)
    assert made.values.nan_to_num().equal(expected.nan_to_num())


def test_the_table_has_a_row_a_pair_the_highest_first():
    values = torch.full((2, 2, 2, 2), torch.nan, dtype=torch.float64)
    values[0, :, 1] = torch.tensor([[0.25, -1.0], [0.5, 0.0]])
    made = HeadPairs("q_composition", "made", "decoder", "self", values)
    frame = made.to_frame()
    assert set(frame.score) == {"q_composition"}
    assert frame.drop(columns="score").values.tolist() == [
        ["0.1", "1.0", 0.5], ["0.0", "1.0", 0.25], ["0.1", "1.1", 0.0], ["0.0", "1.1", -1.0]
    ]  # fmt: skip
    assert made.top(1).values.tolist() == [["q_composition", "0.1", "1.0", 0.5]]
    with pytest.raises(InputError, match="k is at least 1"):
        made.top(0)


def test_several_stacks_need_a_choice_and_unknown_names_are_refused():
    t5, gpt2 = tiny.loaded("t5"), tiny.loaded("gpt2")
    with pytest.raises(InputError, match=r"several stacks .*give stack="):
        head_pairs_of(t5, "q_composition")
    with pytest.raises(InputError, match="no self-attention stack 'encoder'"):
        head_pairs_of(gpt2, "q_composition", t5.stacks[0])
    with pytest.raises(InputError, match="did you mean 'q_composition'"):
        head_pairs_of(gpt2, "q_compositon")
    with pytest.raises(InputError, match="has no option 'draws'"):
        head_pairs_of(gpt2, "q_composition", draws=3)
