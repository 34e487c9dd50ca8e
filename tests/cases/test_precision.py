"""Case 19: half precision, quantized layers, and models spread over devices are neither moved nor cast."""

import copy

import pytest
import torch
import transformers
from torch.nn import functional

from attnprobe.attention.seam import Keep
from attnprobe.attributing import attribute
from attnprobe.capture import Capture
from attnprobe.errors import InputError, NumericsError
from attnprobe.intervention import silence_head
from attnprobe.models import load
from attnprobe.site import Place, Site
from attnprobe.target import Target
from tests import tiny

HALF = [torch.bfloat16, torch.float16]
CELLS = [(n, i) for n in tiny.NAMES for i in ("eager", "sdpa") if not (i == "sdpa" and n in tiny.EAGER_ONLY)]


def state(module):
    """Where every parameter and buffer is, in which numbers, and what it holds."""
    parts = [*module.named_parameters(), *module.named_buffers()]
    return [(name, t.device, t.dtype, t.data_ptr(), t._version) for name, t in parts]


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize(("name", "implementation"), CELLS)
def test_half_precision_has_finite_weights_in_the_models_numbers_and_passes_its_checks(name, implementation, dtype):
    module = tiny.build(name, implementation).to(dtype)
    model, before = load(module), state(module)
    capture = model.capture(tiny.example(model, name), check="full")
    assert all(bool(torch.isfinite(site.weights).all()) for site in capture.sites)
    assert all(check.passed for check in capture.checks) and capture.logits.dtype == dtype
    assert state(module) == before


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("name", ["bert", "llama", "gemma2", "t5"])
def test_half_precision_on_eager_has_the_models_own_weights_bit_for_bit(name, dtype):
    module = tiny.build(name, "eager").to(dtype)
    model = load(module)
    example = tiny.example(model, name)
    maps, logits = tiny.reference(module, dict(example.inputs))
    capture = model.capture(example)
    for (stack, kind), expected in maps.items():
        assert torch.equal(capture.weights(stack or None, kind), expected) and expected.dtype == dtype
    assert torch.equal(capture.logits, logits)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_under_autocast_the_logits_with_capture_are_those_without(name, implementation):
    module = tiny.build(name, implementation)
    model = load(module)
    with torch.autocast("cpu", torch.bfloat16):
        capture = model.capture(model.example(tiny.IDS), check="full")
        with torch.no_grad():
            assert torch.equal(capture.logits, module(torch.tensor([tiny.IDS])).logits)
        edited = model.capture(model.example(tiny.IDS), edits=[silence_head(1, 1)])
    assert bool(torch.isfinite(capture.weights()).all()) and not torch.equal(edited.logits, capture.logits)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_values_that_overflow_in_float16_name_their_layer(implementation):
    module = tiny.build("llama", implementation).half()
    with torch.no_grad():
        module.model.layers[1].self_attn.v_proj.weight.fill_(6e4)
    model = load(module)
    with pytest.raises(NumericsError, match=r"layer 1 \(model\.layers\.1\.self_attn\).*float32 or bfloat16"):
        model.capture(model.example(tiny.IDS))


def test_scores_that_overflow_in_float16_name_their_layer():
    module = _with_large_scores("eager")
    with pytest.raises(NumericsError, match=r"layer 1 \(model\.layers\.1\.self_attn\).*float32 or bfloat16"):
        load(module).capture(load(module).example(tiny.IDS))


def _with_large_scores(implementation):
    """A Llama in float16 whose scores in layer 1 are beyond what float16 holds."""
    module = tiny.build("llama", implementation).half()
    with torch.no_grad():
        for part in (module.model.layers[1].self_attn.q_proj, module.model.layers[1].self_attn.k_proj):
            part.weight.mul_(2000)
    return module


