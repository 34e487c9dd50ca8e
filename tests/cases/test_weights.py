"""Cases 1 to 6: weights that are missing or wrong."""

import gc
from itertools import pairwise

import pytest
import torch

from attnprobe.attention.seam import Keep, Tape
from attnprobe.attributing import attribute
from attnprobe.errors import CaptureError, EditError, NumericsError
from attnprobe.intervention import silence_head
from attnprobe.methods.value_zeroing import layer_changes
from attnprobe.models import load
from tests import tiny

DECODERS = ("gpt2", "llama", "mistral", "qwen3")
# Where the heads are mixed: what goes in there is the model's own z.
PROJECTIONS = {"gpt2": "c_proj", "llama": "o_proj", "mistral": "o_proj", "qwen3": "o_proj", "bert": "output.dense"}


def own_z(module, name):
    """The inputs of the output projections, [query width] a layer, of a pass without attnprobe; and its logits."""
    path = PROJECTIONS[name]
    parts = [p for n, p in module.named_modules() if n.endswith(path) and ("attn" in n or "attention" in n)]
    found = []
    handles = [p.register_forward_pre_hook(lambda _, given: found.append(given[0][0])) for p in parts]
    with torch.no_grad():
        logits = module(torch.tensor([tiny.IDS])).logits
    [handle.remove() for handle in handles]
    return found, logits


@pytest.mark.parametrize("name", [*DECODERS, "bert"])
def test_a_fused_model_gives_weights_that_make_its_own_z_and_leaves_its_logits_alone(name):
    """Case 1: under "sdpa" others give None or an empty tuple."""
    module = tiny.build(name, "sdpa")
    expected, logits = own_z(module, name)
    model = load(module)
    capture = model.capture(model.example(tiny.IDS), keep=Keep.of("weights", "value"), check="full")
    assert len(capture.sites) == len(expected) == 3
    for site, z in zip(capture.sites, expected, strict=True):
        torch.testing.assert_close(site.weights.sum(-1), torch.ones(1, 4, 12), atol=1e-6, rtol=0)
        made = (site.weights @ site.value)[0].transpose(0, 1).flatten(1)
        torch.testing.assert_close(made, z, atol=1e-5, rtol=0)
    assert torch.equal(capture.logits, logits)


@pytest.mark.parametrize("kernel", ["flash_attention_2", "flex_attention"])
def test_a_kernel_that_cannot_show_weights_gives_those_of_eager_and_is_put_back(kernel):
    """Case 1, a model that the user loaded with flash attention."""
    module = tiny.build("llama", "eager")
    expected, _ = tiny.reference(module, {"input_ids": torch.tensor([tiny.IDS])})
    module.config._attn_implementation_internal = kernel
    model = load(module)
    # "off": without a recording the kernel itself would have to run here, to compare logits.
    weights = model.capture(model.example(tiny.IDS), check="off").weights()
    assert torch.equal(weights, expected["", "self"])
    assert module.config._attn_implementation == kernel


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", DECODERS)
def test_everything_above_the_diagonal_of_one_unpadded_prompt_is_exactly_zero(name, implementation):
    """Case 2."""
    model = tiny.loaded(name, implementation)
    weights = model.capture(model.example(tiny.IDS)).weights()
    assert int((weights.triu(1) != 0).sum()) == 0
    assert bool((weights.diagonal(0, -2, -1) > 0).all())


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize(
    "edit",
    [silence_head(7, 0), silence_head(0, 0, stack="encoder"), silence_head(0, 0, kind="cross"), lambda site: site],
    ids=["layer", "stack", "kind", "no_change"],
)
def test_an_edit_that_never_fires_is_an_error_that_says_what_there_was(edit, implementation):
    """Case 3: an edit of a layer, stack or kind that is not there, or that gives back what it got."""
    model = tiny.loaded("llama", implementation)
    with pytest.raises(EditError, match=r"never fired; .*decoder self-attention layers 0 to 2"):
        model.capture(model.example(tiny.IDS), edits=[edit])


class HomemadeAttention(torch.nn.Module):
    """Attention in a form that nothing watches: its softmax is an exponential and a sum."""

    def forward(self, x):
        weights = (x @ x.transpose(1, 2)).exp()
        return weights / weights.sum(-1, keepdim=True) @ x


