"""Two small comparisons, made once: a tiny random BERT with a word vocabulary, one text and several."""

from dataclasses import replace

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from attnprobe.comparison import Comparison, compare
from attnprobe.example import Example
from attnprobe.models import load

WORDS = [
    "the",
    "actors",
    "are",
    "wonderful",
    "but",
    "plot",
    "is",
    "wasted",
    "on",
    "a",
    "tired",
    "predictable",
    "script",
    "film",
    "good",
    "bad",
    "very",
    "not",
]
METHODS = ("raw_attention", "rollout", "attention_x_gradient", "input_x_gradient", "leave_one_out", "random_scores")
HOSTILE = (
    "</script><b>",
    "a & b",
    "\N{HEBREW LETTER ALEF}\N{HEBREW LETTER BET}",
    "\"quoted'",
    " space\n",
    "zero\u200bwidth",
)


def tiny_bert():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*special, *WORDS])}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{n}_token": f"[{n.upper()}]" for n in ("pad", "unk", "cls", "sep", "mask")}
    labels = {0: "negative", 1: "positive"}
    config = BertConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        id2label=labels,
        label2id={v: k for k, v in labels.items()},
    )
    torch.manual_seed(0)
    model = BertForSequenceClassification(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.ndim == 2 and "embeddings" not in name:
                p *= 12
    return load((model, PreTrainedTokenizerFast(tokenizer_object=words, **names)))


@pytest.fixture(scope="session")
def model():
    with torch.random.fork_rng(devices=[]):
        return tiny_bert()


@pytest.fixture(scope="session")
def one(model) -> Comparison:
    """One text."""
    return compare(
        model,
        "the actors are wonderful but the plot is wasted",
        METHODS,
        n_random=8,
        n_resamples=50,
        seed=7,
        verdicts=False,
        progress=False,
    )


@pytest.fixture(scope="session")
def many(model) -> Comparison:
    """Seven texts."""
    texts = [
        "the film is good",
        "the film is not bad",
        "a tired script",
        "bad plot",
        "very good actors",
        "the plot is wasted",
        "good",
    ]
    return compare(model, texts, METHODS, n_random=4, n_resamples=50, verdicts=False, progress=False)


def with_tokens(comparison: Comparison, tokens: tuple[str, ...]) -> Comparison:
    """The comparison of one text with other words in the place of its first ones, everywhere."""
    study = comparison.studies[0]
    n = study.example.n_tokens
    names = ("[CLS]", *tokens, *study.example.tokens[len(tokens) + 1 :])[:n]
    example: Example = replace(study.example, tokens=names, spans=(None,) * n, text=" ".join(tokens))
    attributions = tuple(replace(a, example=example) for a in study.attributions)
    return replace(
        comparison,
        studies=(
            replace(study, example=example, attributions=attributions, capture=replace(study.capture, example=example)),
        ),
    )


@pytest.fixture(scope="session")
def hostile(one) -> Comparison:
    """One text whose tokens try to get out of the page."""
    return with_tokens(one, HOSTILE)
