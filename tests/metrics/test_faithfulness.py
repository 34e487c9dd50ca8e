"""Faithfulness metrics beside slow versions written from the papers, all orders counted out, and known answers."""

import inspect
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn import metrics as sklearn

from attnprobe.attributing import attribute
from attnprobe.errors import InputError
from attnprobe.metrics import faithfulness
from attnprobe.metrics.erasure import BINS, TENTHS, shares_of
from attnprobe.models import load
from attnprobe.models.planted import planted
from attnprobe.models.rows import Row
from attnprobe.target import Target
from tests import tiny

N = 6


@pytest.fixture(scope="module")
def model():
    return load(tiny.build("bert", "eager", seed=4, scale=2.0))


@pytest.fixture(scope="module")
def attribution(model):
    return attribute(model, model.example(tiny.IDS[:N]), "leave_one_out", operator="mean")


@pytest.fixture(scope="module")
def probabilities(model, attribution):
    """Slow and plain: the probabilities [output] with any set of tokens at the mean embedding."""
    table = model.module.get_input_embeddings().weight.detach()
    known = {}

    def without(gone):
        key = tuple(sorted(map(int, gone)))
        if key not in known:
            embeddings = table[tiny.IDS[:N]].clone()
            embeddings[list(key)] = table.mean(0)
            with torch.no_grad():
                known[key] = model.module(inputs_embeds=embeddings[None]).logits.double().softmax(-1)[0]
        return known[key]

    return without


@pytest.fixture(scope="module")
def p(attribution, probabilities):
    """As `probabilities`, of the label."""
    return lambda gone: float(probabilities(gone)[attribution.target.label])


def value(name, model, attribution, **options):
    return faithfulness[name].function(model, attribution, **{"operator": "mean", **options})


def additive():
    """P4: y is a sum of what each token gives, 4, 0.6 and 0.2."""
    made = planted("P4")
    found = attribute(made.model, made.example, lambda m, e, t: made.truth, made.target)
    assert float(made.model.targets([Row(made.example)], found.target)[0]) == pytest.approx(4.8)
    return made.model, found


def ordered(attribution, order):
    """The same attribution with scores that put the tokens in this order."""
    scores = torch.zeros(attribution.example.n_tokens)
    scores[list(order)] = torch.arange(len(order), 0, -1.0)
    return replace(attribution, scores=scores)


# ---------------------------------------------------------------- bins, areas


def test_all_bins_are_every_number_of_tokens(model, attribution, p):
    order = attribution.ranking()
    gone = [p(()) - p(order[:k]) for k in range(1, N + 1)]
    alone = [p(()) - p(order[k:]) for k in range(1, N + 1)]
    assert value("comprehensiveness", model, attribution, bins="all") == pytest.approx(np.mean(gone), abs=1e-6)
    assert value("sufficiency", model, attribution, bins="all") == pytest.approx(np.mean(alone), abs=1e-6)


def test_aopc_is_the_mean_over_ten_to_ninety_percent(model, attribution, p):
    order = attribution.ranking()
    sizes = [math.ceil(N * tenth / 10) for tenth in range(1, 10)]
    found = [value(f"aopc_{name}", model, attribution) for name in ("comprehensiveness", "sufficiency")]
    expected = [[p(()) - p(order[:k]) for k in sizes], [p(()) - p(order[k:]) for k in sizes]]
    assert found == pytest.approx(np.mean(expected, axis=1).tolist(), abs=1e-6)


def test_areas_are_those_of_the_curve_by_sklearn(model, attribution, p):
    order, x = attribution.ranking(), [k / N for k in range(N + 1)]
    deletion = sklearn.auc(x, [p(order[:k]) for k in range(N + 1)])
    insertion = sklearn.auc(x, [p(order[k:]) for k in range(N + 1)])
    assert value("deletion_area", model, attribution) == pytest.approx(deletion, abs=1e-6)
    assert value("insertion_area", model, attribution) == pytest.approx(insertion, abs=1e-6)


def test_areas_of_a_sum_are_what_the_hand_finds():
    model, best = additive()
    # 4.8, 0.8, 0.2, 0 as the tokens go; 0, 4, 4.6, 4.8 as they come.
    assert faithfulness["deletion_area"].function(model, best) == pytest.approx((2.4 + 0.8 + 0.2) / 3)
    assert faithfulness["insertion_area"].function(model, best) == pytest.approx((4 + 4.6 + 2.4) / 3)


