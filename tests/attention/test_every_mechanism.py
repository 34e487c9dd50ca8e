"""What holds for every mechanism in the registry: its map is what its z is made of, and it says what it cannot do."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from attnprobe.attention.masks import causal_mask
from attnprobe.attention.mechanisms import ASKED, Mechanism, mechanisms
from attnprobe.errors import InputError
from attnprobe.site import Place

N_TOKENS, D_HEAD, D_VALUE = 7, 4, 3
TOLERANCE = 1e-10

# Settings that bind at so few tokens, beside the defaults, which every mechanism is tested with.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "compressive": [{"n_recent": 3, "factor": 2}],
    "favor": [{"n_features": 6, "seed": 1}],
    "hopfield": [{"n_steps": 1, "beta": 2.0}, {"n_steps": 4, "beta": 0.7}],
    "linformer": [{"n_slots": 3}, {"E": torch.eye(N_TOKENS)[:2].double(), "F": torch.ones(2, N_TOKENS).double()}],
    "lsh": [{"n_buckets": 2, "chunk": 3, "n_rounds": 3}, {"n_buckets": 1, "chunk": 2}],
    "memory_compressed": [{"factor": 2, "kernel": torch.tensor([0.3, 1.2])}],
    "nearest": [{"k": 1}, {"k": 2, "by": "distance"}],
    "nystrom": [{"n_landmarks": 3}, {"n_landmarks": 3, "inverse": "iterative", "n_steps": 3}],
    "online": [{"block_size": 2}],
    "scaled_dot": [{"normalizer": name} for name in ("sparsemax", "entmax15", "sigmoid", "softmax_plus_one")],
    "top_k": [{"k": 2}],
}
SHARED = {"lsh"}  # queries are the keys
NOT_SMOOTH = {"hard"}  # its gradient is not the slope of what it computes (straight-through)
UNUSED = {"uniform": {"query", "key"}, "nearest": {"query", "key"}}  # what no gradient reaches

NAMES = list(mechanisms)
CASES = [(name, options) for name in NAMES for options in ({}, *SETTINGS.get(name, ()))]
CAUSAL = [(name, {**options, "causal": True}) for name, options in CASES if "causal" in mechanisms[name].options]
# A segment of compressive attention is never compressed while it is asked: see its own tests.
CAUSAL = [(name, options) for name, options in CAUSAL if options.get("n_recent", N_TOKENS) >= N_TOKENS]


def in_words(given: Any) -> str:
    if not isinstance(given, dict):
        return str(given)
    values = {name: "given" if torch.is_tensor(value) else value for name, value in given.items()}
    return ",".join(f"{name}={value}" for name, value in values.items()) or "defaults"


every_case = pytest.mark.parametrize(("name", "options"), CASES + CAUSAL, ids=in_words)
every_causal = pytest.mark.parametrize(("name", "options"), CAUSAL, ids=in_words)
every_name = pytest.mark.parametrize("name", NAMES)


def inputs_of(name: str, *batch: int, n_queries: int = N_TOKENS, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """Query, key and value."""
    key = torch.randn(*batch, N_TOKENS, D_HEAD, dtype=dtype)
    query = key.clone() if name in SHARED else torch.randn(*batch, n_queries, D_HEAD, dtype=dtype)
    return [query, key, torch.randn(*batch, N_TOKENS, D_VALUE, dtype=dtype)]


def largest_difference(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


@every_case
def test_the_map_times_the_values_is_what_the_mechanism_computes(name: str, options: dict[str, Any]):
    query, key, value = inputs_of(name, 2, 3)
    mechanism = Mechanism.of(name, **options)
    weights, z = mechanism.weights(query, key), mechanism.z(query, key, value)
    assert weights.shape == (2, 3, N_TOKENS, N_TOKENS)
    assert weights.isfinite().all()
    assert largest_difference(weights @ value, z) < TOLERANCE


@every_case
def test_the_map_is_the_derivative_of_z_by_the_values(name: str, options: dict[str, Any]):
    query, key, value = inputs_of(name)
    mechanism = Mechanism.of(name, **options)
    found = torch.autograd.functional.jacobian(lambda v: mechanism.z(query, key, v), value)
    # ∂ z_ia / ∂ v_jb = A_ij where a = b, and 0 elsewhere
    expected = torch.einsum("ij,ab->iajb", mechanism.weights(query, key), torch.eye(D_VALUE, dtype=torch.float64))
    assert largest_difference(found, expected) < TOLERANCE


@every_case
def test_rows_of_the_map_sum_to_what_the_registry_says(name: str, options: dict[str, Any]):
    query, key, _ = inputs_of(name, 2)
    mechanism = Mechanism.of(name, **options)
    sums, row_sum = mechanism.weights(query, key).sum(-1), mechanism.row_sum
    assert row_sum in ("one", "at_most_one", "any")
    if row_sum == "one":
        assert (sums - 1).abs().max() < TOLERANCE
    if row_sum == "at_most_one":
        assert sums.max() < 1 + TOLERANCE


@pytest.mark.parametrize(("name", "options"), [(n, o) for n, o in CASES + CAUSAL if n not in SHARED], ids=in_words)
@pytest.mark.parametrize("n_queries", [1, 3])
def test_fewer_queries_than_keys_are_answered_alike(name: str, options: dict[str, Any], n_queries: int):
    query, key, value = inputs_of(name, 2, n_queries=n_queries)
    mechanism = Mechanism.of(name, **options)
    weights, z = mechanism.weights(query, key), mechanism.z(query, key, value)
    assert z.shape == (2, n_queries, D_VALUE)
    assert largest_difference(weights @ value, z) < TOLERANCE
    if options.get("causal"):  # the last query is at the last key
        assert weights[..., ~causal_mask(n_queries, N_TOKENS)].eq(0).all()


@every_case
def test_rows_and_heads_of_a_batch_do_not_see_each_other(name: str, options: dict[str, Any]):
    tensors = inputs_of(name, 2, 2)
    mechanism = Mechanism.of(name, **options)
    z = mechanism.z(*tensors)
    for row, head in ((0, 0), (1, 1)):
        assert largest_difference(mechanism.z(*(t[row, head] for t in tensors)), z[row, head]) < TOLERANCE
    others = [tensor.clone() for tensor in tensors]
    for tensor in others:
        tensor[1] *= -3
    assert torch.equal(mechanism.z(*others)[0], z[0])
    assert torch.equal(mechanism.weights(*others[:2])[0], mechanism.weights(*tensors[:2])[0])


@every_case
def test_inputs_stay_as_they_are_and_the_answer_is_the_same_again(name: str, options: dict[str, Any]):
    tensors = inputs_of(name, 2)
    before = [tensor.clone() for tensor in tensors]
    state = torch.get_rng_state()
    mechanism = Mechanism.of(name, **options)
    weights, z = mechanism.weights(*tensors[:2]), mechanism.z(*tensors)
    assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True))
    assert torch.equal(mechanism.z(*tensors), z)
    assert torch.equal(mechanism.weights(*tensors[:2]), weights)
    assert torch.equal(torch.get_rng_state(), state)


@every_name
def test_the_precision_of_the_input_is_that_of_the_answer(name: str):
    tensors = inputs_of(name, 2, dtype=torch.float32)
    mechanism = Mechanism.of(name)
    z, weights = mechanism.z(*tensors), mechanism.weights(*tensors[:2])
    assert z.dtype == weights.dtype == torch.float32
    assert largest_difference(weights @ tensors[2], z) < 1e-4


@every_name
def test_gradients_reach_query_key_and_value(name: str):
    reached = dict.fromkeys(("query", "key", "value"), False)
    for options in ({}, *SETTINGS.get(name, ())):
        tensors = [tensor.requires_grad_() for tensor in inputs_of(name, 2)]
        z = Mechanism.of(name, **options).z(*tensors)
        gradients = torch.autograd.grad(z.square().sum(), tensors, allow_unused=True)
        for which, gradient in zip(reached, gradients, strict=True):
            if gradient is not None:
                assert gradient.isfinite().all()
                reached[which] |= bool(gradient.ne(0).any())
    assert {which for which, there in reached.items() if not there} == UNUSED.get(name, set())


@pytest.mark.parametrize(("name", "options"), [(n, o) for n, o in CASES + CAUSAL if n not in NOT_SMOOTH], ids=in_words)
def test_gradients_are_the_slopes_of_z(name: str, options: dict[str, Any]):
    query, key, value = (tensor.requires_grad_() for tensor in inputs_of(name))
    mechanism = Mechanism.of(name, **options)
    if name in SHARED:
        assert torch.autograd.gradcheck(lambda x, v: mechanism.z(x, x, v), (query, value))
    else:
        assert torch.autograd.gradcheck(mechanism.z, (query, key, value))


@every_causal
def test_causal_attention_knows_nothing_of_what_lies_ahead(name: str, options: dict[str, Any]):
    query, key, value = inputs_of(name)
    mechanism = Mechanism.of(name, **options)
    assert mechanism.weights(query, key)[~causal_mask(N_TOKENS)].eq(0).all()
    if name in SHARED:
        return  # which tokens share a chunk depends on all of them
    before = mechanism.z(query, key, value)[:4]
    key[4:], value[4:] = -2 * key[4:], value[4:] + 1
    assert largest_difference(mechanism.z(query, key, value)[:4], before) < TOLERANCE


@every_name
@pytest.mark.parametrize("what", ASKED)
def test_a_mask_or_bias_that_it_does_not_take_is_refused_and_others_are_named(name: str, what: str):
    mechanism, tensors = Mechanism.of(name), inputs_of(name, 2)
    given = {"visible": causal_mask(N_TOKENS)} if what == "visible" else {"bias": torch.zeros(N_TOKENS, N_TOKENS)}
    if what in mechanisms[name].options:
        assert mechanism.z(*tensors, **given).isfinite().all()
        return
    able = [other for other in NAMES if what in mechanisms[other].options]
    for ask in (lambda: mechanism.z(*tensors, **given), lambda: mechanism.weights(*tensors[:2], **given)):
        with pytest.raises(InputError, match=rf"'{name}' takes no .*\({what}\)") as refused:
            ask()
        assert able
        assert all(other in str(refused.value) for other in able)


@pytest.mark.parametrize(("name", "options"), [c for c in CASES if "visible" in mechanisms[c[0]].options], ids=in_words)
def test_what_a_mask_hides_has_no_weight_and_no_influence(name: str, options: dict[str, Any]):
    query, key, value = inputs_of(name, 2)
    visible = torch.rand(2, N_TOKENS, N_TOKENS) < 0.5
    visible[:, :, 0], visible[0, 2] = True, False
    visible[:, :, -1] = False
    mechanism = Mechanism.of(name, **options)
    weights, z = mechanism.weights(query, key, visible), mechanism.z(query, key, value, visible)
    assert weights[~visible].eq(0).all()
    assert z[0, 2].eq(0).all()
    assert largest_difference(weights @ value, z) < TOLERANCE
    key[:, -1], value[:, -1] = 5.0, 1e6
    assert largest_difference(mechanism.z(query, key, value, visible), z) < TOLERANCE


@pytest.mark.parametrize(("name", "options"), [c for c in CASES if "bias" in mechanisms[c[0]].options], ids=in_words)
def test_a_bias_moves_weight_and_minus_infinity_hides(name: str, options: dict[str, Any]):
    query, key, value = inputs_of(name, 2)
    mechanism = Mechanism.of(name, **options)
    bias = torch.zeros(N_TOKENS, N_TOKENS, dtype=torch.float64)
    bias[:, 3] = 4.0
    weights = mechanism.weights(query, key, bias=bias)
    assert largest_difference(weights @ value, mechanism.z(query, key, value, bias=bias)) < TOLERANCE
    assert weights[..., 3].sum() > mechanism.weights(query, key)[..., 3].sum()
    hidden = torch.zeros_like(bias).masked_fill(~causal_mask(N_TOKENS), -torch.inf)
    by_mask = mechanism.weights(query, key, causal_mask(N_TOKENS))
    assert largest_difference(mechanism.weights(query, key, bias=hidden), by_mask) < TOLERANCE


@every_name
def test_a_site_of_the_mechanism_shows_the_same_map_and_z(name: str):
    tensors = inputs_of(name, 2, 2)
    mechanism = Mechanism.of(name)
    site = mechanism.site(Place("model", "self", 0, ""), *tensors)
    assert torch.equal(site.need("z"), mechanism.z(*tensors))
    assert torch.equal(site.need("weights"), mechanism.weights(*tensors[:2]))
    assert site.normalizer.row_sum == mechanism.row_sum


@every_name
def test_people_are_told_what_it_is_where_it_is_from_and_what_it_costs(name: str):
    entry = mechanisms[name]
    assert entry.description.endswith(".")
    assert entry.family and entry.source
    assert entry.facts["formula"] and "n" in entry.facts["cost"]
    assert entry.facts["meaning"][0] not in " *" and not entry.facts["meaning"].endswith(".")
    page = inspect.getmodule(entry.function).__doc__
    assert "[*batch" in page, "the first screen says the shapes"


def test_the_readme_has_a_row_for_every_mechanism_with_what_a_weight_is_and_what_it_costs():
    page = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    table = re.search(r"^\| name \| formula \| what a weight is \| cost \|\n.*\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.group(1).splitlines()]
    said = {name.strip("`"): (meaning, cost) for name, _, meaning, cost in rows}
    known = {name: (entry.facts["meaning"], entry.facts["cost"]) for name, entry in mechanisms.items()}
    assert len(rows) == len(said)
    assert said == known


@every_name
def test_z_and_the_map_take_the_same_options(name: str):
    z, weights = mechanisms[name].function, mechanisms[name].facts["weights"]
    options = [
        {n: (p.default, p.annotation) for n, p in inspect.signature(f).parameters.items() if p.kind is p.KEYWORD_ONLY}
        for f in (z, weights)
    ]
    assert options[0] == options[1]
