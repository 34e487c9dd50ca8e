"""Cases 11 to 14: padding, batches and masks change nothing that is not theirs to change."""

import pytest
import torch

from attnprobe.attention.seam import Keep, Tape
from attnprobe.attributing import attribute
from attnprobe.comparison import compare
from attnprobe.heads import score_heads
from attnprobe.intervention import knock_out, permute, uniform
from attnprobe.methods import methods
from attnprobe.models import Row, load
from attnprobe.models.evaluator import targets
from attnprobe.target import Target
from tests import tiny

LONG, SHORT = tiny.IDS, tiny.IDS[3:8]
# Controls do not look at the model, so no mask can change them.
LOOKING = [name for name in methods if methods.get_entry(name).family != "control"]
# A window of one token: a wider one gives each token a part of what its neighbours do.
NARROW = {"shapley_sampling": {"n_samples": 5}, "occlusion": {"window": 1}, "deep_lift": {"approximate": True}}


def padded(side):
    """Both texts in one batch of the user's own, and its mask."""
    gap = [0] * (len(LONG) - len(SHORT))
    rows = [LONG, gap + SHORT if side == "left" else SHORT + gap]
    mask = torch.ones(2, len(LONG), dtype=torch.long)
    mask[1, : len(gap)] = 0
    return torch.tensor(rows), mask if side == "left" else mask.flip(1)


def positions(mask):
    """Numbers of the real tokens, as generate() counts them."""
    return (mask.cumsum(-1) - 1).clamp(min=0)


@pytest.fixture(scope="module")
def together_and_alone():
    """The scores of the short text compared beside a longer one, and of the short one alone."""
    model = load("attnprobe/sentiment")
    texts = ["a wonderful film with a very good end and no bad part", "not a good film"]
    options = {"shapley_sampling": {"n_samples": 6}, "owen": {"n_samples": 6}, "deep_lift": {"approximate": True}}
    quick = {"n_random": 2, "n_resamples": 20, "progress": False, "methods": "all", "options": options}
    both = compare(model, texts, **quick).to_frame()
    (alone,) = compare(model, texts[1:], **quick).studies
    return both, alone


