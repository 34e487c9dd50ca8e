"""The WordPiece vocabulary, learned from the training sentences only."""

from collections.abc import Sequence

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def learn_vocabulary(texts: Sequence[str], size: int) -> dict[str, int]:
    """At most `size` pieces that occur at least twice, with their ids; the same texts give the same ids.

    The trainer numbers the inner letters (`##a`) in the order of a hash table, which changes from run
    to run and decides ties later on; naming them beforehand fixes that order.
    """
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    letters = sorted({letter for text in texts for letter in tokenizer.normalizer.normalize_str(text)})
    inner = [f"##{letter}" for letter in letters if letter.isalnum()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=2, special_tokens=SPECIAL + inner, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.get_vocab()


def make_tokenizer(vocabulary: dict[str, int], longest: int) -> BertTokenizer:
    """A lower-casing WordPiece tokenizer over the vocabulary that cuts texts at `longest` pieces."""
    return BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=longest)


def encode(tokenizer: BertTokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, special tokens included, cut at the tokenizer's limit."""
    return tokenizer(list(texts), truncation=True)["input_ids"] if texts else []
