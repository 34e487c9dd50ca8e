"""What is known of the real models, seen by transformers alone: the truth that attnprobe is held against."""

from pathlib import Path

import pytest
import torch

from tests.real.smiles import atoms, load_rxnfp, load_rxnmapper, smiles_tokenizer

pytestmark = pytest.mark.real

REACTION = "CCN.CC(=O)Cl>>CCNC(C)=O"
SOURCE_OF = {13: 1, 14: 2, 15: 3, 16: 6, 18: 5, 21: 9}  # by the chemistry: the amine attacks the acid chloride
LAYER, HEAD = 10, 5

AMIDES = ("CCN.CC(=O)Cl>>CCNC(C)=O", "CCCN.O=C(Cl)c1ccccc1>>CCCNC(=O)c1ccccc1")
SUZUKI = ("Brc1ccccc1.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1", "Brc1ccncc1.OB(O)c1ccccc1>>c1ccc(-c2ccncc2)cc1")


@torch.no_grad()
def test_one_head_of_rxnmapper_points_from_each_product_atom_to_the_atom_it_was(rxnmapper_folder: Path):
    tokenizer = smiles_tokenizer(rxnmapper_folder)
    inputs = tokenizer(REACTION, return_tensors="pt")
    tokens = tokenizer.convert_ids_to_tokens(inputs.input_ids[0])
    model = load_rxnmapper(rxnmapper_folder, attn_implementation="eager")
    weights = model(**inputs, output_attentions=True).attentions[LAYER][0, HEAD]

    arrow = tokens.index(">>")
    products = [index for index in atoms(tokens) if index > arrow]
    pointed = {index: int(weights[index].argmax()) for index in products}
    assert pointed == SOURCE_OF
    assert all(tokens[product] == tokens[source] for product, source in pointed.items())
    assert min(float(weights[product, source]) for product, source in pointed.items()) > 0.6


@torch.no_grad()
def test_rxnfp_puts_reactions_of_one_kind_into_one_class(rxnfp_folder: Path):
    tokenizer = smiles_tokenizer(rxnfp_folder)
    model = load_rxnfp(rxnfp_folder)
    logits = [model(**tokenizer(reaction, return_tensors="pt")).logits for reaction in (*AMIDES, *SUZUKI)]
    assert all(row.shape == (1, 50) for row in logits)
    first, second, third, fourth = (int(row.argmax()) for row in logits)
    assert first == second
    assert third == fourth
    assert first != third
