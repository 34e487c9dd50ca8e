"""Perturbation methods against brute force over all coalitions or orders, captum, scikit-learn, and plain formulas."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from captum.attr import KernelShap
from torch import nn

from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attributing import attribute, passes
from attnprobe.errors import InputError
from attnprobe.methods.games import Game, all_coalitions, groups_of, sentences_of
from attnprobe.methods.kernel_shap import fit, kernel, paired
from attnprobe.methods.owen import n_asked, of_tree, order_of, tree_of
from attnprobe.methods.shapley import of_all_coalitions
from attnprobe.methods.sparse_surrogate import lasso, r_squared
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.planted import planted
from attnprobe.target import Target
from tests import tiny

METHODS = ("shapley_sampling", "shapley_exact", "kernel_shap", "lime", "owen", "rise", "sparse_surrogate")
ADDING_UP = ("shapley_sampling", "shapley_exact", "kernel_shap", "owen")
SAMPLED = tuple(name for name in METHODS if name != "shapley_exact")
WEIGHTS = torch.tensor([2.0, -1.1, 0.53, 3.7, -2.59, 1.27]).double()


class Played(nn.Module):
    """A network whose answer is a given game: each embedding is 1 where the word stays, 0 where it is taken away.

    It has attention, as every model here, which the answer does not depend on.
    """

    def __init__(self, worth, n_words, length):
        super().__init__()
        self.worth, self.fixed_length = worth, length
        self.token_embedding = nn.Embedding.from_pretrained(torch.ones(n_words, 1).double())
        with torch.random.fork_rng(devices=[]):
            self.attention = MultiHeadAttention(1, 1).double()

    def forward(self, embeddings, is_token=None):
        self.attention(embeddings)
        return self.worth(embeddings[..., 0])[:, None]


def playing(worth, text):
    """A model that plays a game on the words of a text, and the text as it reads it."""
    vocabulary = Vocabulary.of([text], specials=("[UNK]",), begin=None)
    network = Played(worth, len(vocabulary.tokens), len(vocabulary.encode(text)[1]))
    model = OwnModel(network, vocabulary, labels=("y",), fillers={"zero": torch.zeros(1).double()})
    return model, model.example(text)


def additive(z):
    return z @ WEIGHTS[: z.shape[1]] + 0.7


def tangled(z):
    """A game without symmetry: products of two and three players, and a curve."""
    n = z.shape[1]
    pairs = sum((i + 1) * 0.3 * z[:, i] * z[:, (i + 2) % n] for i in range(n))
    return pairs + torch.tanh(z @ WEIGHTS[:n]) - 2 * z[:, 0] * z[:, 1] * z[:, n - 1]


def handbook(z):
    return 2 * z[:, 0] + 3 * z[:, 1] * z[:, 2] - z[:, 3] * z[:, 0] + 0.5


def by_all_orders(worth, n, allowed=lambda order: True):
    """Mean change when a player joins, over every allowed order: the definition."""
    total, orders = torch.zeros(n).double(), [o for o in itertools.permutations(range(n)) if allowed(o)]
    known = {}

    def of(players):
        if players not in known:
            z = torch.zeros(1, n).double()
            z[0, list(players)] = 1
            known[players] = float(worth(z))
        return known[players]

    for order in orders:
        for place, j in enumerate(order):
            total[j] += of(frozenset(order[: place + 1])) - of(frozenset(order[:place]))
    return total / len(orders)


def uninterrupted(groups):
    """Whether an order has the players of each group next to one another."""

    def allowed(order):
        places = [sorted(order.index(j) for j in group) for group in groups]
        return all(at[-1] - at[0] == len(at) - 1 for at in places)

    return allowed


@pytest.fixture(scope="module")
def bert():
    return tiny.loaded("bert", scale=3.0, dtype=torch.float64)


@pytest.fixture(scope="module")
def short(bert):
    return bert.example(tiny.IDS[:6])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_exact_shapley_values_are_the_mean_over_all_orders(n):
    model, example = playing(tangled if n > 1 else additive, " ".join("abcde"[:n]))
    expected = by_all_orders(model.module.worth, n).float()
    torch.testing.assert_close(attribute(model, example, "shapley_exact").scores, expected, atol=1e-6, rtol=1e-6)


def test_shapley_values_of_the_handbook():
    model, example = playing(handbook, "a b c d")
    expected = torch.tensor([1.5, 1.5, 1.5, -0.5])
    for method in ("shapley_exact", "kernel_shap"):
        found = attribute(model, example, method)
        torch.testing.assert_close(found.scores, expected, atol=1e-6, rtol=0)
        assert abs(found.residual) < 1e-12 and found.standard_error is None


# Known from how they are built: the mean over all orders; P1, P2, P3 and P5 are linear in what the tokens carry.
PLANTED = {
    "P1": [0, 0, 1, 0],
    "P1c": [-0.5, -0.5, 2, 0],
    "P2": [2, 0, 0],
    "P3A": [0, 1.3, 1.4],
    "P3B": [0, 1.3, 1.4],
    "P5": [0, 0.815, 0],
    "P6": [0, 0.5, 0.5],
    "P7": [0, 0.5, 0.5],
    "P8": [0, 0, -1],
    "P9": [0, 1, 1],
    "P9_unequal": [0, 0, 0],
    "P10": [0, 1, 0],
}


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_shapley_values_of_planted_models_are_exact(name):
    made = planted(name)
    for method in ("shapley_exact", "kernel_shap", "owen"):
        found = attribute(made.model, made.example, method).scores
        torch.testing.assert_close(found, torch.tensor(PLANTED[name]).float(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["P1", "P2", "P3A", "P5"])
def test_surrogates_of_linear_planted_models_are_exact(name):
    made = planted(name)
    for method, share, options in (
        ("lime", 1, {"alpha": 0.0}),
        ("sparse_surrogate", 1, {"alpha": 0.0}),
        ("rise", 0.5, {}),
    ):
        found = attribute(made.model, made.example, method, **options).scores
        torch.testing.assert_close(found, share * torch.tensor(PLANTED[name]).float(), atol=1e-5, rtol=0)


def test_kernel_shap_on_all_coalitions_is_the_exact_shapley_value():
    for n in (2, 4, 7):
        worth = torch.randn(2**n, generator=torch.Generator().manual_seed(n)).double()
        kept = all_coalitions(n)[1:-1]
        found = fit(kept, worth[1:-1], (float(worth[0]), float(worth[-1])), kernel(kept))
        torch.testing.assert_close(found, of_all_coalitions(worth), atol=1e-12, rtol=0)


def test_captums_kernel_shap_comes_near_the_same_values():
    """captum puts a large weight on the two ends and samples; here they hold exactly and 16 coalitions are all."""
    pytest.importorskip("sklearn")
    model, example = playing(handbook, "a b c d")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        theirs = KernelShap(handbook).attribute(
            torch.ones(1, 4).double(), baselines=0, n_samples=2000, perturbations_per_eval=500
        )[0]
    ours = attribute(model, example, "kernel_shap", n_samples=14)
    assert ours.forward_passes == 16
    torch.testing.assert_close(ours.scores, theirs.float(), atol=0.15, rtol=0)


def test_kernel_shap_draws_coalitions_as_often_as_the_kernel_weighs_them():
    """Since their fit weighs them alike: sizes by the kernel's weight of all of a size, players alike, complements."""
    n, m = 6, 20000
    kept = paired(n, m, torch.Generator().manual_seed(0))
    assert torch.equal(kept[1::2], ~kept[::2])
    every = all_coalitions(n)[1:-1]
    expected = torch.zeros(n + 1).double().index_add(0, every.sum(1), kernel(every))[1:-1]
    expected /= expected.sum()
    found = torch.bincount(kept.sum(1), minlength=n + 1)[1:-1] / (2 * m)
    assert bool(((found - expected).abs() < 4 * (expected / m).sqrt()).all())
    assert bool(((kept[::2].double().mean(0) - 0.5).abs() < 4 * 0.5 / m**0.5).all())


