"""Captures of tiny random models, with all that the viewer can show."""

from dataclasses import replace

import pytest
import torch
import transformers

import attnprobe
from attnprobe.attention.seam import Keep
from attnprobe.models import load
from tests import tiny

ALL = Keep.of("weights", "scores", "query", "key", "value")


@pytest.fixture(scope="session", params=["bert", "gpt2", "t5", "vit"])
def several(request):
    """A model with a capture of all its tensors: an encoder, a decoder, both, and one that reads pictures."""
    model = load(tiny.build(request.param))
    return model, model.capture(tiny.example(model, request.param), keep=ALL)


@pytest.fixture(scope="session")
def bert():
    model = load(tiny.build("bert"))
    return model, model.capture(model.example(tiny.IDS), keep=ALL)


@pytest.fixture(scope="session")
def long_text():
    """A text of 400 tokens, beyond what is kept in full."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=60, hidden_size=36, num_hidden_layers=3, num_attention_heads=6, intermediate_size=32
    )
    model = load(transformers.BertForSequenceClassification(config).eval())
    ids = torch.randint(5, 60, (400,), generator=torch.Generator().manual_seed(1)).tolist()
    return model, model.capture(model.example(ids))


HOSTILE = ("<script>alert(1)</script>", "<!--", "&", "\N{GRINNING FACE}", "سلام", "注意", "</b>'\"", " a\n")


@pytest.fixture(scope="session")
def full(bert):
    """A view with all that there is to see."""
    model, capture = bert
    return attnprobe.view(capture, model=model, target=0)


@pytest.fixture(scope="session")
def hostile(bert):
    """A view whose tokens try to get out of the page."""
    _, capture = bert
    n = capture.example.n_tokens
    tokens = (*HOSTILE, *["word"] * n)[:n]
    return attnprobe.view(replace(capture, example=replace(capture.example, tokens=tokens, spans=(None,) * n)))
