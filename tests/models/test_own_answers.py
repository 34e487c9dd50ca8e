"""Encoder-decoders of our own behind the Model interface: reading, the answer as the target, methods."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from attnprobe import attribute, compare
from attnprobe.attention.encoder_decoder import EncoderDecoder
from attnprobe.attention.recurrent import RecurrentEncoderDecoder
from attnprobe.attention.seam import Keep, Tape
from attnprobe.attention.sequence_to_sequence import cross_maps, greedy
from attnprobe.attention.transformer import TransformerClassifier
from attnprobe.errors import InputError
from attnprobe.intervention import silence_head, uniform
from attnprobe.models import load
from attnprobe.models.evaluator import logits
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.rows import Row
from attnprobe.target import Target
from tests import tiny
from tests.attention.test_recurrent import slow

WORDS = Vocabulary.of(["a good film , not bad"], specials=("[PAD]", "[UNK]", "[CLS]", "[MASK]"))
ANSWERS = Vocabulary.of(["un bon film pas mauvais"], specials=("[BOS]", "[EOS]", "[UNK]"), begin="[BOS]", end="[EOS]")
TEXT, ANSWER = "a good film", "un bon film"
SIZES = (len(WORDS.tokens), len(ANSWERS.tokens))
NETWORKS = {
    "transformer": partial(EncoderDecoder, *SIZES, d_model=16, n_heads=2, n_layers=2, max_length=9),
    "recurrent": partial(RecurrentEncoderDecoder, *SIZES, d_embedding=5, d_state=6, d_alignment=7),
}


@pytest.fixture(params=NETWORKS)
def model(request: pytest.FixtureRequest) -> OwnModel:
    return made(request.param)


def made(kind: str, target_vocabulary: Vocabulary = ANSWERS, **options: object) -> OwnModel:
    network = NETWORKS[kind]().double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(2.0)
    return OwnModel(network, WORDS, target_vocabulary=target_vocabulary, **options)


def by_hand(model: OwnModel, ids: Tensor, answer: list[int], embeddings: Tensor | None = None) -> Tensor:
    """Logits [step vocabulary] by the network alone, told the right tokens before each step."""
    network = model.module
    written = network.target_embedding(torch.tensor([[ANSWERS.ids["[BOS]"], *answer[:-1]]]))
    vectors = network.token_embedding(ids) if embeddings is None else embeddings[None]
    return network(vectors, written)[0]


def log_probability(model: OwnModel, answer: list[int], embeddings: Tensor) -> Tensor:
    """Of the answer, token by token."""
    steps = by_hand(model, torch.zeros(1, 1), answer, embeddings)
    return sum(torch.log(torch.softmax(row, -1)[index]) for row, index in zip(steps, answer, strict=True))


# ---------------------------------------------------------------- reading


def test_a_text_and_its_answer_become_source_tokens_and_what_is_written_before_each_step(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    ids = [ANSWERS.ids[token] for token in ("un", "bon", "film", "[EOS]")]
    assert example.tokens == ("[CLS]", "a", "good", "film") and example.axis == "source"
    assert example.inputs["decoder_input_ids"].tolist() == [[ANSWERS.ids["[BOS]"], *ids[:-1]]]
    names = {"answer_tokens": ("un", "bon", "film", "[EOS]"), "decoder_tokens": ("[BOS]", "un", "bon", "film")}
    assert example.notes == {"answer_ids": tuple(ids), **names}


def test_an_answer_as_text_tokens_and_ids_is_the_same(model: OwnModel):
    ids = list(model.example(TEXT, answer=ANSWER).notes["answer_ids"])
    whole = [ANSWERS.ids["[BOS]"], *ids]
    for answer in (["un", "bon", "film"], ["[BOS]", "un", "bon", "film", "[EOS]"], ids, torch.tensor(ids), whole):
        assert model.example(TEXT, answer=answer).notes["answer_ids"] == tuple(ids)
    assert model.example(TEXT, answer=ids[:2]).notes["answer_ids"] == tuple(ids[:2])  # to ids nothing is added


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", NETWORKS)
def test_without_an_answer_it_is_the_greedy_one_up_to_its_end(kind: str, seed: int):
    torch.manual_seed(seed)
    model = made(kind, answer_length=6)
    example = model.example(TEXT)
    found, network, end = list(example.notes["answer_ids"]), model.module, ANSWERS.ids["[EOS]"]
    written = greedy(network, example.inputs["input_ids"], begin=ANSWERS.ids["[BOS]"], n_steps=6)[0, 1:].tolist()
    assert found == written[: written.index(end) + 1] if end in written else found == written


def test_a_greedy_answer_ends_where_the_end_token_is_written():
    model = made("transformer")
    with torch.no_grad():
        model.module.decoder.final_norm.weight.zero_()
        model.module.decoder.final_norm.bias.fill_(1.0)
        model.module.decoder.unembedding.weight.zero_()[ANSWERS.ids["[EOS]"]] = 1.0
    assert model.example(TEXT).notes["answer_ids"] == (ANSWERS.ids["[EOS]"],)
    with torch.no_grad():
        model.module.decoder.unembedding.weight.zero_()[ANSWERS.ids["bon"]] = 1.0
    assert model.example(TEXT).notes["answer_ids"] == (ANSWERS.ids["bon"],) * 9  # the decoder has 9 positions


def test_without_an_end_token_the_length_of_a_greedy_answer_is_asked_for():
    endless = Vocabulary(ANSWERS.tokens, begin="[BOS]")
    with pytest.raises(InputError, match=r"no end token.*answer_length"):
        made("recurrent", endless).example(TEXT)
    assert len(made("recurrent", endless, answer_length=5).example(TEXT).notes["answer_ids"]) == 5


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("", "no words"),
        ([], "at least one token"),
        (torch.tensor([0.5]), "at least one token"),
        (3, "got 3"),
        ("[BOS]", "got '\\[BOS\\]'|answer is what is written behind"),
        ([0], "not empty"),
        ([4, 0, 5], "once"),
        ([99], "id 99 is outside"),
        ("film " * 9, "10 tokens, own has 9 positions"),
    ],
)
def test_what_is_no_answer_is_refused(answer: object, message: str):
    vocabulary = Vocabulary(ANSWERS.tokens, begin="[BOS]") if answer == "[BOS]" else ANSWERS
    with pytest.raises(InputError, match=message):
        made("transformer", vocabulary).example(TEXT, answer=answer)


def test_a_network_and_its_words_that_do_not_fit_are_refused_with_what_to_give():
    network = NETWORKS["transformer"]()
    with pytest.raises(InputError, match=r"EncoderDecoder writes an answer.*target_vocabulary"):
        OwnModel(network, WORDS)
    with pytest.raises(InputError, match=r"begin='\[BOS\]'"):
        OwnModel(network, WORDS, target_vocabulary=Vocabulary(ANSWERS.tokens, begin=None))
    with pytest.raises(InputError, match="leave labels out"):
        OwnModel(network, WORDS, target_vocabulary=ANSWERS, labels=("a", "b"))
    with pytest.raises(InputError, match="as many embeddings, the network has 8"):
        OwnModel(network, WORDS, target_vocabulary=Vocabulary((*ANSWERS.tokens, "trop"), begin="[BOS]"))
    with pytest.raises(InputError, match="target_embedding"):
        OwnModel(TransformerClassifier(len(WORDS.tokens), 2), WORDS, target_vocabulary=ANSWERS)
    with pytest.raises(InputError, match="at least 1 token"):
        OwnModel(network, WORDS, target_vocabulary=ANSWERS, answer_length=0)
    with pytest.raises(InputError, match="goes with target_vocabulary"):
        OwnModel(TransformerClassifier(len(WORDS.tokens), 2), WORDS, labels=("a", "b"), answer_length=3)
    with pytest.raises(InputError, match="takes no answer"):
        OwnModel(TransformerClassifier(len(WORDS.tokens), 2), WORDS, labels=("a", "b")).example(TEXT, answer=ANSWER)


def test_a_network_and_its_two_vocabularies_are_loaded_like_any_other():
    model = load((NETWORKS["recurrent"](), WORDS), target_vocabulary=ANSWERS)
    assert model.example(TEXT, answer=ANSWER).notes["decoder_tokens"][0] == "[BOS]"


# ---------------------------------------------------------------- passes


def test_logits_are_those_of_the_network(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    expected = by_hand(model, example.inputs["input_ids"], list(example.notes["answer_ids"]))
    assert torch.equal(model.forward([Row(example)])[0], expected)


def test_a_capture_passes_its_checks_and_leaves_the_logits_bit_for_bit(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    capture = model.capture(example, keep=Keep.of("weights", "value", "z"), check="full")
    assert torch.equal(capture.logits, model.forward([Row(example)]))
    assert all(check.passed for check in capture.checks) and capture.checks[-1].value == 0.0
    assert all((site.weights @ site.value - site.z).abs().max() < 1e-12 for site in capture.sites)


def test_stacks_of_the_transformer_are_those_of_a_t5():
    theirs = tiny.loaded("t5").stacks
    ours = made("transformer").stacks
    assert sorted((s.name, s.kind) for s in ours) == sorted((s.name, s.kind) for s in theirs)
    assert [s.paths[1] for s in ours] == [
        "encoder.blocks.1.attention",
        "decoder.blocks.1.attention",
        "decoder.blocks.1.cross_attention",
    ]
    (alignment,) = made("recurrent").stacks
    assert (alignment.name, alignment.kind, alignment.paths) == ("decoder", "cross", ("decoder.alignment",))


def test_the_map_of_a_capture_is_the_alignment(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    ids = (example.inputs[name] for name in ("input_ids", "decoder_input_ids"))
    source, written = ids
    found = model.capture(example).weights("decoder", "cross")
    assert found.shape[2:] == (4, 4)
    assert torch.equal(found, cross_maps(model.module, source, None, written)[0])


def test_the_map_of_the_recurrent_network_is_the_slow_one():
    model = made("recurrent")
    example, network = model.example(TEXT, answer="un bon"), model.module
    embedded = [network.token_embedding(example.inputs["input_ids"])[0]]
    embedded.append(network.target_embedding(example.inputs["decoder_input_ids"])[0])
    with torch.no_grad():
        _, expected = slow(network, *embedded)
    assert (model.capture(example).weights()[0, 0] - expected).abs().max() < 1e-12


def test_an_edit_acts_on_its_own_row_alone(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    edits = [silence_head(0, 0, kind="cross"), uniform(layers=0, kind="cross")]
    together = logits(model, [Row(example), *(Row(example, edits=(edit,)) for edit in edits)])
    apart = [model.forward([Row(example)]), *(model.capture(example, edits=[edit]).logits for edit in edits)]
    assert (together - torch.cat(apart)).abs().max() < 1e-12
    assert all((together[0] - row).abs().max() > 1e-3 for row in together[1:])


def test_answers_of_two_lengths_do_not_share_a_pass(model: OwnModel):
    rows = [Row(model.example(TEXT, answer=answer)) for answer in ("un", ANSWER)]
    with pytest.raises(InputError, match=r"answers of one length, got \[2, 4\]"):
        model.forward(rows)
    target = model.resolve(rows[0].example, Target(position=0, label="un"))
    apart = [float(target(model.forward([row])).detach()) for row in rows]
    assert model.targets(rows, target).tolist() == pytest.approx(apart)  # the evaluator keeps them apart


@pytest.mark.parametrize("operator", ["mask", "mean", "pad", "unk", "zero"])
def test_a_removed_token_has_another_embedding_and_the_answer_stays(model: OwnModel, operator: str):
    example = model.example(TEXT, answer=ANSWER)
    embeddings = model.embed(example).clone()
    embeddings[2] = model.fillers[operator]
    row = Row(example, kept=torch.tensor([True, True, False, True]), operator=operator)
    expected = by_hand(model, example.inputs["input_ids"], list(example.notes["answer_ids"]), embeddings)
    assert (model.forward([row])[0] - expected).abs().max() < 1e-12


def test_a_deleted_token_is_a_shorter_text_with_the_same_answer(model: OwnModel):
    example, shorter = (model.example(text, answer=ANSWER) for text in (TEXT, "a film"))
    deleted = Row(example, kept=torch.tensor([True, True, False, True]), operator="delete")
    assert (model.forward([deleted]) - model.forward([Row(shorter)])).abs().max() < 1e-12


def test_a_token_hidden_by_the_attention_mask_has_no_weight_or_the_recurrent_network_says_why_not():
    kept = torch.tensor([True, True, False, True])
    model = made("transformer")
    tape = Tape(keep=Keep.of("weights"))
    model.forward([Row(model.example(TEXT, answer=ANSWER), kept=kept, operator="attention_mask")], tape)
    seen = [site for site in tape.sites if (site.place.stack, site.place.kind) != ("decoder", "self")]
    assert len(seen) == 4 and all(not site.weights[..., 2].any() for site in seen)
    model = made("recurrent")
    with pytest.raises(InputError, match="put something in their place"):
        model.forward([Row(model.example(TEXT, answer=ANSWER), kept=kept, operator="attention_mask")])


# ---------------------------------------------------------------- targets


def test_the_target_is_the_log_probability_of_the_whole_answer(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    expected = float(log_probability(model, list(example.notes["answer_ids"]), model.embed(example)).detach())
    rows = [Row(example)]
    for scale in ("logit", "log_probability"):
        target = model.resolve(example, Target(scale=scale))
        assert float(model.targets(rows, target)) == pytest.approx(expected, abs=1e-10)
        assert target.description == "the function log-probability of the answer 'un bon film'"
    chance = float(model.targets(rows, model.resolve(example, Target(scale="probability"))))
    assert chance == pytest.approx(math.exp(expected), rel=1e-10)


def test_a_step_of_the_answer_is_explained_by_its_position(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    steps = by_hand(model, example.inputs["input_ids"], list(example.notes["answer_ids"]))
    target = model.resolve(example, Target("mauvais", against="pas", position=1, scale="log_probability"))
    expected = steps[1].log_softmax(-1)[[ANSWERS.ids["mauvais"], ANSWERS.ids["pas"]]].tolist()
    assert float(model.targets([Row(example)], target)) == pytest.approx(expected[0] - expected[1])
    predicted = model.resolve(example, Target(position=1))
    assert (predicted.position, predicted.label) == (1, int(steps[1].argmax()))
    assert model.resolve(example, "mauvais").position == 3  # the last step
    assert model.resolve(example, "mauvais").last_seen is None  # of the text all can be seen
    with pytest.raises(InputError, match="did you mean 'mauvais'"):
        model.resolve(example, "mauvai")
    with pytest.raises(InputError, match="position 4 is outside of the 4 positions"):
        model.resolve(example, Target(position=4))


# ---------------------------------------------------------------- methods


def test_leave_one_out_is_the_fall_of_the_answers_log_probability(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    answer, embeddings = list(example.notes["answer_ids"]), model.embed(example)
    found = attribute(model, example, "leave_one_out", operator="mean").scores
    whole, mean = log_probability(model, answer, embeddings), model.module.token_embedding.weight.mean(0)
    for token in range(1, 4):
        changed = embeddings.clone()
        changed[token] = mean
        expected = float((whole - log_probability(model, answer, changed)).detach())
        assert float(found[token]) == pytest.approx(expected, abs=1e-5)


def test_gradients_are_those_of_the_answers_log_probability(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    embeddings = model.embed(example).clone().requires_grad_()
    answer = log_probability(model, list(example.notes["answer_ids"]), embeddings)
    (gradient,) = torch.autograd.grad(answer, embeddings)
    found = attribute(model, example, "input_x_gradient").scores
    assert (found - (gradient * embeddings).sum(-1).detach().float()).abs().max() < 1e-5


def test_integrated_gradients_add_up_to_the_change_from_the_baseline(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    answer, embeddings = list(example.notes["answer_ids"]), model.embed(example)
    start = embeddings.clone()
    start[1:] = model.module.token_embedding.weight[WORDS.ids["[MASK]"]].detach()
    with torch.no_grad():
        change = float(log_probability(model, answer, embeddings) - log_probability(model, answer, start))
    found = attribute(model, example, "integrated_gradients", n_steps=400, max_steps=400)
    assert float(found.scores.sum()) == pytest.approx(change, abs=0.02 * abs(change))


def test_raw_attention_is_the_mean_alignment_of_the_steps_that_the_answer_is_read_from(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    maps = cross_maps(model.module, example.inputs["input_ids"], None, example.inputs["decoder_input_ids"])[0]
    last = maps[-1].mean(0)
    assert (attribute(model, example, "raw_attention").scores - last.mean(0)).abs().max() < 1e-6
    of_step = attribute(model, example, "raw_attention", Target(position=2))
    # A recurrent decoder has read at step 2 what it saw at the steps before as well.
    steps = [2] if isinstance(model.module, EncoderDecoder) else [0, 1, 2]
    assert of_step.used["read_rows"] == steps
    assert (of_step.scores - last[steps].mean(0)).abs().max() < 1e-6


def test_attention_times_gradient_sums_over_every_step(model: OwnModel):
    example = model.example(TEXT, answer=ANSWER)
    answer = model.resolve(example)
    capture = model.capture(example, keep=Keep.of("weights", kind="cross"), differentiable=True)
    weights = [site.weights for site in capture.sites]
    gradients = torch.autograd.grad(answer(capture.logits).sum(), weights)
    expected = sum((w * g)[0].sum((0, 1)) for w, g in zip(weights, gradients, strict=True))
    found = attribute(model, example, "attention_x_gradient").scores
    assert (found - expected.detach().float()).abs().max() < 1e-5
    assert float(found.abs().max()) > 1e-3


@pytest.mark.filterwarnings("ignore:'rollout' gave no answer on any of the 2 texts")
def test_a_comparison_runs_and_says_that_rollout_does_not_apply(model: OwnModel):
    examples = [model.example(TEXT, answer=ANSWER), model.example("not bad", answer="pas mauvais")]
    methods = ["raw_attention", "attention_x_gradient", "input_x_gradient", "leave_one_out", "occlusion", "rollout"]
    comparison = compare(model, examples, methods, n_random=2, progress=False)
    failed = comparison.failures[comparison.failures.method == "rollout"]
    assert len(failed) == 2 and failed.error.str.contains("encoder-decoder").all()
    assert [len(study.attributions) for study in comparison.studies] == [5, 5]
    assert not comparison.faithfulness.empty


def test_a_model_whose_answer_is_given_needs_no_words_to_ask_with(model: OwnModel):
    scores = attribute(model, "a good film", "leave_one_out").scores  # the greedy answer
    assert scores.shape == (4,) and bool(scores.isfinite().all())