def test_kernel_shap_refuses_too_few_samples():
    model, example = playing(tangled, "a b c d e f")
    with pytest.raises(InputError, match="at least twice the 6 units, got 8"):
        attribute(model, example, "kernel_shap", n_samples=8)


@pytest.mark.parametrize(("n_tokens", "orders"), [(64, 26), (65, 16)])
def test_a_long_text_gets_fewer_orders_and_says_how_many_it_takes_before(n_tokens: int, orders: int):
    made = planted("P1", n_tokens=n_tokens)
    found = attribute(made.model, made.example, "shapley_sampling")
    told = passes(made.model, made.example, "shapley_sampling").forward
    assert found.used["orders"] == orders and told == orders * (n_tokens - 1) + 2
    assert torch.allclose(found.scores, made.truth.to(found.scores), atol=1e-6)


@pytest.mark.parametrize(("method", "n_samples"), [("shapley_sampling", 20), ("kernel_shap", 40), ("owen", 10)])
def test_standard_errors_tell_how_far_estimates_spread(method, n_samples):
    """Over seeds: centred at the exact value, and the stated error is about the spread."""
    model, example = playing(tangled, "a b c d e f")
    expected = by_all_orders(tangled, 6)
    found = [attribute(model, example, method, n_samples=n_samples, seed=seed) for seed in range(40)]
    scores = torch.stack([f.scores for f in found]).double()
    stated = torch.stack([f.standard_error for f in found]).double().square().mean(0).sqrt()
    spread = scores.std(0)
    assert bool(((scores.mean(0) - expected).abs() < 4 * spread / 40**0.5 + 1e-6).all())
    assert bool((stated < 2 * spread + 1e-6).all()) and bool((stated > 0.5 * spread).all())


