"""Case 6, further: caches of every kind, packed texts, and left padding while generating."""

import pytest
import torch
import transformers

from attnprobe.attention.seam import Keep, Tape
from attnprobe.intervention import knock_out, uniform
from attnprobe.models import load
from tests import tiny

PROMPT, SHORT = tiny.IDS, tiny.IDS[:2]


def gemma3():
    config = transformers.Gemma3TextConfig(
        **tiny._DECODER,
        query_pre_attn_scalar=8,
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )
    torch.manual_seed(0)
    return transformers.Gemma3ForCausalLM(config).eval()


def build(name, implementation):
    """A tiny model; one of Gemma 3, with sliding and full layers, beside those of `tiny`."""
    if name != "gemma3":
        return tiny.build(name, implementation)
    module = gemma3()
    module.set_attn_implementation(implementation)
    return module


def record(module, prompt, n=5, edits=(), **options):
    """The tape of a greedy generation, and the ids of prompt and answer."""
    model, tape = load(module), Tape(keep=Keep.of("weights"), edits=edits)
    given = prompt if isinstance(prompt, torch.Tensor) else torch.tensor([prompt])
    greedy = {"max_new_tokens": n, "min_new_tokens": n, "do_sample": False, "pad_token_id": 0}
    with model.listening(tape), torch.no_grad():
        return tape, module.generate(given, **greedy, **options)


def absolute(weights, position):
    """A query's weights [head key] by the position of the key, and what lies on slots that are not used yet.

    A cache with room to spare has its keys from position 0 on; any other has the last keys up to the query's own.
    """
    n_keys = weights.shape[-1]
    first = 0 if n_keys > position else position + 1 - n_keys
    whole = torch.zeros(weights.shape[0], position + 1)
    used = weights[:, : position + 1 - first]
    whole[:, first:] = used
    return whole, weights[:, used.shape[1] :]


CELLS = [
    (name, implementation, cache)
    for name in ("gpt2", "llama", "qwen3", "mistral", "gemma2", "gemma3")
    for implementation in ("eager", "sdpa")
    for cache in ("dynamic", "static")
    if not (name == "gemma2" and implementation == "sdpa")
]


@pytest.mark.parametrize("prompt", [PROMPT, SHORT], ids=["beyond the window", "within the window"])
@pytest.mark.parametrize(("name", "implementation", "cache"), CELLS)
def test_each_step_has_the_row_of_one_full_pass_by_absolute_position(name, implementation, cache, prompt):
    """Windows are 4 wide; a static cache keeps 40 slots, of which those not yet used have weight 0."""
    module = build(name, implementation)
    options = {}
    if cache == "static":
        options["cache"] = transformers.StaticCache(config=module.config, max_cache_len=40)
    tape, ids = record(module, prompt, **options)
    whole = load(module).capture(load(module).example(ids[:, :-1])).weights()
    assert len(tape.sites) == 15
    for site in tape.sites:
        for query in range(site.weights.shape[2]):
            position = query if site.place.step == 0 else len(prompt) + site.place.step - 1
            found, unused = absolute(site.weights[0, :, query], position)
            expected = whole[site.layer, :, position]
            torch.testing.assert_close(found, expected[:, : position + 1], atol=1e-5, rtol=0)
            assert bool((unused == 0).all()) and bool((expected[:, position + 1 :] == 0).all())


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("edit", [uniform(), knock_out(None, 0, layers=(1, 2), heads=3)], ids=["uniform", "knock_out"])
def test_slots_of_a_static_cache_that_are_not_used_are_invisible_to_edits(edit, implementation):
    module = build("llama", implementation)
    cache = transformers.StaticCache(config=module.config, max_cache_len=40)
    edits = [edit if edit.name.startswith("uniform") else _except_the_first(edit)]
    tape, ids = record(module, PROMPT, edits=edits, cache=cache)
    for site in tape.sites:
        assert site.visible is not None and site.weights.shape[-1] == 40
        for query in range(site.weights.shape[2]):
            position = query if site.place.step == 0 else 11 + site.place.step
            assert int(site.visible[0, 0, query].sum()) == position + 1
            assert bool((site.weights[0, :, query, position + 1 :] == 0).all())
            assert float(site.weights[0, :, query].sum(-1).sub(1).abs().max()) < 1e-5
    assert ids.shape == (1, 17)


