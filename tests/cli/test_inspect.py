"""attnprobe inspect: what there is in a saved model, printed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers as t

import attnprobe
import attnprobe.models
from attnprobe.cli.app import main
from tests.models.test_inspecting import SigmoidAttention, gpt2_with


@pytest.fixture
def printed(here: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """What the command prints for a model; nothing is written."""

    def run(model: object, *words: str) -> str:
        assert main(["inspect", str(model), *words]) == 0
        assert list(here.iterdir()) == []
        return capsys.readouterr().out

    return run


@pytest.fixture
def mamba(tmp_path: Path) -> Path:
    """A folder with a model that has no attention, and no tokenizer."""
    config = t.MambaConfig(vocab_size=20, hidden_size=16, num_hidden_layers=2, state_size=4)
    t.MambaForCausalLM(config).save_pretrained(tmp_path / "mamba")
    return tmp_path / "mamba"


@pytest.mark.parametrize("which", ["classifier", "language_model"])
def test_the_table_is_what_the_library_prints(printed: Callable[..., str], which: str, request: Any):
    folder = request.getfixturevalue(which)
    out = printed(folder)
    assert out == f"{attnprobe.inspect(str(folder))}\n"
    assert out.splitlines()[1].split()[1:4] == ["self", "0-1", "2"]  # two layers with two heads each


def test_json_holds_a_record_a_layer(printed: Callable[..., str], classifier: Path):
    found = json.loads(printed(classifier, "--format", "json"))
    assert found["layers"] == attnprobe.inspect(str(classifier)).to_frame().to_dict(orient="records")
    assert [layer["path"] for layer in found["layers"]] == [f"bert.encoder.layer.{i}.attention.self" for i in (0, 1)]
    assert (found["architecture"], found["mapless"], found["unseen"]) == ("BertForSequenceClassification", [], [])


def test_the_text_that_is_given_is_looked_at(printed: Callable[..., str], classifier: Path):
    assert "'a good film': input_ids [1, 5]" in printed(classifier, "--text", "a good film")


def test_a_model_without_attention_is_an_answer(printed: Callable[..., str], mamba: Path):
    assert printed(mamba).startswith("attention weights: none")
    found = json.loads(printed(mamba, "--format", "json"))
    assert found["layers"] == []
    assert [layer["path"] for layer in found["mapless"]] == [f"backbone.layers.{i}.mixer" for i in (0, 1)]


def test_the_weights_are_read_once(printed: Callable[..., str], classifier: Path, monkeypatch: pytest.MonkeyPatch):
    read: list[object] = []
    real = t.BertForSequenceClassification.from_pretrained

    def counting(*args: Any, **kwargs: Any) -> Any:
        read.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(t.BertForSequenceClassification, "from_pretrained", counting)
    printed(classifier, "--text", "a")
    assert len(read) == 1


def test_what_cannot_be_done_is_one_message(
    refused: Callable[..., str], classifier: Path, monkeypatch: pytest.MonkeyPatch
):
    assert "no model './nowhere'" in refused("inspect", "./nowhere")
    assert "the text is empty" in refused("inspect", classifier, "--text", " ")
    assert 'Choose from: "table", "json", "csv"' in refused("inspect", classifier, "--format", "yaml")
    unreachable = attnprobe.load(gpt2_with(SigmoidAttention, 0, 1, 2))
    monkeypatch.setattr(attnprobe.models, "load", lambda *_, **__: unreachable)
    assert "transformer.h.0.attn" in refused("inspect", "any")
