"""Normalizers against searches over supports, bisection and loops, and what all of them have in common."""

import math
from itertools import combinations

import pytest
import torch
from torch import Tensor

from attnprobe.attention.masks import causal_mask
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.normalizers import (
    NORMALIZERS,
    entmax15,
    get_normalizer,
    hard,
    sigmoid,
    softmax,
    softmax_plus_one,
    sparsemax,
    with_sink,
)
from attnprobe.attention.sampling import gumbel, sampled
from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.errors import InputError
from attnprobe.site import Normalizer

EVERY = [
    *NORMALIZERS.values(),
    get_normalizer("softmax", temperature=0.3),
    get_normalizer("entmax15", temperature=2.0),
    with_sink(torch.tensor([[[0.5]], [[-1.0]]], dtype=torch.float64)),
    gumbel(0),
    gumbel(0, hard=True),
    sampled(0),
]
every_normalizer = pytest.mark.parametrize("normalizer", EVERY, ids=lambda n: n.name)
SMOOTH = [normalizer for normalizer in EVERY if normalizer.name not in ("hard", "sampled")]
N_KEYS = 5


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def nearest_on_the_simplex(scores: Tensor) -> Tensor:
    """The projection by trying every set of keys that may have weight."""
    best, nearest = math.inf, scores
    for size in range(1, len(scores) + 1):
        for kept in map(list, combinations(range(len(scores)), size)):
            point = torch.zeros_like(scores)
            point[kept] = scores[kept] - (scores[kept].sum() - 1) / size
            if (point >= 0).all() and (distance := float((point - scores).square().sum())) < best:
                best, nearest = distance, point
    return nearest


def entmax_by_bisection(scores: Tensor, alpha: float) -> Tensor:
    """max(0, (alpha-1) s - t)^(1/(alpha-1)) with the t that makes the sum 1."""
    scaled = (alpha - 1) * scores
    low, high = float(scaled.max()) - 1, float(scaled.max())
    for _ in range(200):
        middle = (low + high) / 2
        total = float((scaled - middle).clamp(min=0).pow(1 / (alpha - 1)).sum())
        low, high = (middle, high) if total > 1 else (low, middle)
    return (scaled - low).clamp(min=0).pow(1 / (alpha - 1))


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_sparsemax_is_the_nearest_point_of_the_simplex(spread: float):
    for scores in normal(20, 1, 6) * spread:
        assert (sparsemax(scores)[0] - nearest_on_the_simplex(scores[0])).abs().max() < 1e-14


@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
@pytest.mark.parametrize(("alpha", "function"), [(1.5, entmax15), (2.0, sparsemax)])
def test_entmax_solves_its_equation(alpha: float, function, spread: float):
    for scores in normal(20, 1, 40) * spread:
        assert (function(scores)[0] - entmax_by_bisection(scores[0], alpha)).abs().max() < 1e-7


def test_entmax_maximises_score_plus_entropy():
    """p·s + (sum p - p^1.5) / (0.5 * 1.5) is not larger anywhere else on the simplex."""

    def worth(p: Tensor, s: Tensor) -> Tensor:
        return (p * s).sum(-1) + (p - p.pow(1.5)).sum(-1) / 0.75

    scores = normal(1, 4)
    best = entmax15(scores)
    others = torch.distributions.Dirichlet(torch.ones(4, dtype=torch.float64)).sample((2000,))
    near = 0.99 * best + 0.01 * others
    assert (worth(torch.cat([others, near]), scores) <= worth(best, scores) + 1e-15).all()


def test_sparsemax_drops_more_keys_than_entmax_and_softmax_none():
    scores = normal(200, 1, 12)
    kept = [int((function(scores) > 0).sum()) for function in (sparsemax, entmax15, softmax)]
    assert kept[0] < kept[1] < kept[2] == scores.numel()


def test_equal_scores_share_evenly_and_a_tie_goes_to_the_first_for_hard():
    scores = torch.tensor([[2.0, 2.0, 2.0, 2.0]], dtype=torch.float64)
    for function in (softmax, sparsemax, entmax15):
        assert (function(scores) - 0.25).abs().max() < 1e-15
    assert hard(scores).tolist() == [[1.0, 0.0, 0.0, 0.0]]
    assert softmax_plus_one(0 * scores).tolist() == [[0.2] * 4]


def test_softmax_plus_one_sigmoid_and_sinks_by_hand():
    scores = normal(3, N_KEYS)
    for row, one, each, sunk in zip(
        scores.tolist(), softmax_plus_one(scores), sigmoid(scores), with_sink(1.5)(scores), strict=True
    ):
        raised = [math.exp(s) for s in row]
        for j, e in enumerate(raised):
            assert abs(float(one[j]) - e / (1 + sum(raised))) < 1e-15
            assert abs(float(each[j]) - e / (1 + e)) < 1e-15
            assert abs(float(sunk[j]) - e / (math.exp(1.5) + sum(raised))) < 1e-15


def test_a_query_abstains_where_every_score_is_low_and_not_where_one_is_high():
    assert float(softmax_plus_one(torch.full((1, 3), -30.0)).sum()) < 1e-12
    assert float(softmax_plus_one(torch.tensor([[40.0, 0.0]])).sum()) == 1.0
    assert softmax_plus_one(torch.tensor([[1e4, 1e4]])).isfinite().all()


@pytest.mark.parametrize("beta", [1.0, 8.0, 64.0])
def test_softmax_goes_to_the_hard_choice_as_fast_as_the_gap_allows(beta: float):
    scores = normal(50, N_KEYS)
    top = scores.topk(2).values
    gap = top[:, 0] - top[:, 1]
    chosen = torch.nn.functional.one_hot(scores.argmax(-1), N_KEYS)
    error = (softmax(scores, temperature=1 / beta) - chosen).abs().amax(-1)
    assert (error <= N_KEYS * torch.exp(-beta * gap)).all()


