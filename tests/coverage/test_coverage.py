"""Capture on one type of each kind; `benchmarks/coverage.py` runs all of them."""

import csv
from pathlib import Path

import pytest
import torch

from attnprobe import load
from attnprobe.attention.seam import Keep, Tape
from attnprobe.models.model import Stack, facts_of
from benchmarks.covering import measure
from benchmarks.covering.tables import badge, coverage_text
from benchmarks.tiny_models import build

ROOT = Path(__file__).parent.parent.parent

# How the attention of each type is computed, and reached.
REGISTRY = ["bert", "albert", "gpt2", "llama", "gemma2", "t5", "bart", "modernbert", "deepseek_v3", "vit", "clip"]
SINKS_AND_SPARSE = ["gpt_oss", "granite_swa", "deepseek_v32"]
SOFTMAX = ["bloom", "mpt", "falcon", "gpt_neo", "deberta", "deberta-v2", "xlnet", "mpnet", "swinv2", "sam_vision_model"]
TORCH_LAYERS = ["wavlm", "bridgetower"]
LAYOUTS = ["longformer", "led", "big_bird", "prophetnet", "longt5", "reformer", "deformable_detr", "informer"]
HYBRIDS = ["jamba", "qwen3_next"]
PARTS = ["qwen2_vl", "swin", "florence2", "whisper"]
ATTENDING = [*REGISTRY, *SINKS_AND_SPARSE, *SOFTMAX, *TORCH_LAYERS, *LAYOUTS, *HYBRIDS, *PARTS]
WITHOUT = ["mamba", "fnet", "rwkv"]


@pytest.mark.parametrize("name", ATTENDING)
def test_capture_is_exact_and_leaves_nothing_behind(name):
    row = measure(name)
    assert row.exact, row


@pytest.mark.parametrize("name", WITHOUT)
def test_a_type_without_attention_weights_is_refused_with_what_it_has_instead(name):
    row = measure(name)
    assert row.built and not row.attention and row.restored, row
    assert "no attention weights to show" in row.reason


@pytest.mark.parametrize(
    ("name", "stacks"),
    [
        ("clip", [("vision", "self"), ("text", "self")]),
        ("blip-2", [("vision", "self"), ("qformer", "self"), ("qformer", "cross"), ("text", "self")]),
        ("florence2", [("vision", "self"), ("encoder", "self"), ("decoder", "self"), ("decoder", "cross")]),
        ("clap", [("audio", "self"), ("text", "self")]),
        ("sam", [("vision", "self"), ("mask", "self"), ("mask", "cross")]),
        ("bloom", [("decoder", "self")]),
        ("xlm-roberta", [("encoder", "self")]),
    ],
)
def test_every_tower_is_addressed_by_name(name, stacks):
    built = build(name)
    tape = Tape(n_rows=1, keep=Keep(reduce=facts_of), check=False)
    with torch.no_grad(), load(built.module).listening(tape):
        built.module(**built.inputs)
    assert [(stack.name, stack.kind) for stack in Stack.of_pass(tape)] == stacks


def test_the_layers_of_a_hybrid_that_do_not_attend_are_listed_with_the_reason():
    model = load(build("jamba").module)
    (layer,) = model.mapless
    assert layer.layer_class == "JambaMambaMixer" and "state space" in layer.reason


def test_the_report_counts_what_the_rows_say():
    rows = [measure("bert"), measure("mamba"), measure("no_such_type")]
    assert badge(rows).startswith("exact on 1 of 1 attention-bearing model types of transformers (1 not built: ")
    text = coverage_text(rows, "Argued.")
    assert "3 types, 2 built, 1 of them run attention, 1 exact (100.0%)" in text and "no_such_type" in text


def test_the_readme_says_what_the_kept_table_counts():
    with (ROOT / "benchmarks" / "coverage.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    attending = [row for row in rows if row["built"] == row["attention"] == "True"]
    exact = [row for row in attending if row["exact"] == "True"]
    not_built = sum(row["built"] == "False" for row in rows)
    said = f"exact on {len(exact)} of {len(attending)} attention-bearing model types of transformers ({not_built} types"
    assert said in (ROOT / "README.md").read_text("utf-8").replace("\n", " ")
