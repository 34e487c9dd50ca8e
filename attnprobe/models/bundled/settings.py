"""The settings of the training and the configuration of the model."""

from dataclasses import dataclass

from transformers import BertConfig


@dataclass(frozen=True)
class Settings:
    """What was chosen on the validation split."""

    layers: int = 3
    heads: int = 4
    width: int = 128
    pieces: int = 6000  # size of the vocabulary
    longest: int = 128  # pieces of the longest text
    batch: int = 32
    pretrain_epochs: int = 10
    pretrain_rate: float = 1.5e-3
    pretrain_hidden: float = 0.2  # share of the pieces that are to be guessed
    pretrain_decay: float = 0.01
    epochs: int = 8
    rate: float = 5e-4
    decay: float = 0.05
    dropout: float = 0.2
    hidden: float = 0.3  # each sentence hides a share of its pieces drawn between zero and this
    slope: float = 1.5  # a sentence of mean rating r counts as positive with probability sigmoid(slope r)
    product_weight: float = 0.5  # of a product sentence, beside 1 for a movie sentence
    averaging: float = 0.995  # of the moving average of the weights that is kept
    seed: int = 0


def make_config(settings: Settings, pieces: int, dropout: float) -> BertConfig:
    """A BERT of the given vocabulary size and dropout, with the two labels."""
    return BertConfig(
        vocab_size=pieces,
        hidden_size=settings.width,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=4 * settings.width,
        max_position_embeddings=settings.longest,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        id2label={0: "negative", 1: "positive"},
        label2id={"negative": 0, "positive": 1},
    )