def test_softmax_goes_to_the_mean_at_a_high_temperature():
    assert (softmax(normal(3, N_KEYS), temperature=1e9) - 1 / N_KEYS).abs().max() < 1e-8


@every_normalizer
def test_rows_sum_to_what_the_normalizer_says(normalizer: Normalizer):
    sums = normalizer(normal(2, 2, 30, N_KEYS) * 3).sum(-1)
    if normalizer.row_sum == "one":
        assert (sums - 1).abs().max() < 1e-14
    elif normalizer.row_sum == "at_most_one":
        assert (sums < 1).all()
    else:
        assert (sums - 1).abs().max() > 0.1


@every_normalizer
def test_a_hidden_key_weighs_exactly_nothing_and_a_hidden_row_is_zeros_with_finite_gradients(normalizer: Normalizer):
    hidden = torch.rand(2, 2, 30, N_KEYS) > 0.5
    hidden[:, :, 3] = True
    free = normal(2, 2, 30, N_KEYS).requires_grad_()
    weights = normalizer(free.masked_fill(hidden, -torch.inf))
    assert weights.isfinite().all()
    assert (weights[hidden] == 0).all()
    if weights.requires_grad:
        (gradient,) = torch.autograd.grad((weights * torch.randn_like(weights)).sum(), free)
        assert gradient.isfinite().all()
        assert (gradient[hidden] == 0).all()
        assert gradient.abs().max() > 0


@pytest.mark.parametrize("normalizer", NORMALIZERS.values(), ids=lambda n: n.name)
def test_a_hidden_key_might_as_well_not_be_there(normalizer: Normalizer):
    scores, seen = normal(1, 1, 20, 8), [0, 2, 3, 6]
    hidden = torch.full_like(scores, -torch.inf)
    hidden[..., seen] = scores[..., seen]
    assert (normalizer(hidden)[..., seen] - normalizer(scores[..., seen])).abs().max() < 1e-14


@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15", "hard"])
def test_what_is_added_to_all_scores_of_a_row_changes_nothing(name: str):
    scores = normal(1, 1, 20, N_KEYS)
    assert (NORMALIZERS[name](scores) - NORMALIZERS[name](scores + 700)).abs().max() < 1e-11


@pytest.mark.parametrize("normalizer", SMOOTH[:-1], ids=lambda n: n.name)
def test_gradients_are_those_of_finite_differences(normalizer: Normalizer):
    hidden = torch.zeros(1, 2, 3, N_KEYS, dtype=torch.bool)
    hidden[..., 0, 1:3] = True
    scores = normal(1, 2, 3, N_KEYS).requires_grad_()
    assert torch.autograd.gradcheck(lambda s: normalizer(s.masked_fill(hidden, -torch.inf)), scores)


@pytest.mark.parametrize(("function", "power"), [(softmax, 1.0), (entmax15, 0.5), (sparsemax, 0.0)])
def test_the_jacobian_is_that_of_the_papers(function, power: float):
    """diag(u) - u uᵀ / sum(u), with u = p^(2 - alpha) where p > 0."""
    for scores in normal(100, 1, N_KEYS):
        p = function(scores)[0]
        u = torch.where(p > 0, p.pow(power), 0.0)
        jacobian = torch.autograd.functional.jacobian(function, scores)[0, :, 0]
        assert (jacobian - (u.diag() - u[:, None] * u / u.sum())).abs().max() < 1e-12


@pytest.mark.parametrize("n_keys", [1, 2])
@pytest.mark.parametrize("name", ["softmax", "sparsemax", "entmax15", "hard"])
def test_a_single_key_gets_everything(name: str, n_keys: int):
    scores = torch.full((1, 1, 2, n_keys), -torch.inf, dtype=torch.float64)
    scores[..., 0] = -800.0
    assert (NORMALIZERS[name](scores)[..., 0] == 1).all()


@pytest.mark.parametrize("name", NORMALIZERS)
def test_single_precision_is_near_double(name: str):
    scores = normal(4, 2, 20, 200) * 2
    assert (NORMALIZERS[name](scores.float()).double() - NORMALIZERS[name](scores)).abs().max() < 1e-5


@every_normalizer
def test_a_site_is_made_and_edited_with_every_normalizer(normalizer: Normalizer):
    attention = MultiHeadAttention(8, 2, normalizer=normalizer).double()
    x, visible = normal(3, 6, 8), causal_mask(6)

    def halve_scores(site):
        return site.replace(scores=site.scores / 2)

    tape = Tape(edits=[halve_scores], keep=Keep.of("scores", "weights", "value", "z"))
    with recording(tape):
        attention(x, visible=visible)
    site = tape.sites[0]
    assert (normalizer(site.scores) - site.weights).abs().max() == 0
    assert (site.weights @ site.value - site.z).abs().max() < 1e-14
    assert (site.weights.masked_select(~visible) == 0).all()
    assert all(proof.row_error is None or proof.row_error < 1e-6 for proof in tape.proofs)


def test_what_is_no_normalizer_is_refused():
    with pytest.raises(InputError, match="did you mean 'sparsemax'"):
        get_normalizer("sparse_max")
    with pytest.raises(InputError, match="temperature is above 0, got -1"):
        softmax(normal(2, 3), temperature=-1.0)
    with pytest.raises(InputError, match="above 0, got nan"):
        get_normalizer("hard", temperature=math.nan)
