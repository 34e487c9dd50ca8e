"""A tokenizer for reaction SMILES, and the two models that read them, as transformers loads them.

The packages ship a vocabulary and no tokenizer file. Their models were trained on the usual atom-level
split: an atom in brackets is one token, so are Br, Cl, `>>` and ring bonds of two digits; else a character.
"""

from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, models, pre_tokenizers, processors
from transformers import AlbertForMaskedLM, AutoConfig, BertForSequenceClassification, PreTrainedTokenizerFast

SPLIT = r"\[[^\]]+\]|Br|Cl|>>|%[0-9]{2}|."
SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def smiles_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of the `vocab.txt` in a folder: `[CLS] $A [SEP]`, offsets into the text."""
    vocabulary = {token: index for index, token in enumerate((folder / "vocab.txt").read_text("utf-8").split())}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL["unk"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, vocabulary[token]) for token in (SPECIAL["cls"], SPECIAL["sep"])],
    )
    names = {f"{role}_token": token for role, token in SPECIAL.items()}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **names)


def load_rxnmapper(folder: Path, **options: Any) -> AlbertForMaskedLM:
    """rxnmapper's ALBERT, ready to predict masked tokens."""
    return AlbertForMaskedLM.from_pretrained(folder, **options).eval()


def load_rxnfp(folder: Path, **options: Any) -> BertForSequenceClassification:
    """rxnfp's classifier with all of its 50 classes."""
    config = AutoConfig.from_pretrained(folder)
    config.num_labels = 50
    return BertForSequenceClassification.from_pretrained(folder, config=config, **options).eval()


def atoms(tokens: list[str]) -> list[int]:
    """The indices of the tokens that are atoms.

    >>> atoms(["[CLS]", "C", "(", "Cl", ")", "n", "[NH+]", ">>", "1", "[SEP]"])
    [1, 3, 5, 6]
    """
    special = set(SPECIAL.values())
    return [index for index, token in enumerate(tokens) if token not in special and token.strip("[")[0].isalpha()]
