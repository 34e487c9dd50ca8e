"""What methods are compared on: tokens that may be taken away and that the answer can see."""

import pytest
import torch

from attnprobe import Target, attribute, compare
from tests import tiny


@pytest.fixture(scope="module")
def gpt2():
    return tiny.loaded("gpt2", "sdpa", scale=2.0)


def noise_before(position):
    def noise(model, example, target):
        scores = torch.randn(example.n_tokens, generator=torch.Generator().manual_seed(len(example.text)))
        scores[position + 1 :] = 0
        return scores

    return noise


def test_tokens_behind_the_explained_position_of_a_causal_model_are_no_units(gpt2):
    example = gpt2.example(tiny.IDS)
    found = attribute(gpt2, example, "raw_attention", Target(position=4))
    assert found.units.nonzero().flatten().tolist() == [0, 1, 2, 3, 4]
    assert sorted(found.ranking()) == [0, 1, 2, 3, 4]
    assert attribute(gpt2, example, "raw_attention").units.all()


def test_a_masked_model_may_see_tokens_on_both_sides():
    model = tiny.loaded("bert")
    assert model.resolve(model.example(tiny.IDS), Target(label=0)).last_seen is None


def test_noise_before_the_explained_position_neither_agrees_nor_holds_up(gpt2):
    """Tied zeros behind the position would make noise agree with attention (tau 0.8) and pass sufficiency."""
    draw = torch.Generator().manual_seed(1)
    examples = [gpt2.example(torch.randint(3, 60, (14,), generator=draw)) for _ in range(8)]
    found = compare(
        gpt2,
        examples,
        ["raw_attention", noise_before(4)],
        Target(position=4),
        n_random=20,
        n_resamples=100,
        progress=False,
    )
    tau = found.agreement.query("metric == 'kendall_tau' and direction == 'signed'")
    assert abs(tau["mean"].item()) < 0.5
    assert "yes" not in set(found.faithfulness.query("method == 'noise'").holds_up)


@pytest.mark.parametrize("method", ["leave_one_out", "occlusion", "shapley_sampling"])
def test_removal_gives_a_token_that_cannot_be_seen_zero_without_asking_for_it(gpt2, method):
    found = attribute(gpt2, gpt2.example(tiny.IDS), method, Target(position=4))
    assert bool((found.scores[5:] == 0).all()) and bool((found.scores[:5] != 0).any())