def test_orders_with_their_reverses_are_exact_where_players_meet_in_pairs():
    """Each pair of players meets once either way round, so a game of pairs has no spread at all; single orders do."""
    model, example = playing(lambda z: z[:, 0] * z[:, 1] + 2 * z[:, 2] * z[:, 4] - z[:, 1] * z[:, 3], "a b c d e")
    found = attribute(model, example, "shapley_sampling", n_samples=4)
    torch.testing.assert_close(found.scores, torch.tensor([0.5, 0, 1, -0.5, 1]), atol=1e-6, rtol=0)
    assert float(found.standard_error.max()) < 1e-6


@pytest.mark.parametrize("method", ADDING_UP)
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
def test_scores_add_up_to_the_change_of_the_target(method, name):
    model = tiny.loaded(name, scale=2.0, dtype=torch.float64)
    example = model.example(tiny.IDS[:8], **({"answer": [4, 5]} if name == "t5" else {}))
    target = model.resolve(example, Target())
    nothing, everything = Game.of(model, example, target).ends()
    found = attribute(model, example, method, target)
    assert float(found.scores.double().sum()) == pytest.approx(everything - nothing, abs=2e-5)
    assert abs(found.residual) < 1e-5


def test_more_than_twelve_units_are_refused_with_what_to_use():
    model, example = playing(lambda z: z.sum(1), " ".join("abcdefghijklm"))
    with pytest.raises(InputError, match=r"at most 12, this input has 13; use units='word', kernel_shap"):
        attribute(model, example, "shapley_exact")


TEXT = "a b c. d e f"
NESTED = [(0, 1, 2, 3), (4, 5, 6)]  # the words with their full stop, by sentence


def with_words(example, words):
    """The same text, its tokens grouped into other words."""
    return replace(example, words=tuple(words))


def test_owen_values_are_the_mean_over_orders_that_interrupt_no_sentence():
    model, example = playing(tangled_of_seven, TEXT)
    assert example.tokens == ("a", "b", "c", ".", "d", "e", "f")
    expected = by_all_orders(tangled_of_seven, 7, uninterrupted(NESTED)).float()
    found = attribute(model, example, "owen")
    assert found.used["exact"] and (found.used["n_sentences"], found.used["n_words"]) == (2, 7)
    torch.testing.assert_close(found.scores, expected, atol=1e-6, rtol=0)
    flat = attribute(model, example, "shapley_exact").scores
    assert (found.scores - flat).abs().max() > 0.05  # the tree matters


def tangled_of_seven(z):
    return tangled(z[:, :6]) + z[:, 6] * z[:, 0] - 1.5 * z[:, 6] * z[:, 3] * z[:, 1]


