"""Hard attention: its estimators by enumeration of every draw, its choices by loops."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.mechanisms.hard import (
    hard,
    hard_weights,
    top_k,
    top_k_weights,
    uniform,
    uniform_weights,
)
from attnprobe.attention.mechanisms.softmax import scaled_dot
from attnprobe.attention.normalizers import straight_through
from attnprobe.attention.sampling import draw, gumbel, gumbel_softmax, reinforce, sampled
from attnprobe.errors import InputError

N_KEYS = 4


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def reward_of(o: Tensor) -> Tensor:
    """Something that is not linear in what was looked at."""
    return 5 + (o - 1).square().sum(-1) + o.sum(-1)


def each_draw(scores: Tensor, value: Tensor, baseline: float) -> tuple[list[float], list[tuple[Tensor, Tensor]]]:
    """For each key: how likely it is drawn, and the REINFORCE gradients to scores and values if it is."""
    chances, gradients = [], []
    for s in range(N_KEYS):
        log_alpha = torch.log_softmax(scores, -1)
        surrogate = reinforce(reward_of(value[s]), log_alpha[s], baseline)
        chances.append(float(log_alpha[s].detach().exp()))
        gradients.append(torch.autograd.grad(surrogate, (scores, value)))
    return chances, gradients


def expected_reward(scores: Tensor, value: Tensor) -> Tensor:
    return (torch.softmax(scores, -1) * reward_of(value)).sum()


@pytest.mark.parametrize("baseline", [0.0, -3.0, 100.0])
def test_the_mean_reinforce_gradient_is_exact_for_every_baseline(baseline: float):
    scores, value = normal(N_KEYS).requires_grad_(), normal(N_KEYS, 2).requires_grad_()
    exact = torch.autograd.grad(expected_reward(scores, value), (scores, value))
    chances, gradients = each_draw(scores, value, baseline)
    for which in (0, 1):
        mean = sum(p * g[which] for p, g in zip(chances, gradients, strict=True))
        assert (mean - exact[which]).abs().max() < 1e-12


def test_the_mean_reward_as_baseline_makes_reinforce_less_noisy():
    for _ in range(20):
        scores, value = normal(N_KEYS).requires_grad_(), normal(N_KEYS, 2)
        (exact,) = torch.autograd.grad(expected_reward(scores, value), scores)
        value.requires_grad_()
        noise = []
        for baseline in (0.0, float(expected_reward(scores, value).detach())):
            chances, gradients = each_draw(scores, value, baseline)
            noise.append(sum(p * float((g[0] - exact).square().sum()) for p, g in zip(chances, gradients, strict=True)))
        assert noise[1] < noise[0]


def test_reinforce_keeps_the_reward_as_its_value():
    reward, log_probability = normal(6), normal(6).requires_grad_()
    assert torch.equal(reinforce(reward, log_probability, 2.0), reward)


def test_draws_come_as_often_as_their_probabilities_and_say_how_likely_they_were():
    scores = torch.tensor([0.0, 1.0, -1.0, -torch.inf, 2.0], dtype=torch.float64)
    n = 40_000
    drawn = draw(scores.expand(n, 5), generator=torch.Generator().manual_seed(0))
    alpha = torch.tensor([math.exp(float(s)) for s in scores], dtype=torch.float64)
    alpha /= alpha.sum()
    assert set(drawn.sample.unique().tolist()) == {0.0, 1.0}
    assert (drawn.sample.sum(-1) == 1).all()
    assert ((drawn.sample.mean(0) - alpha).abs() <= 4.5 * (alpha * (1 - alpha) / n).sqrt()).all()
    assert ((drawn.sample * alpha).sum(-1).log() - drawn.log_probability).abs().max() < 1e-14
    assert not drawn.sample.requires_grad


def test_a_draw_that_has_nothing_to_choose_from_is_zeros_and_sure():
    scores = torch.tensor([[0.0, -torch.inf], [-torch.inf, -torch.inf]], dtype=torch.float64).requires_grad_()
    drawn = draw(scores)
    assert drawn.sample.tolist() == [[1.0, 0.0], [0.0, 0.0]]
    assert drawn.log_probability.tolist() == [0.0, 0.0]
    assert torch.autograd.grad(drawn.log_probability.sum(), scores)[0].isfinite().all()


def test_learning_by_reinforce_finds_the_key_that_pays():
    scores = torch.zeros(64, 5, dtype=torch.float64, requires_grad=True)
    generator = torch.Generator().manual_seed(0)
    for _ in range(150):
        drawn = draw(scores, generator=generator)
        reward = drawn.sample[:, 3]
        (gradient,) = torch.autograd.grad(reinforce(reward, drawn.log_probability, reward.mean()).sum(), scores)
        scores = (scores + gradient).detach().requires_grad_()
    assert float(torch.softmax(scores.detach(), -1)[:, 3].mean()) > 0.9


def test_the_largest_noisy_score_of_gumbel_softmax_falls_as_often_as_softmax_says():
    scores = torch.tensor([0.5, 0.0, -1.0, -torch.inf, 1.5], dtype=torch.float64)
    n = 40_000
    for options in ({"hard": True}, {"hard": False, "temperature": 0.3}):
        weights = gumbel_softmax(scores.expand(n, 5), generator=torch.Generator().manual_seed(1), **options)
        seen = F.one_hot(weights.argmax(-1), 5).double().mean(0)
        alpha = torch.softmax(scores, -1)
        assert ((seen - alpha).abs() <= 4.5 * (alpha * (1 - alpha) / n).sqrt()).all()


def test_gumbel_softmax_is_the_formula_of_its_own_uniform_numbers():
    scores = normal(3, 5)
    u = torch.rand(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    by_hand = torch.softmax((scores - torch.log(-torch.log(u))) / 0.7, -1)
    got = gumbel_softmax(scores, temperature=0.7, generator=torch.Generator().manual_seed(2))
    assert (got - by_hand).abs().max() < 1e-14


def test_hard_gumbel_is_exactly_one_hot_with_the_gradient_of_the_soft_draw():
    scores, direction = normal(50, 5).requires_grad_(), normal(50, 5)
    gradients = []
    for is_hard in (True, False):
        weights = gumbel_softmax(scores, temperature=0.5, hard=is_hard, generator=torch.Generator().manual_seed(3))
        assert not is_hard or set(weights.unique().tolist()) == {0.0, 1.0}
        gradients.append(torch.autograd.grad((weights * direction).sum(), scores)[0])
    assert torch.equal(*gradients)


def test_straight_through_is_one_hot_forward_and_softmax_backward():
    query, key = normal(2, 30, 4).requires_grad_(), normal(2, 9, 4)
    weights = hard_weights(query, key)
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    direction = normal(2, 30, 9)
    (got,) = torch.autograd.grad((weights * direction).sum(), query)
    (want,) = torch.autograd.grad((torch.softmax(query @ key.mT / 2, -1) * direction).sum(), query)
    assert (got - want).abs().max() < 1e-14


@pytest.mark.parametrize("linear", [True, False])
def test_the_straight_through_gradient_is_biased_unless_the_reward_is_linear(linear: bool):
    scores, value = normal(N_KEYS).requires_grad_(), normal(N_KEYS, 2)
    reward = (lambda o: o.sum(-1)) if linear else reward_of
    (exact,) = torch.autograd.grad((torch.softmax(scores, -1) * reward(value)).sum(), scores)
    mean = torch.zeros(N_KEYS, dtype=torch.float64)
    for s in range(N_KEYS):
        alpha = torch.softmax(scores, -1)
        weights = straight_through(F.one_hot(torch.tensor(s), N_KEYS).double(), alpha)
        mean += alpha[s].detach() * torch.autograd.grad(reward(weights @ value), scores)[0]
    bias = float((mean - exact).abs().max())
    assert bias < 1e-14 if linear else bias > 0.01


@pytest.mark.parametrize("normalizer", [sampled(5), gumbel(5), gumbel(5, hard=True)], ids=lambda n: n.name)
def test_a_seeded_normalizer_gives_the_same_draw_again_and_leaves_the_global_one_alone(normalizer):
    scores, before = normal(2, 2, 20, 6), torch.random.get_rng_state()
    first = normalizer(scores)
    assert torch.equal(first, normalizer(scores))
    assert torch.equal(before, torch.random.get_rng_state())


VISIBLE = torch.rand(2, 1, 12, 9, generator=torch.Generator().manual_seed(4)) > 0.4
VISIBLE[0, 0, 5] = False  # one query sees nothing, another one a single key
VISIBLE[1, 0, 2] = torch.arange(9) == 7


def by_loops(query: Tensor, key: Tensor, value: Tensor, visible: Tensor, bias: Tensor, k: int) -> Tensor:
    """The k best visible keys of each query, softmax over them alone, by plain Python."""
    z = torch.zeros(*query.shape[:-1], value.shape[-1], dtype=query.dtype)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, query.shape[:3])).tolist():
        fits = [
            (float(query[b, h, i] @ key[b, h, j]) / math.sqrt(query.shape[-1]) + float(bias[h, i, j]), j)
            for j in range(key.shape[2])
            if visible[b, 0, i, j]
        ]
        best = sorted(fits, reverse=True)[:k]
        total = sum(math.exp(s) for s, _ in best)
        for s, j in best:
            z[b, h, i] += math.exp(s) / total * value[b, h, j]
    return z


@pytest.mark.parametrize("k", [1, 3, 9, 50])
def test_top_k_averages_the_best_visible_keys(k: int):
    query, key, value = normal(2, 3, 12, 4), normal(2, 3, 9, 4), normal(2, 3, 9, 2)
    bias = normal(3, 12, 9)
    reference = by_loops(query, key, value, VISIBLE, bias, k)
    assert (top_k(query, key, value, k=k, visible=VISIBLE, bias=bias) - reference).abs().max() < 1e-13
    weights = top_k_weights(query, key, k=k, visible=VISIBLE, bias=bias)
    assert ((weights > 0).sum(-1) == VISIBLE.sum(-1).clamp(max=k).expand(2, 3, 12)).all()
    if k == 1:
        assert (hard(query, key, value, visible=VISIBLE, bias=bias) - reference).abs().max() < 1e-13


def test_top_k_of_all_keys_is_softmax_attention():
    query, key, value = normal(2, 12, 4), normal(2, 9, 4), normal(2, 9, 2)
    reference = F.scaled_dot_product_attention(query, key, value)
    assert (top_k(query, key, value, k=9) - reference).abs().max() < 1e-14
    with pytest.raises(InputError, match="at least 1 key, got k = 0"):
        Mechanism.of("top_k", k=0).z(query, key, value)


def test_top_k_teaches_the_keys_that_it_kept_and_no_others():
    query, key, value = normal(1, 4), normal(9, 4).requires_grad_(), normal(9, 2).requires_grad_()
    kept = (query @ key.mT)[0].topk(3).indices
    gradients = torch.autograd.grad(top_k(query, key, value, k=3).square().sum(), (key, value))
    for gradient in gradients:
        assert set(gradient.abs().sum(-1).nonzero()[:, 0].tolist()) == set(kept.tolist())


def test_hard_takes_the_value_of_the_best_key_itself():
    query, key, value = normal(2, 12, 4), normal(2, 9, 4), normal(2, 9, 3)
    z = hard(query, key, value)
    for b in range(2):
        for i in range(12):
            best = max(range(9), key=lambda j: float(query[b, i] @ key[b, j]))
            assert torch.equal(z[b, i], value[b, best])


@pytest.mark.parametrize("beta", [1.0, 16.0, 256.0])
def test_a_low_temperature_is_hard_attention_as_fast_as_the_gap_allows(beta: float):
    query, key, value = normal(40, 4), normal(9, 4), normal(9, 3)
    top = (query @ key.mT).topk(2).values
    bound = 9 * torch.exp(-beta * (top[:, 0] - top[:, 1]))
    error = scaled_dot(query, key, value, score="dot", temperature=1 / beta) - hard(query, key, value)
    assert (error.abs().amax(-1) <= bound * 2 * value.abs().max() + 1e-15).all()


def test_uniform_is_the_mean_of_what_may_be_seen():
    query, key, value = normal(2, 3, 12, 4), normal(2, 3, 9, 4), normal(2, 3, 9, 2)
    z = uniform(query, key, value, visible=VISIBLE)
    for b, h, i in torch.cartesian_prod(*map(torch.arange, (2, 3, 12))).tolist():
        seen = [value[b, h, j] for j in range(9) if VISIBLE[b, 0, i, j]]
        mean = sum(seen) / len(seen) if seen else torch.zeros(2, dtype=torch.float64)
        assert (z[b, h, i] - mean).abs().max() < 1e-14
    assert (uniform(query, key, value) - value.mean(-2, keepdim=True)).abs().max() < 1e-14
    assert (uniform_weights(query, key) == 1 / 9).all()
    with pytest.raises(InputError, match=r"no bias on scores .*goes with .*scaled_dot"):
        Mechanism.of("uniform").z(query, key, value, bias=normal(12, 9))


@pytest.mark.parametrize(("name", "options"), [("hard", {}), ("top_k", {"k": 3}), ("uniform", {})])
def test_each_weight_is_what_a_change_of_the_value_does_to_z(name: str, options: dict):
    query, key, value = normal(12, 4), normal(9, 4), normal(9, 1)
    mechanism = Mechanism.of(name, **options)
    for visible in (None, VISIBLE[0, 0]):
        jacobian = torch.autograd.functional.jacobian(lambda v, m=visible: mechanism.z(query, key, v, m), value)
        assert (mechanism.weights(query, key, visible) - jacobian[:, 0, :, 0]).abs().max() < 1e-14
        blind = [5] if visible is not None else []
        assert (mechanism.weights(query, key, visible).sum(-1) == 0).nonzero()[:, 0].tolist() == blind
