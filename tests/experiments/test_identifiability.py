"""How unique attention is: the numbers of P13, and least squares by torch on other models."""

import pytest
import torch

from attnprobe.attention.seam import Keep
from attnprobe.errors import InputError
from attnprobe.experiments.identifiability import attention_identifiability, same_output
from attnprobe.models.planted import planted
from attnprobe.models.projections import projections
from attnprobe.target import Target
from tests import tiny

EFFECTIVE = (0.0, 0.6 / 14, 1.2 / 14, 1.8 / 14)  # 0.6 v / |v|², v = (0, 1, 2, 3)
KEEPING_SUM = (0.52, 0.34, 0.16, -0.02)


@pytest.mark.parametrize("name", ["P13A", "P13B", "P13C"])
def test_the_three_models_of_one_output_have_one_effective_row(name):
    made = planted(name)
    found = attention_identifiability(made.model, made.example)
    assert found.tokens.effective.tolist() == pytest.approx(EFFECTIVE, abs=1e-12)
    assert found.tokens.effective_keeping_sum.tolist() == pytest.approx(KEEPING_SUM, abs=1e-12)


def test_the_free_dimensions_of_four_keys_with_one_value_dimension_are_three_and_two():
    made = planted("P13A")
    found = attention_identifiability(made.model, made.example)
    numbers = {name: float(found.of(name).iloc[0]) for name in found.measures}
    assert (numbers["n_keys"], numbers["rank"], numbers["free"]) == (4, 1, 3)
    assert (numbers["rank_keeping_sum"], numbers["free_keeping_sum"]) == (2, 2)
    assert numbers["top_kept"] == 0  # the weight is on 0, whose effective weight is 0
    assert numbers["top_kept_keeping_sum"] == 1


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_the_effective_row_is_the_least_squares_projection_of_each_head(name):
    model = tiny.loaded(name)
    example = tiny.example(model, name)
    found = attention_identifiability(model, example, layers="last")
    keep = Keep.of("weights", "value", layers=2)
    (site,) = model.capture(example, keep=keep).sites
    W_O = projections(model)[2].need("W_O").detach().double()
    row = 0 if name == "bert" else example.n_tokens - 1
    for head in range(4):
        T = site.value[0, head].double() @ W_O[head]
        alpha = site.weights[0, head, row].double()
        expected = T @ torch.linalg.lstsq(T, alpha[:, None], driver="gelsd").solution[:, 0]
        given = found.tokens[found.tokens["head"] == head]
        assert given.weight.tolist() == pytest.approx(alpha.tolist(), abs=1e-6)
        assert given.effective.tolist() == pytest.approx(expected.tolist(), abs=1e-6)
        assert float(found.of("rank", head=head).iloc[0]) == torch.linalg.matrix_rank(T, rtol=1e-6)


def test_only_keys_that_a_causal_row_can_see_count():
    model = tiny.loaded("gpt2")
    found = attention_identifiability(model, tiny.IDS, Target(position=3), layers=0)
    assert set(found.of("n_keys", head=0)) == {4.0}
    assert sorted(set(found.tokens.key_index)) == [0, 1, 2, 3]


def test_an_encoder_decoder_is_asked_at_its_cross_attention():
    model = tiny.loaded("t5")
    found = attention_identifiability(model, tiny.example(model, "t5"))
    assert set(found.values.kind) == {"cross"}


def test_rows_of_the_same_output_have_it_and_sum_to_the_same():
    torch.manual_seed(1)
    weights, values = torch.rand(7, dtype=torch.float64).softmax(0), torch.randn(7, 3, dtype=torch.float64)
    corners = same_output(weights, values, n_draws=5, seed=0)
    assert len(corners) == 5
    for corner in corners:
        assert (corner @ values - weights @ values).abs().max() < 1e-12
        assert float(corner.sum()) == pytest.approx(1, abs=1e-12)
        assert float(corner.min()) >= 0
        assert int((corner > 1e-9).sum()) <= 4  # a corner: no more keys than constraints


def test_unique_weights_have_no_other_row_of_the_same_output():
    assert same_output(torch.tensor([0.2, 0.8]).double(), torch.eye(2).double(), n_draws=3, seed=0) == []


def test_a_layer_that_is_not_there_is_refused():
    made = planted("P13A")
    with pytest.raises(InputError, match="no layer 4"):
        attention_identifiability(made.model, made.example, layers=4)
