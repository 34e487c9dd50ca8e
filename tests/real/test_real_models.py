"""The main job on real pretrained models: what is known of them is seen through attnprobe."""

import pytest
import torch

from attnprobe import Target, attribute, compare, load
from attnprobe.choosing import DEFAULT
from tests.real import smiles

pytestmark = pytest.mark.real

REACTION = "CCN.CC(=O)Cl>>CCNC(C)=O"
# Token by token behind [CLS]: C C N . C C ( = O ) Cl >> C C N C ( C ) = O. Product atoms and their sources.
SOURCE_OF_ATOM = {13: (1,), 14: (2,), 15: (3,), 16: (6,), 18: (5,), 21: (9,)}


@pytest.fixture(scope="module")
def mapper(rxnmapper_folder):
    return load((smiles.load_rxnmapper(rxnmapper_folder), smiles.smiles_tokenizer(rxnmapper_folder)), name="rxnmapper")


@pytest.fixture(scope="module")
def classifier(rxnfp_folder):
    return load((smiles.load_rxnfp(rxnfp_folder), smiles.smiles_tokenizer(rxnfp_folder)), name="rxnfp")


def test_one_head_of_rxnmapper_points_from_each_product_atom_to_its_source(mapper):
    example = mapper.example(REACTION)
    assert [example.tokens[i] for i in SOURCE_OF_ATOM] == ["C", "C", "N", "C", "C", "O"]
    capture = mapper.capture(example, check="full")
    assert mapper.stacks[0].n_layers == 12 and set(mapper.stacks[0].n_heads) == {8}
    weights = capture.weights()[10, 5]
    reactants = example.tokens.index(">>")
    for product, sources in SOURCE_OF_ATOM.items():
        assert int(weights[product, :reactants].argmax()) in sources
        assert float(weights[product].max()) > 0.5


def test_rollout_on_rxnmapper_loses_what_the_head_knows(mapper):
    example = mapper.example(REACTION)
    whole = attribute(mapper, example, "rollout", Target(label="C", position=13)).map
    reactants = example.tokens.index(">>")
    found = [int(whole[product, :reactants].argmax()) in sources for product, sources in SOURCE_OF_ATOM.items()]
    assert sum(found) <= 2


def test_the_shared_layers_of_rxnmapper_are_twelve_sites(mapper):
    capture = mapper.capture(mapper.example(REACTION))
    assert [s.place.layer for s in capture.sites] == list(range(12))
    assert {s.place.path for s in capture.sites} == {capture.sites[0].place.path}


def test_a_masked_token_is_explained_by_every_method(mapper):
    example = mapper.example("CCN.CC(=O)Cl>>CC[MASK]C(C)=O")
    target = mapper.resolve(example)
    assert target.predicted_name == "N" and target.position == example.tokens.index("[MASK]")
    found = attribute(mapper, example, "leave_one_out")
    assert example.tokens[int(found.scores.argmax())] in ("N", "[MASK]")


def test_the_reaction_classifier_goes_through_compare(classifier, tmp_path):
    reactions = [REACTION, "CCCN.CCC(=O)Cl>>CCCNC(=O)CC", "CN.O=C(Cl)c1ccccc1>>CNC(=O)c1ccccc1"]
    comparison = compare(
        classifier,
        reactions,
        n_random=5,
        n_resamples=50,
        oracle=False,  # the search for the best order and the verdicts take minutes at this size
        verdicts=False,
        progress=False,
        options={"shapley_sampling": {"n_samples": 5}},
    )
    assert set(comparison.methods) == set(DEFAULT) and comparison.failures.empty
    assert comparison.checks.passed.all()
    assert len({study.target.predicted for study in comparison.studies}) == 1  # amide couplings, one class
    page = comparison.report(tmp_path / "page.html").read_text("utf-8")
    assert "rxnfp" in page and "https://" not in page.split("<body")[1].split("<footer")[0].replace("</a>", "")


def test_the_classifiers_logits_are_those_without_attnprobe_bit_for_bit(classifier):
    example = classifier.example(REACTION)
    with torch.no_grad():
        expected = classifier.module(**example.inputs).logits
    assert torch.equal(classifier.capture(example, check="full").logits, expected)