@pytest.mark.parametrize("order", [range(N), (3, 1, 5, 0, 4, 2)])
def test_deleting_in_an_order_is_inserting_in_the_reversed_one(model, attribution, order):
    there, back = ordered(attribution, order), ordered(attribution, list(order)[::-1])
    assert value("deletion_area", model, there) == pytest.approx(value("insertion_area", model, back), abs=1e-9)


def test_few_places_of_the_curve_stand_at_the_share_that_was_really_taken(model, attribution, p):
    order = attribution.ranking()
    sizes = [0, 2, 6]  # a quarter of six tokens is two of them
    expected = np.trapezoid([p(order[:k]) for k in sizes], [k / N for k in sizes])
    assert value("deletion_area", model, attribution, bins=(0.25,)) == pytest.approx(expected, abs=1e-6)


def test_log_odds_are_the_logarithms_of_the_models_own_probabilities(model, attribution, p):
    order = attribution.ranking()
    found = value("log_odds", model, attribution, bins=(0.2, 0.5))
    assert found == pytest.approx((math.log(p(order[:2])) + math.log(p(order[:3]))) / 2 - math.log(p(())), abs=1e-5)


@pytest.mark.parametrize("bins", ["some", (), (0.2, 1.5), (-0.1,)])
def test_bins_that_are_no_shares_are_refused(attribution, bins):
    with pytest.raises(InputError, match="bins is 'all'"):
        inspect.unwrap(shares_of)(attribution, bins)


# ---------------------------------------------------------------- normalised


def test_normalised_metrics_are_the_formula_of_the_paper(model, attribution, p):
    order, whole, empty = attribution.ranking(), p(()), p(range(N))
    assert empty < whole
    at_zero = 1 - max(0, whole - empty)
    sufficiencies, comprehensivenesses = [], []
    for share in BINS:
        k = math.ceil(share * N)
        kept = 1 - max(0, whole - p(order[k:]))
        sufficiencies.append(np.clip((kept - at_zero) / (1 - at_zero), 0, 1))
        comprehensivenesses.append(np.clip(max(0, whole - p(order[:k])) / (1 - at_zero), 0, 1))
    found = [value(f"normalised_{name}", model, attribution) for name in ("sufficiency", "comprehensiveness")]
    assert found == pytest.approx([np.mean(sufficiencies), np.mean(comprehensivenesses)], abs=1e-4)


def test_normalised_metrics_are_not_defined_where_nothing_can_fall(model, attribution, probabilities):
    unlikely = int((probabilities(range(N)) - probabilities(())).argmax())
    other = replace(attribution, target=model.resolve(attribution.example, Target(unlikely)))
    names = [name for name in faithfulness if "normalised" in name]
    assert len(names) == 4 and all(math.isnan(value(name, model, other)) for name in names)


def test_normalised_metrics_are_one_where_the_top_token_does_all():
    made = planted("P5")
    truth = attribute(made.model, made.example, lambda m, e, t: made.truth, made.target)
    for name in ("normalised_comprehensiveness", "normalised_sufficiency"):
        assert faithfulness[name].function(made.model, truth) == pytest.approx(1)


# ---------------------------------------------------------------- between the worst and the best order


def areas(p):
    """The mean fall of every order, by counting them out."""
    falls = {order: np.mean([p(()) - p(order[:k]) for k in range(1, N + 1)]) for order in _orders()}
    return falls, min(falls.values()), max(falls.values())


def _orders():
    return list(itertools.permutations(range(N)))


@pytest.mark.parametrize("options", [{}, {"exact_up_to": 0, "beam": 100}], ids=["exact", "wide beam"])
def test_naopc_lies_between_the_ends_that_counting_out_all_orders_finds(model, attribution, p, options):
    falls, low, high = areas(p)
    for order in (tuple(attribution.ranking()), (2, 0, 1, 5, 3, 4)):
        given = ordered(attribution, order)
        found = [value(f"naopc_{name}", model, given, **options) for name in ("comprehensiveness", "sufficiency")]
        expected = [(falls[order] - low) / (high - low), (falls[order[::-1]] - low) / (high - low)]
        assert found == pytest.approx(expected, abs=1e-5)


def test_the_best_order_has_one_and_the_worst_none(model, attribution, p):
    falls, _, _ = areas(p)
    best, worst = max(falls, key=falls.get), min(falls, key=falls.get)
    assert value("naopc_comprehensiveness", model, ordered(attribution, best)) == pytest.approx(1)
    assert value("naopc_comprehensiveness", model, ordered(attribution, worst)) == pytest.approx(0)
    # Beyond a narrow beam there may be better orders: then the order itself is the end.
    narrow = {"exact_up_to": 0, "beam": 1}
    assert value("naopc_comprehensiveness", model, ordered(attribution, best), **narrow) == pytest.approx(1)