def test_owen_values_keep_words_whole_within_sentences():
    model, example = playing(tangled_of_seven, TEXT)
    example = with_words(example, [0, 0, 1, 2, 3, 4, 4])
    groups = [*NESTED, (0, 1), (5, 6)]
    expected = by_all_orders(tangled_of_seven, 7, uninterrupted(groups)).float()
    found = attribute(model, example, "owen", n_samples=40)
    assert found.used["exact"] and found.used["n_words"] == 5
    torch.testing.assert_close(found.scores, expected, atol=1e-6, rtol=0)
    sampled = attribute(model, example, "owen", n_samples=4)
    assert not sampled.used["exact"] and sampled.used["orders"] == 4
    error = sampled.standard_error
    assert bool(((sampled.scores - expected).abs() <= 5 * error + 0.3).all())


def test_sampled_owen_orders_are_all_orders_that_interrupt_nothing():
    tree, generator = (((0, 1), (2,)), ((3,),)), torch.Generator().manual_seed(0)
    found = {tuple(order_of(tree, generator)) for _ in range(400)}
    allowed = uninterrupted([(0, 1), (0, 1, 2)])
    assert found == {order for order in itertools.permutations(range(4)) if allowed(order)}


def test_owen_values_of_a_flat_tree_are_shapley_values(bert, short):
    owen, exact = (attribute(bert, short, method) for method in ("owen", "shapley_exact"))
    assert owen.used["exact"] and owen.used["n_sentences"] == 1
    torch.testing.assert_close(owen.scores, exact.scores, atol=1e-5, rtol=1e-5)
    flat = ((0, 1, 2, 3),), by_all_orders(handbook, 4)
    model, example = playing(handbook, "a b c d")
    game = Game.of(model, example, model.resolve(example, Target()))
    torch.testing.assert_close(of_tree(game, flat[0])[0], flat[1], atol=1e-12, rtol=0)


def test_owen_values_ask_for_as_many_coalitions_as_they_say():
    model, example = playing(tangled_of_seven, TEXT)
    example = with_words(example, [0, 0, 1, 2, 3, 4, 4])
    game = Game.of(model, example, model.resolve(example, Target()))
    found = attribute(model, example, "owen", n_samples=40)
    assert found.forward_passes == n_asked(tree_of(game))


@pytest.mark.parametrize("surrogate", ["ridge", "lasso"])
def test_lime_is_exact_on_a_linear_target(surrogate):
    model, example = playing(additive, "a b c d e f")
    found = attribute(model, example, "lime", n_samples=40, alpha=0.0, surrogate=surrogate)
    torch.testing.assert_close(found.scores, WEIGHTS.float(), atol=1e-5, rtol=0)
    assert found.fit == pytest.approx(1.0, abs=1e-6)


def test_lime_is_the_weighted_ridge_solution_of_its_formula():
    """On all 64 masks, by gradient-free normal equations from the formula; fit falls where the target is no plane."""
    model, example = playing(tangled, "a b c d e f")
    found = attribute(model, example, "lime", n_samples=64, kernel_width=0.4, alpha=0.5)
    z = np.array(list(itertools.product([0.0, 1.0], repeat=6)))
    distance = 1 - z.sum(1) / np.maximum(np.sqrt(z.sum(1) * 6), 1e-9)
    root = np.exp(-(distance**2) / (2 * 0.4**2))
    x = np.concatenate([z, np.ones((64, 1))], 1)
    penalty = np.diag([0.5] * 6 + [0.0])
    y = tangled(torch.from_numpy(z)).numpy()
    expected = np.linalg.solve(x.T @ (root[:, None] * x) + penalty, x.T @ (root * y))[:6]
    np.testing.assert_allclose(found.scores.numpy(), expected, atol=1e-5)
    assert found.fit < 0.98


def test_lasso_is_that_of_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    generator = np.random.default_rng(0)
    x = (generator.random((80, 12)) < 0.5).astype(float)
    y, weights = x @ generator.normal(size=12) + generator.normal(size=80), generator.random(80)
    for alpha in (0.01, 0.1):
        theirs = linear_model.Lasso(alpha=alpha, tol=1e-12, max_iter=100000).fit(x, y, sample_weight=weights)
        np.testing.assert_allclose(lasso(x, y, weights / weights.sum(), alpha), theirs.coef_, atol=1e-7)