def _except_the_first(edit):
    """The edit at generated tokens alone: the first token of a prompt sees nothing but itself."""

    def later(site):
        return edit(site) if site.place.step > 0 else site

    later.acts_at, later.name = edit.acts_at, edit.name
    return later


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("pads", range(5))
def test_left_pads_change_no_generated_step(pads, name, implementation):
    """Case 12, while generating: 0 to 4 pads, which nobody looks at."""
    module = build(name, implementation)
    given = torch.tensor([[0] * pads + PROMPT])
    tape, ids = record(module, given, attention_mask=(torch.arange(given.shape[1]) >= pads).long()[None])
    plain, expected = record(module, PROMPT)
    assert torch.equal(ids[:, pads:], expected)
    for site, alone in zip(tape.sites, plain.sites, strict=True):
        queries = site.weights[0][:, pads:] if site.place.step == 0 else site.weights[0]
        torch.testing.assert_close(queries[..., pads:], alone.weights[0], atol=1e-5, rtol=0)
        assert bool((queries[..., :pads] == 0).all())


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["llama", "mistral", "qwen3"])
def test_texts_packed_into_one_row_do_not_see_each_other(name, implementation):
    """Texts packed by position_ids without a mask have the weights that they have alone, and 0 elsewhere."""
    module = build(name, implementation)
    model, tape = load(module), Tape(keep=Keep.of("weights"))
    first, second = PROMPT[:5], PROMPT[5:]
    numbers = torch.tensor([[*range(len(first)), *range(len(second))]])
    with model.listening(tape), torch.no_grad():
        module(torch.tensor([PROMPT]), position_ids=numbers, use_cache=False)
    alone = [model.capture(model.example(ids)).weights() for ids in (first, second)]
    for site in tape.sites:
        expected = torch.stack([torch.block_diag(*pair) for pair in zip(*(w[site.layer] for w in alone), strict=True)])
        torch.testing.assert_close(site.weights[0], expected, atol=1e-5, rtol=0)
        assert torch.equal(site.weights[0] != 0, expected != 0)


@pytest.mark.parametrize(("mask", "implementation"), [("additive", "eager"), ("additive", "sdpa"), ("boolean", "sdpa")])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_mask_of_rank_4_is_the_mask_of_a_causal_model(name, mask, implementation):
    """Case 13: a mask of the user's own, here a window of 3 keys and the first one, in place of the causal one."""
    module = build(name, implementation)
    model = load(module)
    seen = torch.ones(12, 12).tril().bool() & (torch.ones(12, 12).triu(-2).bool() | (torch.arange(12) == 0))
    given = seen if mask == "boolean" else torch.zeros(12, 12).masked_fill(~seen, torch.finfo(torch.float32).min)
    example = model.example({"input_ids": torch.tensor([PROMPT]), "attention_mask": given[None, None]})
    capture = model.capture(example, check="full")
    assert torch.equal(capture.weights() > 0, seen.expand(3, 4, 12, 12))
    with torch.no_grad():
        assert torch.equal(capture.logits, module(torch.tensor([PROMPT]), attention_mask=given[None, None]).logits)
    cut = model.capture(example, edits=[knock_out(range(6, 12), 0)])
    left = seen.clone()
    left[6:, 0] = False
    assert torch.equal(cut.weights() > 0, left.expand(3, 4, 12, 12))
    torch.testing.assert_close(cut.weights().sum(-1), torch.ones(3, 4, 12), atol=1e-5, rtol=0)
