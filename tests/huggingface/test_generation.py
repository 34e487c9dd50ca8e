"""Generation under a recording: each token is a pass of its own, its layers numbered from 0."""

import pytest
import torch

from attnprobe.attention.seam import Keep, Tape
from attnprobe.models import load
from tests import tiny


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "gemma2"])
def test_generated_tokens_are_steps_that_look_at_the_prompt_and_at_what_was_generated(name):
    module = tiny.build(name, "eager")
    model = load(module)
    tape = Tape(keep=Keep.of("weights"))
    ids = torch.tensor([tiny.IDS])
    with model.listening(tape), torch.no_grad():
        out = module.generate(ids, max_new_tokens=5, min_new_tokens=5, do_sample=False, pad_token_id=0)
    assert out.shape[1] == 17
    steps = [[s for s in tape.sites if s.place.step == step] for step in range(5)]
    assert [[s.place.layer for s in step] for step in steps] == [[0, 1, 2]] * 5
    assert all(s.place.kind == "self" for s in tape.sites)
    assert [step[0].weights.shape[2] for step in steps] == [12, 1, 1, 1, 1]
    plain = [step[2].weights for step in steps]
    again = model.capture(model.example(out[:, :-1])).sites[2].weights
    for number, weights in enumerate(plain[1:], start=1):
        n = weights.shape[-1]
        row = again[0, :, 11 + number, :]
        torch.testing.assert_close(weights[0, :, 0], row[:, 12 + number - n : 12 + number], atol=1e-5, rtol=1e-4)


def test_no_hook_is_left_after_generation():
    module = tiny.build("gpt2", "sdpa")
    model = load(module)
    with model.listening(Tape()), torch.no_grad():
        module.generate(torch.tensor([tiny.IDS]), max_new_tokens=2, do_sample=False, pad_token_id=0)
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in module.modules())
