"""inspect(): what it says of a model is what its configuration and its captures say."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as t
from torch import nn

import attnprobe
from attnprobe.attention.seam import Keep
from attnprobe.attention.transformer import TransformerClassifier
from attnprobe.errors import InputError
from attnprobe.models import load
from attnprobe.models.inspecting import Inspection, inspect
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.path_patterns import families, numbers, path_pattern
from attnprobe.site import TENSORS
from tests import tiny

SIZES = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 4, "intermediate_size": 48}
SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}

_BUILDERS: dict[str, Callable[[], Any]] = {
    "bloom": lambda: t.BloomForCausalLM(t.BloomConfig(vocab_size=60, hidden_size=32, n_layer=3, n_head=4)),
    "jamba": lambda: t.JambaForCausalLM(
        t.JambaConfig(
            **SIZES, **SPECIAL, **HEADS, attn_layer_period=2, attn_layer_offset=1, num_experts=2, mamba_dt_rank=4
        )
    ),
    "mamba": lambda: t.MambaForCausalLM(
        t.MambaConfig(vocab_size=60, hidden_size=32, num_hidden_layers=3, state_size=4)
    ),
    "fnet": lambda: t.FNetModel(t.FNetConfig(**SIZES, tpu_short_seq_length=32)),
    "resnet": lambda: t.ResNetModel(t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])),
    "swin": lambda: t.SwinModel(
        t.SwinConfig(image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
    ),
    "longformer": lambda: t.LongformerModel(
        t.LongformerConfig(**{**SIZES, "num_hidden_layers": 2}, num_attention_heads=4, attention_window=[4, 4])
    ),
}
WITH_ATTENTION = ("bloom", "jamba", "swin", "longformer", "bert", "gpt2", "llama", "t5", "albert", "vit")
WITHOUT = ("mamba", "fnet", "resnet")


def build(name: str) -> Any:
    return _BUILDERS[name]().eval() if name in _BUILDERS else tiny.build(name)


def table_of(found: Inspection) -> list[list[str]]:
    """The cells of the first table that is printed, without its head."""
    lines = str(found).split("\n\n")[0].splitlines()[1:]
    return [re.split(r"\s{2,}", line) for line in lines if not line.startswith("route")]


# ---------------------------------------------------------------- what there is


@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_the_stacks_are_those_of_the_model(name: str):
    model = load(build(name))
    assert inspect(model).stacks == model.stacks


@pytest.mark.parametrize("name", WITH_ATTENTION)
def test_every_layer_is_a_row_that_a_module_stands_for(name: str):
    module = build(name)
    frame = inspect(module).to_frame()
    assert list(frame.columns[:3]) == ["stack", "kind", "layer"]
    assert {path for path in frame.path if isinstance(module.get_submodule(path), nn.Module)} == set(frame.path)
    for _, layers in frame.groupby(["stack", "kind"]):
        assert list(layers.layer) == list(range(len(layers)))


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("gpt2", [["decoder", "self", "0-2", "4", "registry", "transformer.h.{0-2}.attn"]]),
        ("bloom", [["decoder", "self", "0-2", "4", "softmax", "transformer.h.{0-2}.self_attention"]]),
        ("llama", [["decoder", "self", "0-2", "4 on 2 kv", "registry", "model.layers.{0-2}.self_attn"]]),
        ("jamba", [["decoder", "self", "0-1", "4 on 2 kv", "registry", "model.layers.{1,3}.self_attn"]]),
        (
            "t5",
            [
                ["encoder", "self", "0-2", "4", "registry", "encoder.block.{0-2}.layer.0.SelfAttention"],
                ["decoder", "self", "0-2", "4", "registry", "decoder.block.{0-2}.layer.0.SelfAttention"],
                ["decoder", "cross", "0-2", "4", "registry", "decoder.block.{0-2}.layer.1.EncDecAttention"],
            ],
        ),
        (
            "swin",  # 8 x 8 patches in windows of 4 x 4, then 4 x 4 patches in one
            [
                ["vision", "self", "0-1", "2", "4", "registry", "encoder.layers.0.blocks.{0-1}.attention"],
                ["vision", "self", "2-3", "4", "1", "registry", "encoder.layers.1.blocks.{0-1}.attention"],
            ],
        ),
    ],
)
def test_layers_that_are_alike_are_one_row_with_what_the_configuration_says(name: str, rows: list[list[str]]):
    assert table_of(inspect(build(name))) == rows


def test_a_module_that_is_called_for_every_layer_is_one_row_that_says_so():
    found = inspect(build("albert"))
    ((*_, layers, heads, route, path),) = table_of(found)
    assert (layers, heads, route) == ("0-2", "4", "registry")
    assert path.endswith("attention (3 calls of 1 module)")
    assert found.to_frame().path.nunique() == 1


@pytest.mark.parametrize("name", ["bert", "longformer"])
def test_what_is_said_to_be_missing_is_what_a_capture_does_not_have(name: str):
    model = load(build(name))
    frame = inspect(model, tiny.IDS).to_frame()
    sites = model.capture(model.example(tiny.IDS), keep=Keep.of(*TENSORS)).sites
    assert list(frame.missing) == [", ".join(n for n in TENSORS if getattr(s, n) is None) for s in sites]
    assert ("not seen" in str(inspect(model))) == (name == "longformer")


def test_the_facts_are_those_of_the_module():
    module = tiny.build("bert", "sdpa").to(torch.bfloat16)
    found = inspect(module)
    assert found.n_parameters == module.num_parameters()
    assert (found.architecture, found.dtype, found.implementation) == (type(module).__name__, "bfloat16", "sdpa")
    assert all(word in str(found) for word in (f"{module.num_parameters():,}", "bfloat16", "sdpa", "input_ids [1, 8]"))


def test_a_network_of_ours_is_inspected_like_any_other():
    vocabulary = Vocabulary.of(["a good film"], specials=("[PAD]", "[UNK]", "[CLS]"))
    network = TransformerClassifier(len(vocabulary.tokens), 2, d_model=16, n_heads=2, n_layers=2, max_length=8)
    found = inspect(OwnModel(network, vocabulary, labels=("no", "yes")))
    ((_, _, layers, heads, route, _),) = table_of(found)
    assert (layers, heads, route) == ("0-1", "2", "seam")


# ---------------------------------------------------------------- an input of one's own


def test_windows_are_counted_on_the_input_that_is_given():
    module = build("swin")
    larger = {"pixel_values": torch.rand(1, 3, 64, 64)}
    sizes = {
        "made up": inspect(module).to_frame().n_parts,
        "larger": inspect(module, example=larger, numerics="own").to_frame().n_parts,
    }
    assert {name: tuple(parts) for name, parts in sizes.items()} == {"made up": (4, 4, 1, 1), "larger": (16, 16, 4, 4)}


def test_the_input_that_was_looked_at_is_named():
    assert inspect(build("bert"), [5, 6, 7]).probed == "'5 6 7': input_ids [1, 3], attention_mask [1, 3]"
    assert inspect(build("vit"), torch.rand(3, 12, 12)).probed.endswith(": pixel_values [1, 3, 12, 12]")


def test_an_input_that_the_model_does_not_read_is_an_error():
    with pytest.raises(InputError, match="no token with the id 99"):
        inspect(build("bert"), [99])


# ---------------------------------------------------------------- what there is not


@pytest.mark.parametrize("name", WITHOUT)
@pytest.mark.parametrize("how", ["short input", "own input"])
def test_a_model_without_attention_is_no_error(name: str, how: str):
    given = {"pixel_values": torch.rand(1, 3, 32, 32)} if name == "resnet" else tiny.IDS
    found = inspect(build(name), given if how == "own input" else None)
    assert (found.stacks, found.unseen, found.reason, len(found.to_frame())) == ((), (), None, 0)
    assert str(found).startswith("attention weights: none")


def test_layers_without_weights_are_listed_with_their_reason():
    module = build("jamba")
    found = inspect(module)
    assert [layer.path for layer in found.mapless] == ["model.layers.0.mamba", "model.layers.2.mamba"]
    (line,) = [line for line in str(found).splitlines() if "JambaMambaMixer" in line]
    assert line.split()[:3] == ["2", "JambaMambaMixer", "model.layers.{0,2}.mamba"]
    assert line.endswith(found.mapless[0].reason)


class SigmoidAttention(nn.Module):
    """Attention without a softmax, in the place of one of GPT-2's."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(32, 32)

    def forward(self, states, *_, **__):
        return torch.sigmoid(self.map(states) @ states.transpose(-1, -2)) @ states, None