def test_naopc_of_a_sum_is_what_the_hand_finds():
    """Second, first, third: falls 0.6, 4.6, 4.8, in all 10; best 4 + 4.6 + 4.8 = 13.4, worst 0.2 + 0.8 + 4.8 = 5.8."""
    model, best = additive()
    found = faithfulness["naopc_comprehensiveness"].function(model, ordered(best, (1, 0, 2)))
    assert found == pytest.approx((10 - 5.8) / (13.4 - 5.8))


@pytest.mark.parametrize("options", [{"exact_up_to": 17}, {"exact_up_to": -1}, {"beam": 0}])
def test_naopc_refuses_what_would_not_end(model, attribution, options):
    with pytest.raises(InputError, match="exact_up_to is 0 to 16"):
        value("naopc_comprehensiveness", model, attribution, **options)


# ---------------------------------------------------------------- soft


@pytest.mark.parametrize(("keeps", "staying"), [("score", {1, 4}), ("complement", {0, 2, 3, 5})])
def test_soft_metrics_with_scores_of_none_and_one_are_the_hard_ones(model, attribution, p, keeps, staying):
    scores = torch.zeros(N)
    scores[[1, 4]] = 1
    sharp, others = replace(attribution, scores=scores), set(range(N)) - staying
    found = [value(f"soft_{name}", model, sharp, keeps=keeps) for name in ("sufficiency", "comprehensiveness")]
    assert found == pytest.approx([p(()) - p(others), p(()) - p(staying)], abs=1e-6)


def test_soft_metrics_keep_each_number_with_the_chance_of_its_score():
    """y is a sum and linear in the embeddings, so a token with s = ½ gives half of its part on average."""
    model, truth = additive()
    scores = torch.tensor([1.0, 0.5, 0.0])
    given = replace(truth, scores=scores)
    found = faithfulness["soft_sufficiency"].function(model, given, n_draws=4000)
    assert found == pytest.approx(4.8 - 4 - 0.3, abs=0.05)
    found = faithfulness["soft_comprehensiveness"].function(model, given, n_draws=4000)
    assert found == pytest.approx(4.8 - 0.2 - 0.3, abs=0.05)


def test_soft_metrics_follow_their_seed_and_draw_at_least_ten_times(model, attribution):
    first, again, other = (value("soft_sufficiency", model, attribution, seed=s) for s in (0, 0, 1))
    assert first == again != other
    assert all(e.options["n_draws"] >= 10 for name, e in faithfulness.items() if name.startswith("soft"))


def test_soft_metrics_drop_to_zero_unless_asked_and_refuse_what_takes_keys_out(model, attribution):
    plain = faithfulness["soft_sufficiency"].function(model, attribution)
    assert plain == value("soft_sufficiency", model, attribution, operator="zero")
    with pytest.raises(InputError, match="single numbers of an embedding"):
        value("soft_sufficiency", model, attribution, operator="attention_mask")
    with pytest.raises(InputError, match="keeps is 'score'"):
        inspect.unwrap(faithfulness["soft_sufficiency"].function)(model, attribution, keeps="s")


# ---------------------------------------------------------------- monotonicity


def test_adding_monotonicity_counts_steps_up(model, attribution, p):
    order = sorted(range(N), key=lambda i: abs(float(attribution.scores[i])))
    curve = [p(order[k:]) for k in range(N + 1)]
    expected = np.mean([b >= a for a, b in itertools.pairwise(curve)])
    assert value("adding_monotonicity", model, attribution) == pytest.approx(expected)


def test_adding_tokens_that_all_help_is_monotonic_in_any_order():
    model, truth = additive()
    orders = [ordered(truth, order) for order in itertools.permutations(range(3))]
    assert {faithfulness["adding_monotonicity"].function(model, order) for order in orders} == {1.0}


def test_a_step_that_changes_nothing_is_no_fall():
    made = planted("P5")  # two of three tokens have no effect
    for order in itertools.permutations(range(3)):
        given = ordered(attribute(made.model, made.example, "random_scores", made.target), order)
        assert faithfulness["adding_monotonicity"].function(made.model, given) == 1