@pytest.mark.parametrize("method", LOOKING)
def test_a_text_has_the_same_scores_beside_a_longer_one_and_alone(together_and_alone, method):
    """Case 11, every method."""
    both, alone = together_and_alone
    (expected,) = [found.scores for found in alone.attributions if found.method == method]
    chosen = both[(both.method == method) & (both.example_index == 1)]
    torch.testing.assert_close(torch.tensor(chosen.score.to_numpy()).float(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_rows_of_two_lengths_have_the_answers_that_they_have_one_by_one(name):
    """Case 11: the evaluator groups by length, never pads."""
    model = tiny.loaded(name, "sdpa")
    examples = [model.example(ids) for ids in (LONG, SHORT, LONG[:7], SHORT[::-1])]

    def first(logits):
        return logits.flatten(1)[:, 1]

    together = targets(model, [Row(example) for example in examples], first)
    alone = torch.cat([targets(model, [Row(example)], first) for example in examples])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("name", "side"), [("bert", "right"), ("gpt2", "left"), ("llama", "left"), ("llama", "right"), ("mistral", "left")]
)
def test_a_users_own_padded_batch_has_the_weights_of_each_text_alone(name, side, implementation):
    """Cases 11 and 14: real rows are those of the text alone, and 0 on padding."""
    module = tiny.build(name, implementation)
    model, tape = load(module), Tape(keep=Keep.of("weights"))
    ids, mask = padded(side)
    with model.listening(tape), torch.no_grad():
        module(ids, attention_mask=mask, **({} if name == "bert" else {"position_ids": positions(mask)}))
    real = mask[1].bool()
    for row, text in enumerate((LONG, SHORT)):
        alone = model.capture(model.example(text)).weights()
        weights = torch.stack([site.weights[row] for site in tape.sites])
        kept = weights if row == 0 else weights[..., real, :][..., real]
        torch.testing.assert_close(kept, alone, atol=1e-5, rtol=0)
    assert bool((weights[..., real, :][..., ~real] == 0).all()) and bool(torch.isfinite(weights).all())


@pytest.mark.parametrize("pads", range(5))
def test_left_pads_of_gpt2_change_neither_logits_nor_scores(pads):
    """Case 12."""
    module = tiny.build("gpt2", "sdpa")
    model = load(module)
    mask = torch.tensor([[0] * pads + [1] * len(LONG)])
    ids = torch.tensor([[0] * pads + LONG])
    example, plain = model.example({"input_ids": ids, "attention_mask": mask}), model.example(LONG)
    found = model.capture(example).logits
    with torch.no_grad():
        own = module(ids, attention_mask=mask, position_ids=positions(mask)).logits[:, pads:]
    torch.testing.assert_close(found, own, atol=1e-5, rtol=0)
    for method in ("raw_attention", "rollout", "attention_x_gradient", "input_x_gradient", "leave_one_out"):
        scores = [attribute(model, given, method, Target(label=7)).scores for given in (example, plain)]
        assert torch.equal(scores[0], scores[1])


def masked(model, form, hidden=(4, 5)):
    """An example whose mask hides two tokens inside of the text, in one of the forms that transformers takes."""
    seen = torch.ones(1, len(LONG), dtype=torch.long)
    seen[0, list(hidden)] = 0
    four = seen.bool()[:, None, None, :].expand(1, 1, len(LONG), len(LONG))
    masks = {"rank 2": seen, "boolean": four, "additive": torch.zeros(four.shape).masked_fill(~four, -torch.inf)}
    masks["additive"] = masks["additive"].clamp(min=torch.finfo(torch.float32).min)
    return model.example({"input_ids": torch.tensor([LONG]), "attention_mask": masks[form]})


FORMS = [("rank 2", "eager"), ("rank 2", "sdpa"), ("additive", "eager"), ("additive", "sdpa"), ("boolean", "sdpa")]


@pytest.mark.parametrize(("form", "implementation"), FORMS)
def test_a_mask_of_the_users_own_is_that_of_the_capture(form, implementation):
    """Case 13: all three forms hide the same keys, and the logits are the model's own under that mask."""
    module = tiny.build("bert", implementation)
    model = load(module)
    example = masked(model, form)
    capture = model.capture(example, check="full")
    with torch.no_grad():
        own = module(**example.inputs).logits
        rank_2 = tiny.loaded("bert")
        expected = rank_2.capture(masked(rank_2, "rank 2"))
    assert torch.equal(capture.logits, own)
    assert bool((capture.weights()[..., [4, 5]] == 0).all())
    torch.testing.assert_close(capture.weights(), expected.weights(), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("form", "implementation"), FORMS)
@pytest.mark.parametrize("edit", [knock_out(None, 7), uniform(), permute(seed=0)], ids=str)
def test_no_edit_looks_at_what_the_users_mask_hides(edit, form, implementation):
    """Case 13: what is cut, evened or shuffled stays among the visible keys, and rows still sum to 1."""
    model = tiny.loaded("bert", implementation)
    weights = model.capture(masked(model, form), edits=[edit]).weights()
    assert bool((weights[..., [4, 5]] == 0).all())
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("form", "implementation"), FORMS)
def test_a_knock_out_is_the_mask_with_one_more_key_hidden(form, implementation):
    """Case 13: cutting key 7 under a mask equals a mask that hides key 7 as well, in the model itself."""
    module = tiny.build("bert", implementation)
    model = load(module)
    found = model.capture(masked(model, form), edits=[knock_out(None, 7)]).logits
    with torch.no_grad():
        expected = module(**masked(model, form, hidden=(4, 5, 7)).inputs).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.filterwarnings("ignore:deep_lift. with plain gradients")
@pytest.mark.parametrize("form", ["rank 2", "additive", "boolean"])
def test_every_method_gives_nothing_to_tokens_that_the_users_mask_hides(form):
    """Case 13: the answer cannot see tokens 4 and 5."""
    model = tiny.loaded("bert", "sdpa")
    example = masked(model, form)
    for method in LOOKING:
        scores = attribute(model, example, method, Target(label=1), **NARROW.get(method, {})).scores
        assert float(scores[[4, 5]].abs().max()) <= 1e-6, method
        assert float(scores.abs().max()) > 1e-9, method  # each in units of its own


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_padding_of_a_bert_in_bfloat16_leaves_no_trace(implementation):
    """Case 14: no NaN; pad columns 0 and pad rows left out, so head scores are those of the text alone."""
    model = load(tiny.build("bert", implementation).to(torch.bfloat16))
    ids, mask = padded("right")
    given = model.example({"input_ids": ids[1:], "attention_mask": mask[1:]})
    capture, alone = model.capture(given, check="full"), model.capture(model.example(SHORT))
    assert given.n_tokens == len(SHORT) and bool(torch.isfinite(capture.weights()).all())
    assert torch.equal(capture.weights(), alone.weights())
    assert score_heads(capture).equals(score_heads(alone))


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_padded_batch_in_bfloat16_has_no_nan_and_zeros_on_padding(implementation):
    """Case 14, a batch of the user's own; the pad rows of a causal model may look at nothing at all."""
    for name, side in (("bert", "right"), ("llama", "left")):
        module = tiny.build(name, implementation).to(torch.bfloat16)
        model, tape = load(module), Tape(keep=Keep.of("weights", "z"))
        ids, mask = padded(side)
        with model.listening(tape), torch.no_grad():
            module(ids, attention_mask=mask)
        real = mask[1].bool()
        for site in tape.sites:
            assert bool(torch.isfinite(site.weights).all()) and bool(torch.isfinite(site.z).all())
            assert bool((site.weights[1][:, real][..., ~real] == 0).all())
