"""Two claims about maps of rxnmapper, kept apart: a map names the source of an atom; a map explains a prediction."""

from collections import Counter

import pytest
import torch

from attnprobe import load
from attnprobe.judgement import JUDGES, judge
from attnprobe.models.removal import units
from benchmarks.mapping.explaining import MAPS, head_10_5
from benchmarks.mapping.naming import ANY, ELEMENT, all_first, chances, hits, whole_maps
from benchmarks.mapping.reading import drawn_atoms, element, masked, tokens_of, with_tokens
from benchmarks.reactions import Reaction, read_reactions
from tests.real import smiles

# Worked out by hand: in C C N . C C ( = O ) Cl >> C C N C ( C ) = O the nitrogen takes the place of the chlorine.
AMIDE, AMIDE_SOURCES = "CCN.CC(=O)Cl>>CCNC(C)=O", ((0,), (1,), (2,), (4,), (3,), (5,))
# The oxygen of this product comes from the only other oxygen.
OXYGEN = "CC(=O)Cl.CN>>CNC(C)=O"


@pytest.fixture(scope="module")
def mapper(rxnmapper_folder):
    return load((smiles.load_rxnmapper(rxnmapper_folder), smiles.smiles_tokenizer(rxnmapper_folder)), name="rxnmapper")


def of_text(text: str) -> Reaction:
    return next(reaction for reaction in read_reactions() if reaction.text == text)


def split(reaction: Reaction):
    """Its tokens, without a model."""
    from tokenizers import Regex, pre_tokenizers

    parts = pre_tokenizers.Split(Regex(smiles.SPLIT), behavior="isolated").pre_tokenize_str(reaction.text)
    return with_tokens(reaction, ("[CLS]", *(part for part, _ in parts), "[SEP]"))


# ---------------------------------------------------------------- the list


def test_the_list_has_sixty_reactions_of_four_templates_and_none_twice():
    texts = [reaction.text for reaction in read_reactions()]
    assert len(texts) >= 60 and len(set(texts)) == len(texts)
    assert len({reaction.template for reaction in read_reactions()}) >= 4


def test_the_truth_of_an_amide_coupling_is_the_one_worked_out_by_hand():
    assert of_text(AMIDE).sources == AMIDE_SOURCES


def test_every_product_atom_has_sources_of_its_element_and_no_source_is_used_up():
    for reaction in read_reactions():
        tokens = split(reaction)
        assert len(reaction.sources) == len(tokens.product), reaction.text
        for atom, token in enumerate(tokens.product):
            found = {element(tokens.tokens[source]) for source in tokens.sources(atom)}
            assert found == {element(tokens.tokens[token])}, reaction.text
        # As many product atoms share their sources as there are sources, or fewer.
        assert all(n <= len(sources) for sources, n in Counter(reaction.sources).items()), reaction.text


def test_bonded_product_atoms_were_bonded_before_but_for_at_most_one_new_bond():
    for reaction in read_reactions():
        before = {frozenset(bond) for bond in reaction.bonds}
        made = [
            (a, b)
            for a, b in reaction.product_bonds
            if not any(frozenset((s, t)) in before for s in reaction.sources[a] for t in reaction.sources[b])
        ]
        # In a product whose two halves are the same, symmetry makes the new bond look like an old one.
        assert len(made) <= 1, reaction.text


def test_elements_are_read_off_tokens():
    assert [element(token) for token in ("C", "c", "Br", "[nH]", "[N+]")] == ["C", "C", "Br", "N", "N"]


def test_weights_that_tie_name_a_source_only_if_all_of_them_are_sources():
    assert all_first(torch.tensor([0.2, 0.5]), [False, True])
    assert not all_first(torch.tensor([0.5, 0.5]), [False, True])


# ---------------------------------------------------------------- the model


@pytest.mark.real
def test_the_mapping_head_names_sources_and_rollout_is_no_better_than_chance(mapper):
    right, chance = Counter(), []
    for reaction in read_reactions()[::20]:
        tokens, maps = tokens_of(mapper, reaction), whole_maps(mapper, reaction.text)
        for atom, token in enumerate(tokens.product):
            chance.append(chances(tokens, atom)[ELEMENT])
            for name in ("10.5", "rollout"):
                right[name] += hits(maps[name][token], tokens, atom)[ELEMENT]
    n, expected = len(chance), sum(chance)
    assert right["10.5"] > 0.85 * n
    assert abs(right["rollout"] - expected) < 3 * (expected * (1 - expected / n)) ** 0.5


@pytest.mark.real
def test_the_mask_asks_the_question_and_is_no_unit(mapper):
    tokens = tokens_of(mapper, of_text(AMIDE))
    for atom in drawn_atoms(tokens, 0):
        asked = masked(mapper, tokens, atom)
        assert asked.target.label_name == tokens.tokens[asked.position]
        assert asked.position not in units(asked.example, asked.target).tolist()
        assert asked.example.tokens[asked.position] == "[MASK]"


@pytest.mark.real
def test_a_head_can_name_the_source_of_an_atom_that_is_told_without_the_source(mapper):
    tokens = tokens_of(mapper, of_text(OXYGEN))
    asked = masked(mapper, tokens, 4)
    scores = head_10_5(mapper, asked.example, asked.target).values
    assert hits(scores, tokens, 4)[ANY] and asked.target.label_name == "O"
    # Transformers alone, with the source masked as well.
    ids = asked.example.inputs["input_ids"].clone()
    ids[0, list(tokens.sources(4))] = int(ids[0, asked.position])
    with torch.no_grad():
        left = mapper.module(input_ids=ids).logits[0, asked.position].softmax(-1)
    assert float(left[asked.target.label]) > 0.9


@pytest.mark.real
def test_both_operators_judge_a_map_of_a_masked_atom(mapper):
    tokens = tokens_of(mapper, of_text(OXYGEN))
    asked = masked(mapper, tokens, 4)
    scores = MAPS["head (10, 5)"](mapper, asked.example, asked.target).values
    others = [mapper.example(AMIDE)]
    verdict = judge(mapper, asked.example, asked.target, scores, n_orders=2, tolerance=None, data=others)
    assert verdict.operators == JUDGES and not verdict.lacking
    assert asked.position not in verdict.units().token_index.tolist()