def test_effect_monotonicity_is_spearman_of_sizes_and_effects(model, attribution, p):
    given = ordered(attribution, (3, 1, 5, 0, 4, 2))
    effects = [abs(p(()) - p((j,))) for j in range(N)]
    expected = stats.spearmanr(given.scores.abs(), effects).statistic
    assert value("effect_monotonicity", model, given) == pytest.approx(expected)
    assert math.isnan(value("effect_monotonicity", model, replace(given, scores=torch.ones(N))))


# ---------------------------------------------------------------- infidelity


def test_infidelity_of_the_parts_of_a_sum_is_nothing_and_their_unit_does_not_matter_unless_asked():
    model, truth = additive()
    metric = faithfulness["infidelity"].function
    tripled = replace(truth, scores=3 * truth.scores)
    assert metric(model, truth, normalize=False) == pytest.approx(0, abs=1e-10)
    assert metric(model, tripled) == pytest.approx(0, abs=1e-10)
    assert metric(model, tripled, normalize=False) > 1


@pytest.mark.parametrize("normalize", [True, False])
def test_infidelity_is_the_mean_squared_gap(model, attribution, normalize):
    scores = attribution.scores.double().numpy()
    generator = torch.Generator().manual_seed(5)
    gone = (torch.rand(40, N, generator=generator, dtype=torch.float32) < 0.5).numpy()
    assert gone.any(1).all()  # so that none had to be added
    embeddings = model.embed(attribution.example)

    def answer(without):
        moved = embeddings.clone()
        moved[torch.from_numpy(without)] = model.fillers["mean"]
        with torch.no_grad():
            return float(attribution.target(model.module(inputs_embeds=moved[None]).logits)[0])

    falls = np.array([answer(np.zeros(N, bool)) - answer(row) for row in gone])
    sums = gone @ scores
    factor = (sums * falls).sum() / (sums**2).sum() if normalize else 1.0
    found = value("infidelity", model, attribution, normalize=normalize, n_samples=40, seed=5)
    assert found == pytest.approx(float(((factor * sums - falls) ** 2).mean()), rel=1e-3, abs=1e-8)


# ---------------------------------------------------------------- planted truths


def test_special_tokens_stay_whatever_goes(model, attribution, p):
    ends = replace(attribution.example, is_special=(True, False, False, False, False, True))
    given = replace(ordered(attribution, (0, 5, 3, 1, 4, 2)), example=ends)
    assert value("comprehensiveness", model, given, bins=(0.5,)) == pytest.approx(p(()) - p((3, 1)), abs=1e-6)
    assert value("sufficiency", model, given, bins=(0.5,)) == pytest.approx(p(()) - p((4, 2)), abs=1e-6)
    expected = sklearn.auc([k / 4 for k in range(5)], [p((3, 1, 4, 2)[k:]) for k in range(5)])
    assert value("insertion_area", model, given) == pytest.approx(expected, abs=1e-6)
    assert value("soft_sufficiency", model, replace(given, scores=torch.zeros(N)), keeps="score") != 0


def test_nothing_taken_costs_nothing_and_everything_left_suffices(model, attribution):
    assert value("comprehensiveness", model, attribution, bins=(0.0,)) == 0
    assert value("sufficiency", model, attribution, bins=(1.0,)) == 0
    assert value("log_odds", model, attribution, bins=(0.0,)) == 0


@pytest.mark.parametrize("name", ["P4", "P5"])
@pytest.mark.parametrize("metric", [n for n, e in faithfulness.items() if n != "decision_flip"])
def test_the_true_order_is_as_good_as_any_other_on_a_planted_sum(name, metric):
    made = planted(name)
    truth = attribute(made.model, made.example, lambda m, e, t: made.truth, made.target)
    sign = -1 if faithfulness[metric].facts["better"] == "lower" else 1
    orders = [ordered(truth, order) for order in itertools.permutations(range(made.example.n_tokens))]
    # Infidelity and soft metrics look at amounts too, so the other orders get the true amounts in other places.
    amounts = made.truth.float().sort(descending=True).values
    others = [replace(o, scores=amounts[o.scores.argsort(descending=True).argsort()]) for o in orders]
    options = {"n_draws": 500} if metric.startswith("soft") else {}
    found = [sign * faithfulness[metric].function(made.model, o, operator="zero", **options) for o in (truth, *others)]
    assert found[0] >= max(found) - 1e-9 and (metric == "adding_monotonicity" or min(found) < found[0])


def test_tenths_are_read_from_the_curves_that_a_comparison_evaluates_anyway():
    from attnprobe.study import SHARES

    assert set(TENTHS) <= set(SHARES) and {0.0, 1.0} <= set(SHARES)