def test_scores_that_the_fused_kernel_can_hold_are_no_overflow():
    """A fused kernel keeps its scores in float32: the model's answer is finite, and so are its weights."""
    module = _with_large_scores("sdpa")
    with torch.no_grad():
        logits = module(torch.tensor([tiny.IDS])).logits
    assert bool(torch.isfinite(logits).all())
    capture = load(module).capture(load(module).example(tiny.IDS))
    assert torch.equal(capture.logits, logits) and bool(torch.isfinite(capture.weights()).all())


def test_half_weights_beside_a_fused_kernel_are_as_close_to_its_z_as_rounding_allows():
    """T5 has large scores; their rounding to bfloat16 alone is an error of 2 % of a weight."""
    module = tiny.build("t5", "sdpa").bfloat16()
    model = load(module)
    capture = model.capture(tiny.example(model, "t5"), keep=Keep.of("query", "key", "value", "weights"))
    for site in capture.sites:
        if site.place.stack == "decoder" and site.place.kind == "cross":  # the only one without a position bias
            exact = (site.query.float() @ site.key.float().transpose(2, 3)).softmax(-1)
            torch.testing.assert_close(site.weights.float(), exact, atol=5e-3, rtol=0)


def test_an_overflow_behind_the_last_attention_is_a_numerics_error_too():
    module = tiny.build("llama", "sdpa").half()
    with torch.no_grad():
        module.model.layers[2].mlp.down_proj.weight.fill_(6e4)
        module.model.layers[2].mlp.up_proj.weight.fill_(100)
    with pytest.raises(NumericsError, match="logits"):
        load(module).capture(load(module).example(tiny.IDS))


class QuantizedLinear(torch.nn.Module):
    """A linear map whose weight is whole numbers and one scale a row, made real when it runs: 8 bits, or 4 of them."""

    def __init__(self, linear, bits):
        super().__init__()
        largest = 2 ** (bits - 1) - 1
        scale = linear.weight.detach().abs().amax(1, keepdim=True) / largest
        self.register_buffer("whole", (linear.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x):
        return functional.linear(x, self.whole.to(x.dtype) * self.scale.to(x.dtype), self.bias)


def quantized(bits, implementation):
    """A Llama with every linear map in few bits; and one whose weights are those few values, in float32."""
    module = tiny.build("llama", implementation)
    plain = copy.deepcopy(module)
    for path, part in [(n, p) for n, p in module.named_modules() if isinstance(p, torch.nn.Linear)]:
        small = QuantizedLinear(part, bits)
        parent, _, name = path.rpartition(".")
        setattr(module.get_submodule(parent), name, small)
        with torch.no_grad():
            plain.get_submodule(path).weight.copy_(small.whole.float() * small.scale)
    return module, plain


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("bits", [8, 4])
def test_a_quantized_model_is_captured_and_edited_as_it_is(bits, implementation):
    module, plain = quantized(bits, implementation)
    model, real, before = load(module), load(plain), state(module)
    example = model.example(tiny.IDS)
    for edits in ([], [silence_head(1, 1)]):
        found, expected = (m.capture(example, edits=edits, check="full") for m in (model, real))
        torch.testing.assert_close(found.weights(), expected.weights(), atol=1e-5, rtol=0)
        torch.testing.assert_close(found.logits, expected.logits, atol=1e-4, rtol=0)
    assert state(module) == before
    assert {part.whole.dtype for part in module.modules() if isinstance(part, QuantizedLinear)} == {torch.int8}


@pytest.mark.parametrize("method", ["raw_attention", "attention_x_gradient", "integrated_gradients", "leave_one_out"])
def test_methods_run_on_a_quantized_model(method):
    module, plain = quantized(8, "sdpa")
    before = state(module)
    found, expected = (attribute(load(m), load(m).example(tiny.IDS), method, Target(label=7)) for m in (module, plain))
    torch.testing.assert_close(found.scores, expected.scores, atol=1e-4, rtol=1e-3)
    assert state(module) == before


class Opaque(torch.nn.Module):
    """A linear map that lets no gradient through, like the whole-number kernels of some backends."""

    def __init__(self, linear):
        super().__init__()
        self.linear = linear

    def forward(self, x):
        return self.linear(x.detach()).detach()


def opaque(*ends):
    """A Llama whose linear maps of these names let no gradient through."""
    module = tiny.build("llama", "sdpa")
    for path, part in [(n, p) for n, p in module.named_modules() if n.endswith(ends)]:
        parent, _, name = path.rpartition(".")
        setattr(module.get_submodule(parent), name, Opaque(part))
    return load(module)


@pytest.mark.parametrize(
    ("method", "ends"),
    [
        ("attention_x_gradient", ("proj", "lm_head")),
        ("attention_x_gradient", ("o_proj",)),
        ("integrated_gradients", ("proj", "lm_head")),
    ],
)
def test_methods_of_gradients_say_so_where_none_gets_through(method, ends):
    model = opaque(*ends)
    with pytest.raises(InputError, match="gradient"):
        attribute(model, model.example(tiny.IDS), method, Target(label=7))


def test_weights_are_shown_where_no_gradient_gets_through():
    model, plain = opaque("proj", "lm_head"), tiny.loaded("llama", "sdpa")
    example = model.example(tiny.IDS)
    assert torch.equal(model.capture(example).weights(), plain.capture(example).weights())
    with pytest.warns(UserWarning, match="no gradient tells which position is read"):
        found = attribute(model, example, "raw_attention", Target(label=7))
    assert torch.equal(found.scores, attribute(plain, example, "raw_attention", Target(label=7)).scores)


PLACES = {
    "layers": {"model.layers.1": "disk", "model.layers.2": "disk"},
    "embedding": {"model.embed_tokens": "disk", "model.layers.1": "disk"},
}


@pytest.fixture(params=PLACES)
def spread(request, tmp_path):
    """A Llama of which a part lies on disk, and the same one in memory."""
    pytest.importorskip("accelerate")
    plain = tiny.build("llama", "sdpa")
    plain.save_pretrained(tmp_path / "model")
    names = [
        "model.embed_tokens",
        "model.norm",
        "model.rotary_emb",
        "lm_head",
        *(f"model.layers.{i}" for i in range(3)),
    ]
    module = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "model",
        device_map=dict.fromkeys(names, "cpu") | PLACES[request.param],
        offload_folder=tmp_path / "offloaded",
    )
    return module, plain


