"""Random planted models: what is claimed of their tokens holds on the network itself."""

from itertools import product

import pytest
import torch

from attnprobe.errors import InputError
from attnprobe.models.planted.families import FAMILIES, variant


def test_there_are_at_least_fifteen_families():
    assert len(FAMILIES) >= 15
    assert {"P1", "P1c", "P2", "P3", "P5", "P6", "P7", "P8", "P9", "P10", "P12"} <= set(FAMILIES)
    assert {"positional", "retrieval", "copying", "two_layer"} <= set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_acting_tokens_have_two_fifths_of_the_largest_influence_and_others_at_most_a_tenth(family: str):
    found = variant(family, 7)
    acting = torch.zeros(found.n_tokens, dtype=torch.bool)
    acting[list(found.causal)] = True
    assert 8 <= found.n_tokens <= 40 and 0 < len(found.causal) < found.n_tokens
    assert float(found.influence[acting].min()) >= 0.4 and float(found.influence.max()) == pytest.approx(1)
    assert float(found.influence[~acting].max()) <= 0.1


@pytest.mark.parametrize("family", ["P1c", "P8"])
def test_influence_is_what_a_plain_loop_over_contents_and_company_gives(family: str):
    found = variant(family, 3)
    model, example = found.made.model, found.made.example
    target = model.resolve(example, found.made.target)
    here, there = model.embed(example), [model.embed(other) for other in found.others]

    def y(replaced: set[int], other: torch.Tensor) -> float:
        rows = torch.stack([other[j] if j in replaced else here[j] for j in range(found.n_tokens)])
        with torch.no_grad():
            return float(target(model.module(rows[None])))

    def influence(token: int) -> float:
        company = [j for j in found.causal if j != token]
        changes = []
        for present in product((False, True), repeat=len(company)):
            gone = {j for j, out in zip(company, present, strict=True) if out}
            changes += [abs(y(gone | {token}, other) - y(gone, other)) for other in there]
        return sum(changes) / len(changes)

    tokens = [*found.causal, *[j for j in range(found.n_tokens) if j not in found.causal][:3]]
    expected = torch.tensor([influence(token) for token in tokens], dtype=torch.float64)
    assert torch.allclose(found.influence[tokens], expected / expected.max(), atol=1e-9)


def test_the_same_number_gives_the_same_variant():
    first, again, other = variant("P19", 4), variant("P19", 4), variant("P19", 5)
    assert torch.equal(first.made.model.embed(first.made.example), again.made.model.embed(again.made.example))
    assert first.causal == again.causal and (first.n_tokens, first.causal) != (other.n_tokens, other.causal)


def test_twins_give_the_same_answer_on_every_input_and_have_other_attention():
    found = variant("P3", 0)
    one, two = found.made.model, found.twin.model
    for example in (found.made.example, *found.others):
        rows = one.embed(example)[None]
        assert torch.allclose(one.module(rows), two.module(rows), atol=1e-12)
    maps = [m.capture(found.made.example).weights()[-1].mean(0) for m in (one, two)]
    assert float((maps[0] - maps[1]).abs().max()) > 0.01


@pytest.mark.parametrize("family", ["P1", "P10", "copying"])
def test_near_the_boundary_some_others_have_a_tenth_to_two_fifths(family: str):
    found = variant(family, 1, boundary=True)
    rest = found.influence.clone()
    rest[list(found.causal)] = 0
    assert 0.1 < float(rest.max()) < 0.4 and found.boundary


def test_the_mean_embedding_says_next_to_nothing():
    found = variant("P7", 2)
    model, target = found.made.model, found.made.model.resolve(found.made.example, found.made.target)
    with torch.no_grad():
        said = float(target(model.module(model.fillers["mean"].expand(1, found.n_tokens, -1))))
    assert abs(said) < 0.1 * abs(found.made.answer)


def test_a_family_that_does_not_exist_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'retrieval'"):
        variant("retreival", 0)
    with pytest.raises(InputError, match="no variants near the boundary"):
        variant("P12", 0, boundary=True)
