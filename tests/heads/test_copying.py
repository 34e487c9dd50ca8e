"""Copying heads: eigenvalues of the whole product of words, a planted circuit, and loops over random tokens."""

import numpy as np
import pytest
import torch

from attnprobe.attention.seam import Keep
from attnprobe.errors import InputError
from attnprobe.heads import probe_scores
from attnprobe.heads.copying import why_no_copying
from attnprobe.models import load
from attnprobe.models.edited import EditedModel
from attnprobe.models.planted import planted
from tests import tiny
from tests.heads.made_norms import centred, folded, gpt2_parts, llama_parts, loaded, with_norms


def probe(name, model, stack=None, **options):
    return probe_scores[name].function(model, stack or model.stacks[0], **options)


def test_the_planted_induction_head_copies_and_its_opposite_does_the_reverse():
    """P12: head 1.0 writes each word to its own logit; head 0.0 writes nothing into logits."""
    made = planted("P12")
    for name in ("ov_copying", "copying"):
        options = {"length": 8} if name == "copying" else {}
        found = probe(name, made.model, **options)
        assert found[1, 0].item() == pytest.approx(1, abs=1e-9) and found[0, 0].isnan()
    turned = planted("P12", rotation=4)
    assert probe("ov_copying", turned.model)[1, 0].item() == pytest.approx(1, abs=1e-6)
    with torch.no_grad():
        made.model.module.readout.weight.neg_()
    assert probe("ov_copying", made.model)[1, 0].item() == pytest.approx(-1, abs=1e-9)
    assert probe("copying", made.model, length=8)[1, 0].item() == pytest.approx(-1, abs=1e-9)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2"])
def test_eigenvalues_are_those_of_the_whole_matrix_of_words(name):
    module = with_norms(name)
    found = probe("ov_copying", load(module))
    for layer, head in ((0, 0), (1, 3), (2, 1)):
        if name == "gpt2":
            (_, _, v, o), table = gpt2_parts(module, layer, head), module.transformer.wte.weight
            before, last, unembedding = module.transformer.h[layer].ln_1, module.transformer.ln_f, module.lm_head.weight
            whole = table.detach().double() @ folded(before, v) @ o
            whole = centred(whole) * last.weight.detach().double() @ unembedding.detach().double().T
        else:
            (_, _, v, o), table = llama_parts(module, layer, head), module.model.embed_tokens.weight.detach().double()
            block, unembedding = module.model.layers[layer], module.lm_head.weight.detach().double()
            plus = 1.0 if name == "gemma2" else 0.0
            gains = [plus + norm.weight.detach().double() for norm in (block.input_layernorm, module.model.norm)]
            behind = 1 + block.post_attention_layernorm.weight.detach().double() if name == "gemma2" else 1.0
            whole = (table * gains[0]) @ v @ o * behind * gains[1] @ unembedding.T
        eigenvalues = np.linalg.eigvals(whole.numpy())
        expected = eigenvalues.real.sum() / np.abs(eigenvalues).sum()
        assert found[layer, head].item() == pytest.approx(expected, abs=2e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_copying_on_random_tokens_is_written_out_with_loops(name):
    model = loaded(name)
    module = model.module
    found = probe("copying", model, length=9, n_samples=1, seed=2)
    noted = []

    class Noting(EditedModel):
        def capture(self, example, **options):
            noted.append(example)
            return super().capture(example, **options)

    torch.testing.assert_close(probe("copying", Noting(model, []), length=9, n_samples=1, seed=2), found)
    (example,) = noted
    ids = example.inputs["input_ids"][0].tolist()
    said = range(len(ids) - 9, len(ids))
    capture = model.capture(example, keep=Keep.of("weights", "value"))
    last = module.transformer.ln_f if name == "gpt2" else module.model.norm
    for layer, head in ((0, 0), (1, 3), (2, 2)):
        site, total, mass = capture.sites[layer], 0.0, 0.0
        o = (gpt2_parts if name == "gpt2" else llama_parts)(module, layer, head)[3]
        for key in said:
            written = site.value[0, head, key].double() @ o
            written = (centred(written) if name == "gpt2" else written) * last.weight.detach().double()
            logits = [float(written @ module.lm_head.weight[ids[other]].detach().double()) for other in said]
            raised = [max(0.0, logit - sum(logits) / len(logits)) for logit in logits]
            weight = float(site.weights[0, head, :, key].double().sum())
            total += weight * raised[key - said[0]] / sum(raised)
            mass += weight
        assert found[layer, head].item() == pytest.approx(2 * total / mass - 1, abs=1e-5)


@pytest.mark.parametrize(("name", "stack", "reason"), [
    ("bert", 0, "3 classes"), ("vit", 0, "reads no words"), ("t5", 0, "another stack"),
])  # fmt: skip
def test_without_words_on_both_ends_there_is_no_copying_and_the_reason_can_be_asked(name, stack, reason):
    model = tiny.loaded(name)
    chosen = model.stacks[stack]
    assert probe("ov_copying", model, chosen).isnan().all() and probe("copying", model, chosen).isnan().all()
    assert reason in why_no_copying(model, chosen)


@pytest.mark.parametrize("name", ["P4", "P11"])
def test_planted_models_that_answer_with_one_number_have_none(name):
    model = planted(name).model
    assert probe("ov_copying", model).isnan().all() and "not with words" in why_no_copying(model, model.stacks[0])


def test_a_model_of_words_on_both_ends_has_no_reason():
    model = tiny.loaded("t5")
    assert why_no_copying(tiny.loaded("gpt2"), tiny.loaded("gpt2").stacks[0]) is None
    cross = next(stack for stack in model.stacks if stack.kind == "cross")
    assert why_no_copying(model, cross) is None and probe("copying", model, cross, n_samples=1).isfinite().all()


def test_too_few_tokens_tell_nothing():
    with pytest.raises(InputError, match="length is at least 3"):
        probe("copying", tiny.loaded("gpt2"), length=2)