class SummedAttention(SigmoidAttention):
    """Attention whose weights meet the values in no matrix product."""

    def forward(self, states, *_, **__):
        weights = torch.softmax(self.map(states) @ states.transpose(-1, -2), -1)
        return (weights[..., None] * states[:, None]).sum(-2), None


def gpt2_with(attention: type[nn.Module], *layers: int) -> Any:
    module = tiny.build("gpt2")
    for layer in layers:
        module.transformer.h[layer].attn = attention()
    return module


@pytest.mark.parametrize(
    ("attention", "field", "head"),
    [(SummedAttention, "unseen", "could not be reached"), (SigmoidAttention, "blank", "showed no weights")],
)
def test_attention_out_of_reach_is_named_beside_what_was_seen(attention: type[nn.Module], field: str, head: str):
    found = inspect(gpt2_with(attention, 0, 1))
    assert getattr(found, field) == ("transformer.h.0.attn", "transformer.h.1.attn")
    assert found.unseen == () or found.blank == ()
    assert [row[-1] for row in table_of(found)] == ["transformer.h.2.attn"]
    lines = str(found).splitlines()
    assert lines[next(i for i, line in enumerate(lines) if head in line) + 1] == "  transformer.h.{0-1}.attn"


@pytest.mark.parametrize("attention", [SummedAttention, SigmoidAttention])
def test_a_model_whose_attention_is_all_out_of_reach_says_why(attention: type[nn.Module]):
    found = inspect(gpt2_with(attention, 0, 1, 2))
    assert found.stacks == () and found.reason is not None and "transformer.h.0.attn" in found.reason
    assert str(found).startswith(f"attention weights: {found.reason}")