def test_a_model_of_which_layers_lie_on_disk_is_captured_where_it_is(spread):
    module, plain = spread
    before = [(name, p.device, p.dtype) for name, p in module.named_parameters()]
    model, whole = load(module), load(plain)
    for edits in ([], [silence_head(1, 1)]):
        found, expected = (m.capture(m.example(tiny.IDS), edits=edits, check="full") for m in (model, whole))
        assert torch.equal(found.weights(), expected.weights()) and torch.equal(found.logits, expected.logits)
    assert [(name, p.device, p.dtype) for name, p in module.named_parameters()] == before
    assert "meta" in {str(p.device) for p in module.parameters()}


@pytest.mark.parametrize("spread", ["layers", "embedding"], indirect=True)
def test_methods_run_on_a_model_of_which_layers_lie_on_disk(spread):
    for method in ("attention_x_gradient", "integrated_gradients", "leave_one_out", "value_zeroing"):
        found, expected = (attribute(load(m), load(m).example(tiny.IDS), method, Target(label=7)) for m in spread)
        torch.testing.assert_close(found.scores, expected.scores, atol=1e-5, rtol=0)


def test_layers_on_two_devices_are_stacked_on_the_first():
    """ "meta" stands for the first of two devices: it holds shapes without numbers."""
    example = tiny.loaded("llama").example(tiny.IDS)
    maps = [torch.zeros(1, 4, 12, 12, device=device) for device in ("meta", "cpu")]
    sites = tuple(Site(Place("decoder", "self", n, ""), weights=weights) for n, weights in enumerate(maps))
    weights = Capture(example, "llama", sites, torch.zeros(1), ()).weights()
    assert weights.shape == (2, 4, 12, 12) and str(weights.device) == "meta"