def test_a_sparse_surrogate_recovers_a_linear_target():
    model, example = playing(additive, "a b c d e f")
    least = attribute(model, example, "sparse_surrogate", alpha=0.0, n_samples=40)
    torch.testing.assert_close(least.scores, WEIGHTS.float(), atol=1e-5, rtol=0)
    assert least.fit == pytest.approx(1.0, abs=1e-9) and least.used["lds"] == pytest.approx(1.0)
    small = attribute(model, example, "sparse_surrogate", alpha=1e-7, n_samples=40)
    torch.testing.assert_close(small.scores, WEIGHTS.float(), atol=1e-5, rtol=0)
    # On all 64 masks columns are orthogonal with deviation 1/2: each coefficient falls by alpha / (1/2).
    shrunk = attribute(model, example, "sparse_surrogate", alpha=0.05, n_samples=64)
    torch.testing.assert_close(shrunk.scores, (WEIGHTS - 0.1 * WEIGHTS.sign()).float(), atol=1e-5, rtol=0)


def test_a_sparse_surrogate_leaves_out_what_does_not_count():
    model, example = playing(lambda z: 3 * z[:, 2] - 2 * z[:, 5] + 0 * z[:, 0], " ".join("abcdefghij"))
    found = attribute(model, example, "sparse_surrogate", n_samples=64, alpha=0.1)
    assert found.scores.nonzero().flatten().tolist() == [2, 5] and found.used["n_nonzero"] == 2


def test_the_fit_of_a_surrogate_is_judged_on_masks_it_has_not_seen():
    noise = torch.randn(2**8, generator=torch.Generator().manual_seed(0)).double()

    def worth(z):
        return noise[(z > 0).long() @ (2 ** torch.arange(8))]

    model, example = playing(worth, "a b c d e f g h")
    for method in ("lime", "sparse_surrogate"):
        assert attribute(model, example, method, n_samples=12, alpha=1e-3).fit < 0.3
    flat = attribute_flat(playing(lambda z: 0 * z[:, 0] + 2, "a b c d e f g h"))
    assert flat.fit is None and flat.used["lds"] is None


def attribute_flat(given):
    with pytest.warns(UserWarning, match="gives 0 to every token"):
        return attribute(*given, "sparse_surrogate")


def test_r_squared_is_that_of_the_formula():
    actual, predicted = torch.tensor([1.0, 2.0, 4.0]).double(), torch.tensor([1.5, 2.0, 3.0]).double()
    assert r_squared(actual, actual) == 1.0
    assert r_squared(predicted, actual) == pytest.approx(1 - 1.25 / (2 * 7 / 3), abs=1e-12)
    assert r_squared(predicted, actual, torch.tensor([1.0, 0.0, 1.0]).double()) == pytest.approx(1 - 1.25 / 4.5)


def test_rise_centred_is_a_share_of_an_additive_target():
    model, example = playing(additive, "a b c d e f")
    exact = attribute(model, example, "rise", keep=0.3)
    torch.testing.assert_close(exact.scores, 0.7 * WEIGHTS.float(), atol=1e-6, rtol=0)
    sampled = attribute(model, example, "rise", keep=0.3, n_samples=60)
    assert exact.standard_error is None
    assert bool(((sampled.scores - exact.scores).abs() < 4 * sampled.standard_error).all())


def test_rise_raw_gives_a_constant_target_to_every_token_and_centred_nothing():
    model, example = playing(lambda z: 0 * z[:, 0] + 0.8, "a b c d e f")
    raw = attribute(model, example, "rise", form="raw", n_samples=50)
    assert bool(((raw.scores - 0.8).abs() < 4 * raw.standard_error).all())
    torch.testing.assert_close(attribute(model, example, "rise", form="raw").scores, torch.full((6,), 0.8))
    model, example = playing(lambda z: 0 * z[:, 0] + 0.75, "a b c d e f")
    with pytest.warns(UserWarning, match="gives 0 to every token"):
        attribute(model, example, "rise")