def test_a_model_for_which_no_short_input_is_known_asks_for_one():
    class Odd(nn.Module):
        def forward(self, waves):
            return waves

    found = inspect(Odd())
    assert found.reason is not None and "give an example of your own" in found.reason
    assert found.probed == "no input"


def test_what_is_no_model_is_an_error():
    with pytest.raises(InputError, match="load takes a name"):
        attnprobe.inspect(42)


# ---------------------------------------------------------------- patterns


def written_out(pattern: str) -> set[str]:
    """The paths that a pattern of runs and lists names; a slow reading of it."""
    if "{" not in pattern:
        return {pattern}
    start, rest = pattern.split("{", 1)
    inside, end = rest.split("}", 1)
    found: list[int] = []
    for part in inside.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return {f"{start}{n}{more}" for n in found for more in written_out(end)}


@pytest.mark.parametrize(
    "paths",
    [
        ["a.0.x", "a.1.x", "a.2.x"],
        ["a.0.b.0", "a.0.b.1", "a.1.b.0", "a.1.b.1"],
        ["a.0.b.0", "a.1.b.0", "a.1.b.1", "a.1.b.2"],  # stages of different depth
        ["block0.attn1", "block0.attn2", "block3.attn1", "end"],
        ["", "a"],
        ["a.09", "a.10", "a.11"],
    ],
)
def test_patterns_name_these_paths_and_no_others(paths: list[str]):
    named = [path_pattern(family) for family in families(paths)]
    assert sorted(path for pattern in named for path in written_out(pattern)) == sorted(set(paths))


def test_numbers_are_runs_and_even_steps():
    assert numbers([5]) == "5" and numbers([2, 0, 1]) == "0-2" and numbers([0, 2, 4]) == "0,2,4"
    assert numbers(range(1, 32, 2)) == "1,3,…,31"
