"""A tiny random classifier and a tiny random language model, saved as anybody's would be; nothing is downloaded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as t
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

import attnprobe.report
from attnprobe.cli.app import main

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "a", "good", "bad", "film", "plot", "very", "not", "dull", "warm", "and", "the", "is", ".", "5"]
N_POSITIONS = 16
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}


def words_tokenizer(*, classifier: bool) -> t.PreTrainedTokenizerFast:
    """A word a token; a classifier's texts stand between [CLS] and [SEP]."""
    ids = {word: index for index, word in enumerate(WORDS)}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    if classifier:
        ends = [("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])]
        tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ends)
    names = ("pad", "unk", "cls", "sep", "mask") if classifier else ("pad", "unk")
    special = {f"{name}_token": f"[{name.upper()}]" for name in names}
    return t.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=N_POSITIONS, **special)


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a BERT of two classes, "negative" and "positive", and its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "classifier"
    labels = {0: "negative", 1: "positive"}
    torch.manual_seed(0)
    config = t.BertConfig(
        **SIZES,
        vocab_size=len(WORDS),
        max_position_embeddings=N_POSITIONS,
        pad_token_id=0,
        id2label=labels,
        label2id={name: index for index, name in labels.items()},
    )
    t.BertForSequenceClassification(config).save_pretrained(folder)
    words_tokenizer(classifier=True).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a GPT-2 that predicts one of the words, and its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "language_model"
    torch.manual_seed(0)
    config = t.GPT2Config(
        n_embd=16,
        n_layer=2,
        n_head=2,
        vocab_size=len(WORDS),
        n_positions=N_POSITIONS,
        bos_token_id=None,
        eos_token_id=None,
    )
    t.GPT2LMHeadModel(config).save_pretrained(folder)
    words_tokenizer(classifier=False).save_pretrained(folder)
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that the command runs in."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, str]]:
    """A quick stand-in for the page; gives the comparisons and commands that pages were made from."""
    made: list[tuple[Any, str]] = []

    def write(comparison: Any, path: Path, *, command: str = "", **_: Any) -> Path:
        made.append((comparison, command))
        comparison.save_tables(path.with_suffix(""))
        path.write_text("a page", "utf-8")
        return path

    monkeypatch.setattr(attnprobe.report, "write", write)
    return made


@pytest.fixture
def refused(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command that must be refused: exit code 2, one message, nothing written. Gives the message."""

    def run(*words: object) -> str:
        before = sorted(here.rglob("*"))
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        errors = [line for line in err.splitlines() if line.startswith("attnprobe: error: ")]
        assert (code, out, len(errors)) == (2, "", 1), err
        assert "Traceback" not in err
        assert sorted(here.rglob("*")) == before
        return errors[0].removeprefix("attnprobe: error: ")

    return run