@pytest.mark.parametrize("form", ["centred", "raw"])
def test_standard_errors_of_rise_tell_how_far_estimates_spread(form):
    model, example = playing(tangled, "a b c d e f")
    expected = attribute(model, example, "rise", form=form).scores
    found = [attribute(model, example, "rise", form=form, n_samples=60, seed=seed) for seed in range(40)]
    scores = torch.stack([f.scores for f in found])
    stated = torch.stack([f.standard_error for f in found]).mean(0)
    assert bool(((scores.mean(0) - expected).abs() < 4 * scores.std(0) / 40**0.5 + 0.02).all())
    assert bool((stated < 1.5 * scores.std(0)).all()) and bool((stated > 0.67 * scores.std(0)).all())


@pytest.mark.parametrize("method", METHODS)
def test_a_word_is_taken_away_whole_and_shares_its_score_equally(method):
    model, example = playing(tangled, "a b c d e f")
    example = with_words(example, [0, 0, 1, 2, 2, 2])
    found = attribute(model, example, method, units="word")
    a, b, c, d, e, f = found.scores.tolist()
    assert a == b and d == e == f and len({a, c, d}) == 3
    assert "equally among its tokens" in found.used["shared"]

    def of_words(z):
        return tangled(z[:, [0, 0, 1, 2, 2, 2]])

    # The same game with words for players: its scores are those of whole words.
    direct = attribute(*playing(of_words, "a c d"), method).scores
    torch.testing.assert_close(torch.tensor([a + b, c, d + e + f]), direct, atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", SAMPLED)
def test_a_seed_gives_the_same_scores_and_another_one_others(method):
    model, example = playing(lambda z: tangled(z[:, :6]) + z[:, 6:].prod(1), " ".join("abcdefghij"))
    few = {"n_samples": 40} if method not in ("shapley_sampling", "owen") else {"n_samples": 4}
    first, again, other = (attribute(model, example, method, seed=s, **few).scores for s in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_sentences_end_at_marks_before_a_space_and_at_new_lines():
    text = 'it cost 3.5 pounds. "no!" she said\nand left... quietly'
    _, example = playing(additive, text)
    found = sentences_of(example)
    words = {}
    for token, sentence in zip(example.tokens, found, strict=True):
        words.setdefault(sentence, []).append(token)
    assert [" ".join(w) for w in words.values()] == [
        "it cost 3 . 5 pounds .",
        '" no ! "',
        "she said",
        "and left . . .",
        "quietly",
    ]
    groups = groups_of(example, range(example.n_tokens), "sentence")
    assert [len(group) for group in groups] == [7, 4, 2, 5, 1]


@pytest.mark.parametrize("method", METHODS)
def test_tokens_that_the_callers_mask_hides_are_no_players(method):
    model = tiny.loaded("bert", scale=3.0)
    mask = torch.ones(1, 9, dtype=torch.long)
    mask[0, [3, 4]] = 0
    additive_mask = torch.zeros(1, 1, 9, 9).masked_fill(mask[:, None, None] == 0, torch.finfo(torch.float32).min)
    for given in (mask, additive_mask):
        example = model.example({"input_ids": torch.tensor([tiny.IDS[:9]]), "attention_mask": given})
        found = attribute(model, example, method)
        assert found.scores[[3, 4]].tolist() == [0, 0] and found.used["n_units"] == 7


@pytest.mark.parametrize("method", METHODS)
def test_wrong_options_are_refused_with_what_was_expected(method):
    model, example = playing(additive, "a b c d e f")
    wrong = {"operator": "meen", "units": "chapter"}
    wrong |= {"n_samples": 1} if method in SAMPLED else {}
    wrong |= {"keep": 1.0} if method in ("rise", "sparse_surrogate") else {}
    wrong |= {"alpha": -1.0} if method in ("lime", "sparse_surrogate") else {}
    wrong |= {"kernel_width": 0.0, "surrogate": "tree"} if method == "lime" else {}
    for name, value in wrong.items():
        with pytest.raises(InputError, match=str(value)):
            attribute(model, example, method, **{name: value})


def test_shapley_weights_add_up_over_the_coalitions_that_a_player_can_join():
    n = 5
    shares = [math.factorial(s) * math.factorial(n - 1 - s) / math.factorial(n) * math.comb(n - 1, s) for s in range(n)]
    assert sum(shares) == pytest.approx(1.0)
    torch.testing.assert_close(of_all_coalitions(all_coalitions(n).sum(1).double()), torch.ones(n).double())