class Homemade(torch.nn.Module):
    """A classifier on such an attention."""

    def __init__(self):
        super().__init__()
        self.table, self.mixer, self.head = torch.nn.Embedding(60, 8), HomemadeAttention(), torch.nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask=None):
        return self.head(self.mixer(self.table(input_ids))[:, 0])


@pytest.mark.parametrize(
    "edits",
    [[], [silence_head(0, 0)]],
    ids=["capture", "edit"],
)
def test_attention_that_nothing_can_see_is_an_error_that_names_its_module(edits):
    """Case 3: a module that computes attention in a way of its own."""
    model = load(Homemade().eval())
    with pytest.raises((CaptureError, EditError), match=r"mixer \(HomemadeAttention\)"):
        model.capture(model.example(tiny.IDS), edits=edits)


@pytest.mark.parametrize("name", DECODERS)
def test_value_zeroing_of_a_decoder_differs_from_layer_to_layer(name):
    """Case 4."""
    model = tiny.loaded(name, "sdpa")
    maps = layer_changes(model, model.example(tiny.IDS), "decoder")
    assert len(maps) == 3
    for earlier, later in pairwise(maps):
        assert float((earlier - later).abs().max()) > 0.05
    for layer in maps:
        assert bool((layer.triu(1) == 0).all()) and float(layer.sum()) == pytest.approx(12, abs=1e-4)


def test_a_value_zeroing_map_of_zeros_is_an_error_that_names_its_layer():
    """Case 4: it is not something to be normalized."""
    module = tiny.build("llama", "sdpa")
    with torch.no_grad():
        module.model.layers[1].self_attn.v_proj.weight.zero_()
    model = load(module)
    with pytest.raises(NumericsError, match="in layer 1 zeroing values changes nothing"):
        attribute(model, model.example(tiny.IDS), "value_zeroing")


def alive():
    """Tensors that somebody holds, by identity."""
    gc.collect()
    return {id(found): found for found in gc.get_objects() if issubclass(type(found), torch.Tensor)}


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_of_two_heads_of_one_layer_nothing_else_is_kept(name):
    """Case 5: only what was asked for is kept, in memory of its own."""
    model = tiny.loaded(name, "sdpa")
    whole = model.capture(model.example(tiny.IDS)).weights()
    (site,) = model.capture(model.example(tiny.IDS), keep=Keep.of("weights", layers=[1], heads=[0, 3])).sites
    assert torch.equal(site.weights[0], whole[1, [0, 3]])
    assert [site.query, site.key, site.value, site.scores, site.z] == [None] * 5
    assert site.weights.untyped_storage().nbytes() == 2 * 12 * 12 * 4


def test_a_kept_site_holds_no_tensor_of_the_heads_that_were_not_asked_for():
    """Case 5: memory says so."""
    model = tiny.loaded("llama", "sdpa")
    example = model.example(tiny.IDS)
    model.capture(example)
    before = alive()
    capture = model.capture(example, keep=Keep.of("weights", layers=[1], heads=[0, 3]))
    maps = [t for key, t in alive().items() if key not in before and t.ndim == 4 and t.is_floating_point()]
    assert len(capture.sites) == 1 and [tuple(t.shape) for t in maps] == [(1, 2, 12, 12)]


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_generated_tokens_have_weights_by_step_with_prompt_and_generated_keys_apart(name, implementation):
    """Case 6: step n looks at the 12 keys of the prompt and at n generated ones, as one pass of all tokens does."""
    module = tiny.build(name, implementation)
    model, tape = load(module), Tape(keep=Keep.of("weights"))
    with model.listening(tape), torch.no_grad():
        ids = module.generate(
            torch.tensor([tiny.IDS]), max_new_tokens=5, min_new_tokens=5, do_sample=False, pad_token_id=0
        )
    whole = model.capture(model.example(ids[:, :-1])).weights()
    steps = {(site.place.step, site.layer): site.weights[0] for site in tape.sites}
    assert sorted(steps) == [(step, layer) for step in range(5) for layer in range(3)]
    for (step, layer), weights in steps.items():
        assert weights.shape == ((4, 12, 12) if step == 0 else (4, 1, 12 + step))
        row = whole[layer, :, 11 + step, : 12 + step]
        torch.testing.assert_close(weights[:, -1, :12], row[:, :12], atol=1e-5, rtol=0)
        torch.testing.assert_close(weights[:, -1, 12:], row[:, 12:], atol=1e-5, rtol=0)
