"""The tokenizer that stands in for the one which the packages do not ship."""

from pathlib import Path

import pytest

from tests.real.smiles import smiles_tokenizer

pytestmark = pytest.mark.real

REACTION = "CCN.CC(=O)Cl>>CCNC(C)=O"


def test_a_reaction_is_split_into_atoms_bonds_and_one_arrow(rxnmapper_folder: Path):
    tokens = smiles_tokenizer(rxnmapper_folder).convert_ids_to_tokens(
        smiles_tokenizer(rxnmapper_folder)(REACTION).input_ids
    )
    assert " ".join(tokens) == "[CLS] C C N . C C ( = O ) Cl >> C C N C ( C ) = O [SEP]"


def test_brackets_and_two_letter_elements_and_long_ring_bonds_are_one_token(rxnmapper_folder: Path):
    tokens = smiles_tokenizer(rxnmapper_folder).tokenize("Brc%11c[nH]c%11[N+](=O)[O-]")
    assert tokens == ["Br", "c", "%11", "c", "[nH]", "c", "%11", "[N+]", "(", "=", "O", ")", "[O-]"]


def test_offsets_cut_the_text_into_its_tokens(rxnmapper_folder: Path):
    encoded = smiles_tokenizer(rxnmapper_folder)(REACTION, return_offsets_mapping=True, add_special_tokens=False)
    pieces = [REACTION[start:end] for start, end in encoded["offset_mapping"]]
    assert pieces == smiles_tokenizer(rxnmapper_folder).convert_ids_to_tokens(encoded.input_ids)
    assert "".join(pieces) == REACTION


def test_the_vocabulary_is_the_models(rxnmapper_folder: Path, rxnfp_folder: Path):
    for folder in (rxnmapper_folder, rxnfp_folder):
        tokenizer = smiles_tokenizer(folder)
        assert (len(tokenizer), tokenizer.pad_token_id, tokenizer.mask_token_id) == (591, 0, 14)
        assert tokenizer("U[Xx]").input_ids[1:3] == [tokenizer.unk_token_id] * 2
