"""Counterfactual attention: where it must exist, where it cannot, and that what is given keeps its promise."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.special import rel_entr

from attnprobe.attention.seam import Keep
from attnprobe.errors import InputError
from attnprobe.experiments.asking import asked
from attnprobe.experiments.counterfactual import counterfactual_attention
from attnprobe.experiments.searching import Search, Searched, jensen_shannon
from attnprobe.intervention import replace_weights
from attnprobe.models.evaluator import differentiable
from attnprobe.models.planted import planted
from attnprobe.models.rows import Row
from attnprobe.target import Target
from tests import tiny

SHORT = Search(n_starts=2, n_steps=12, rate=0.2)


def test_jensen_shannon_is_that_of_scipy():
    generator = torch.Generator().manual_seed(0)
    p, q = torch.rand(2, 5, 9, generator=generator, dtype=torch.float64).softmax(-1)
    expected = [jensenshannon(a, b) ** 2 for a, b in zip(p.numpy(), q.numpy(), strict=True)]
    assert jensen_shannon(p, q).tolist() == pytest.approx(expected, abs=1e-12)


def test_a_twin_has_other_attention_with_the_same_output():
    a, b = planted("P3A"), planted("P3B")
    other = b.model.capture(b.example).weights()[0]
    edited = a.model.capture(a.example, edits=[replace_weights(0, other)])
    assert float(edited.logits) == pytest.approx(2.7, abs=1e-12)


def test_counterfactual_attention_of_a_twin_exists_with_a_total_variation_of_0():
    made = planted("P3A")
    found = counterfactual_attention(made.model, made.example, eps=0.0, how=Search(n_starts=0))
    # Head by head, a and b may trade all their weight: (.1, 0, .9) and (.1, .9, 0).
    expected = (
        jensenshannon((0.1, 0.8, 0.1), (0.1, 0, 0.9)) ** 2 + jensenshannon((0.1, 0.25, 0.65), (0.1, 0.9, 0)) ** 2
    ) / 2
    assert found.of("total_variation").max() < 1e-12
    assert found.of("jsd").iloc[0] == pytest.approx(expected, abs=1e-6)
    assert found.found[0].how == "same output"


def test_gradients_alone_find_nearly_the_farthest_row_of_a_grid():
    made, eps = planted("P13A"), 0.05
    values, own = np.array([0.0, 1, 2, 3]), np.array([0.7, 0.1, 0.1, 0.1])
    steps = np.linspace(0, 1, 41)
    grid = [(a, b, c, 1 - a - b - c) for a, b, c in itertools.product(steps, repeat=3) if a + b + c <= 1 + 1e-9]
    rows = np.clip(np.array(grid), 0, 1)
    within = rows[abs(rows @ values - own @ values) <= eps]
    largest = max(jensenshannon(row, own) ** 2 for row in within)
    how = Search(n_starts=5, n_steps=300, rate=0.05)
    found = counterfactual_attention(made.model, made.example, eps=eps, how=how, same_output_too=False)
    assert found.found[0].how == "gradient"
    assert found.of("total_variation").iloc[0] <= eps + 1e-12
    assert found.of("jsd").iloc[0] > 0.9 * largest


def test_where_no_other_row_gives_the_output_the_models_own_is_given_back():
    # Two visible keys with other values: the weights follow from the output.
    made = planted("P12")
    found = counterfactual_attention(made.model, made.example, Target(position=1), eps=0.0, how=Search(n_starts=0))
    assert found.found[0].weights[0].shape[-1] == made.example.n_tokens
    assert found.of("total_variation").max() <= 1e-12


@pytest.mark.parametrize(("name", "rows"), [("bert", "all"), ("gpt2", "all"), ("t5", "read"), ("vit", "read")])
def test_the_output_is_within_eps_and_the_edits_say_what_was_found(name, rows):
    model = tiny.loaded(name)
    example = tiny.example(model, name)
    found = counterfactual_attention(model, example, eps=0.02, how=SHORT, rows=rows, seed=3)
    (one,) = found.found
    assert one.total_variation <= 0.02 + 1e-6
    before, after = model.capture(example), model.capture(example, edits=one.edits)
    p, q = (c.logits[0].double().softmax(-1).reshape(-1, c.logits.shape[-1]) for c in (before, after))
    if name == "gpt2":
        p, q = p[-1:], q[-1:]
    assert float((p - q).abs().sum(-1).max() / 2) == pytest.approx(one.total_variation, abs=1e-5)
    assert one.jsd == pytest.approx(_jsd(before, after, one), abs=1e-5)
    assert float(one.weights[0].min()) >= 0


def _jsd(before, after, one):
    """Mean over heads and rows, from what two captures saw, by scipy."""
    kind = before.sites[-1].place.kind  # of an encoder-decoder the cross-attention is last
    old, new = (c.weights(kind=kind)[one.layers[0]][:, list(one.rows[0])].double() for c in (before, after))
    pairs = zip(old.flatten(0, 1).numpy(), new.flatten(0, 1).numpy(), strict=True)
    distances = [(rel_entr(a, (a + b) / 2) + rel_entr(b, (a + b) / 2)).sum() / 2 for a, b in pairs]
    return float(np.mean(distances))


def test_what_was_found_so_far_never_falls_and_starts_at_the_models_own():
    made = planted("P13A")
    (one,) = counterfactual_attention(made.model, made.example, eps=0.05, how=SHORT, same_output_too=False).found
    assert one.history[0] == 0
    assert len(one.history) == 13
    assert all(later >= earlier for earlier, later in itertools.pairwise(one.history))
    assert one.jsd >= one.history[-1] - 1e-9


def test_a_start_that_moves_the_output_beyond_eps_is_never_given():
    made, untrained = planted("P13A"), Search(n_starts=4, n_steps=1)
    for seed in range(5):
        options = {"eps": 0.001, "how": untrained, "same_output_too": False, "seed": seed}
        (one,) = counterfactual_attention(made.model, made.example, **options).found
        y = float(made.model.capture(made.example, edits=one.edits).logits)
        assert abs(y - 0.6) <= 0.001 + 1e-9


def test_a_seed_gives_the_same_again():
    model = tiny.loaded("bert")
    given = [counterfactual_attention(model, tiny.IDS, how=SHORT, seed=5).of("jsd").iloc[0] for _ in range(2)]
    assert given[0] == given[1]


def test_all_layers_may_move_at_once():
    model = tiny.loaded("gpt2")
    found = counterfactual_attention(model, tiny.IDS, layers="all", rows="all", how=SHORT)
    assert found.found[0].layers == (0, 1, 2)
    assert found.of("total_variation").max() <= 0.01 + 1e-6
    assert 0 <= found.of("jsd").iloc[0] <= math.log(2)


def test_causal_rows_get_no_weight_ahead():
    model = tiny.loaded("gpt2")
    (one,) = counterfactual_attention(model, tiny.IDS, rows="all", how=SHORT).found
    assert float(one.weights[0].triu(1).abs().max()) == 0


def test_searched_rows_put_in_again_leave_the_model_as_it_is():
    model = tiny.loaded("bert")
    example = model.example(tiny.IDS)
    (one,) = asked(model, example)
    (site,) = model.capture(example, keep=Keep.of("weights", layers=1)).sites
    searched = Searched.of(site, [0, 2], [0, 4])
    same = model.capture(example, edits=[searched.edit(searched.shares, one)]).logits
    assert (same - model.capture(example).logits).abs().max() < 1e-6


def test_gradients_reach_the_free_numbers_as_finite_differences_say():
    made = planted("P3A")
    (one,) = asked(made.model, made.example)
    (site,) = made.model.capture(made.example, keep=Keep.of("weights", layers=0)).sites
    searched = Searched.of(site, None, [0])

    def y(free):
        row = Row(made.example, edits=(searched.edit(searched.shares_of(free), one),))
        return differentiable(made.model, [row])[0].sum()

    free = torch.randn(2, 1, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(y, free)


@pytest.mark.parametrize(
    ("option", "said"), [({"eps": -0.1}, "eps"), ({"rows": "some"}, "rows"), ({"of": "max"}, "of")]
)
def test_what_cannot_be_asked_is_refused_by_name(option, said):
    made = planted("P3A")
    with pytest.raises(InputError, match=said):
        counterfactual_attention(made.model, made.example, **option)
