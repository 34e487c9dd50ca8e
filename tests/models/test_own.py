"""A network of our own behind the Model interface: reading, removal, recording."""

import pytest
import torch
from torch import Tensor, nn

from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.attention.transformer import TransformerClassifier, TransformerLanguageModel
from attnprobe.errors import CaptureError, EditError, InputError
from attnprobe.intervention import silence_head
from attnprobe.models.evaluator import differentiable, logits
from attnprobe.models.layers import layer_calls, rerun
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.rows import Row
from attnprobe.target import Target

SENTENCES = ["a good film, not bad", "the film was bad", "it's fine"]
VOCABULARY = Vocabulary.of(SENTENCES, specials=("[PAD]", "[UNK]", "[CLS]", "[MASK]"))


def classifier(norm: str = "pre") -> OwnModel:
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 2, "max_length": 8, "norm": norm}
    network = TransformerClassifier(len(VOCABULARY.tokens), 2, **sizes)
    return OwnModel(network, VOCABULARY, labels=("negative", "positive"))


def decoder() -> OwnModel:
    network = TransformerLanguageModel(len(VOCABULARY.tokens), d_model=16, n_heads=4, n_layers=3, max_length=8)
    return OwnModel(network, Vocabulary(VOCABULARY.tokens, begin=None))


MODELS = {"classifier": classifier, "post-norm classifier": lambda: classifier("post"), "decoder": decoder}


@pytest.fixture(params=MODELS)
def model(request: pytest.FixtureRequest) -> OwnModel:
    return MODELS[request.param]()


# ---------------------------------------------------------------- reading


def test_a_text_becomes_tokens_with_the_characters_they_cover():
    example = classifier().example("A good film, it's great")
    assert example.tokens == ("[CLS]", "a", "good", "film", ",", "it's", "[UNK]")
    assert example.pieces == ("[CLS]", "A", "good", "film", ",", "it's", "great")
    assert example.is_special == (True, False, False, False, False, False, False)
    assert example.words == (None, 0, 1, 2, 3, 4, 5)
    assert example.inputs["input_ids"].tolist() == [[2, 4, 5, 6, 7, 12, 1]]


def test_a_text_its_words_and_its_ids_are_read_alike():
    model = classifier()
    example = model.example("a bad film")
    for same in (["a", "bad", "film"], example.inputs["input_ids"][0].tolist(), example.inputs["input_ids"]):
        other = model.example(same)
        assert other.tokens == example.tokens
        assert other.pieces == example.pieces
        assert torch.equal(model.forward([Row(other)]), model.forward([Row(example)]))
    assert model.example(example) is example


def test_mask_stands_for_a_word_and_is_not_special():
    assert classifier().example("a [MASK] film").is_special == (True, False, False, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no words"),
        ("   ", "no words"),
        ([], "no words"),
        ("bad " * 8, "9 tokens, own has 8 positions"),
        ([2, 99], "id 99 is outside of the vocabulary of 14 tokens"),
        ([-1], "id -1 is outside"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(text: object, message: str):
    with pytest.raises(InputError, match=message):
        classifier().example(text)


def test_a_pair_or_an_unknown_word_without_unk_is_refused():
    with pytest.raises(InputError, match="one text"):
        classifier().example("a", "b")
    with pytest.raises(InputError, match="did you mean 'film'"):
        Vocabulary.of(["a film"], specials=("[CLS]",)).encode("filn")
    with pytest.raises(InputError, match="begin=None"):
        Vocabulary(("a", "b"))
    with pytest.raises(InputError, match="did you mean 'positive'"):
        classifier().outputs.index("positiv")


def test_a_network_without_an_embedding_or_with_too_few_is_refused():
    with pytest.raises(InputError, match="token_embedding"):
        OwnModel(nn.Linear(2, 2), VOCABULARY)
    with pytest.raises(InputError, match="14 words need as many embeddings, the network has 3"):
        OwnModel(TransformerClassifier(3, 2), VOCABULARY)


# ---------------------------------------------------------------- recording


def test_a_capture_of_an_own_model_passes_its_checks_and_leaves_the_logits_bit_for_bit(model: OwnModel):
    example = model.example("the film was not bad")
    plain = model.forward([Row(example)])
    capture = model.capture(example, keep=Keep.of("query", "key", "value", "scores", "weights", "z"), check="full")
    assert torch.equal(capture.logits, plain)
    assert torch.equal(model.forward([Row(example)]), plain)
    assert all(check.passed for check in capture.checks)
    assert len(capture.checks) == 2 * model.stacks[0].n_layers + 1
    assert capture.checks[-1].value == 0.0
    weights = capture.weights()
    assert (weights.sum(-1) - 1).abs().max() < 1e-6
    differences = zip(capture.tensor("weights"), capture.tensor("value"), capture.tensor("z"), strict=True)
    assert all(torch.equal(w @ v, z) for w, v, z in differences)


def test_stacks_name_every_layer_with_its_path():
    assert classifier().stacks[0].n_heads == (2, 2)
    stack = decoder().stacks[0]
    assert (stack.name, stack.kind, stack.n_heads) == ("decoder", "self", (4, 4, 4))
    assert stack.paths == tuple(f"blocks.{i}.attention" for i in range(3))


def test_gradients_reach_the_captured_weights(model: OwnModel):
    model.module.requires_grad_(False)
    row = Row(model.example("a good film"))
    answer, tape = differentiable(model, [row], Keep.of("weights"))
    gradients = torch.autograd.grad(answer.flatten()[-1], [site.weights for site in tape.sites])
    assert all(float(gradient.abs().max()) > 0 for gradient in gradients)


def test_an_edit_acts_on_its_own_row_alone(model: OwnModel):
    example = model.example("a good film")
    first, second = silence_head(0, 0), silence_head(1, 1)
    together = logits(model, [Row(example), Row(example, edits=(first,)), Row(example, edits=(second,))])
    apart = [model.forward([Row(example)]), *(model.capture(example, edits=[e]).logits for e in (first, second))]
    assert (together - torch.cat(apart)).abs().max() < 1e-6
    assert not torch.allclose(together[0], together[1], atol=1e-4)
    assert not torch.allclose(together[1], together[2], atol=1e-4)


def test_an_edit_of_a_head_that_is_not_there_is_refused(model: OwnModel):
    with pytest.raises(EditError):
        model.capture(model.example("a good film"), edits=[silence_head(0, 9)])


def test_a_second_pass_under_one_tape_numbers_its_layers_from_zero_again(model: OwnModel):
    row, tape = Row(model.example("a")), Tape()
    model.forward([row], tape)
    model.forward([row], tape)
    n_layers = model.stacks[0].n_layers
    assert [(site.place.step, site.layer) for site in tape.sites] == [(s, i) for s in range(2) for i in range(n_layers)]


def test_a_plain_pass_inside_a_recording_is_not_recorded(model: OwnModel):
    with recording(Tape()) as tape:
        model.forward([Row(model.example("a"))])
    assert tape.seen == []


def test_a_network_without_our_attention_is_refused():
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token_embedding = nn.Embedding(len(VOCABULARY.tokens), 2)

        def forward(self, embeddings: Tensor, is_token: Tensor | None = None) -> Tensor:
            return embeddings.mean(1)

    model = OwnModel(Mean(), VOCABULARY, labels=("no", "yes"))
    with pytest.raises(CaptureError, match="no attention"):
        model.capture(model.example("a film"))
    with pytest.raises(CaptureError, match=r"attnprobe\.attention"):
        _ = model.stacks


def test_any_module_on_our_attention_can_be_asked_shared_and_crossing_layers_too():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.attention = nn.Embedding(len(VOCABULARY.tokens), 4), MultiHeadAttention(4, 2)

        def forward(self, embeddings: Tensor, is_token: Tensor | None = None) -> Tensor:
            x = self.attention(self.attention(embeddings))
            return self.attention(x[:, :1], embeddings)[:, 0]

    network = Twice()
    model = OwnModel(network, VOCABULARY, labels=tuple("abcd"), embedding=network.words)
    assert [(s.kind, s.n_heads) for s in model.stacks] == [("self", (2, 2)), ("cross", (2,))]
    places = [str(site.place) for site in model.capture(model.example("a bad film")).sites]
    assert places[1] == "encoder self-attention layer 1 (attention, call 1)"


def test_a_layer_run_again_gives_what_it_gave(model: OwnModel):
    for text in ("bad", "a good film"):
        example = model.example(text)
        for call in layer_calls(model, example, model.stacks[0].name):
            outputs = rerun(model, call, [Row(example), Row(example)])
            assert (outputs - call.output).abs().max() < 1e-6


# ---------------------------------------------------------------- removal


def without(n_tokens: int, *removed: int) -> Tensor:
    return torch.tensor([index not in removed for index in range(n_tokens)])


@pytest.mark.parametrize("operator", ["mask", "pad", "unk", "mean", "zero"])
def test_a_content_operator_puts_its_embedding_in_the_tokens_place(model: OwnModel, operator: str):
    example = model.example("a good film")
    kept = without(example.n_tokens, 1)
    by_hand = model.embed(example).clone()
    by_hand[1] = model.fillers[operator]
    removed = model.forward([Row(example, kept=kept, operator=operator)])
    assert torch.equal(removed, model.forward([Row(example, embeddings=by_hand)]))
    assert not torch.equal(removed, model.forward([Row(example)]))


def test_fillers_are_the_embeddings_of_the_special_tokens():
    model = classifier()
    table = model.module.token_embedding.weight
    assert list(model.fillers) == ["mask", "mean", "pad", "unk", "zero"]
    assert torch.equal(model.fillers["mask"], table[3])
    assert torch.equal(model.fillers["pad"], table[0])
    assert torch.equal(model.fillers["mean"], table.mean(0))
    bare = OwnModel(TransformerClassifier(3, 2), Vocabulary(("[CLS]", "a", "b")), labels=("x", "y"))
    assert list(bare.fillers) == ["mean", "zero"]
    with pytest.raises(InputError, match="no 'mask' embedding"):
        bare.forward([Row(bare.example("a b"), kept=without(3, 1))])


def test_nobody_looks_at_a_token_removed_by_the_attention_mask(model: OwnModel):
    example = model.example("a good film")
    last = example.n_tokens - 1
    row = Row(example, kept=without(example.n_tokens, 1), operator="attention_mask")
    tape = Tape(keep=Keep.of("weights"))
    answer = model.forward([row, Row(example)], tape)
    assert all(float(site.weights[0, :, :, 1].abs().max()) == 0.0 for site in tape.sites)
    assert all(float(site.weights[1, :, last, 1].min()) > 0.0 for site in tape.sites)
    assert (answer[1:] - model.forward([Row(example)])).abs().max() < 1e-6


def test_every_key_may_be_taken_away_without_a_warning_or_a_nan(model: OwnModel):
    example = model.example("a good film")
    nothing = torch.zeros(example.n_tokens, dtype=torch.bool)
    tape = Tape(keep=Keep.of("weights"))
    answer = model.forward([Row(example, kept=nothing, operator="attention_mask")], tape)
    assert torch.isfinite(answer).all()
    assert all(float(site.weights.abs().max()) == 0.0 for site in tape.sites)


def test_a_deleted_token_is_not_there(model: OwnModel):
    example, shorter = model.example("a good film"), model.example("a film")
    place = example.tokens.index("good")
    deleted = model.forward([Row(example, kept=without(example.n_tokens, place), operator="delete")])
    assert (deleted - model.forward([Row(shorter)])).abs().max() < 1e-6


def test_rows_of_different_lengths_are_refused(model: OwnModel):
    rows = [Row(model.example("a")), Row(model.example("a film"))]
    with pytest.raises(InputError, match="one length"):
        model.forward(rows)


# ---------------------------------------------------------------- targets


def test_a_classifier_answers_once_and_a_decoder_at_its_last_token():
    model, example = classifier(), classifier().example("a film")
    assert model.outputs.position(example) is None
    target = model.resolve(example, Target("positive", against="negative"))
    answer = model.forward([Row(example)])[0].detach()
    assert float(model.targets([Row(example)], target)) == pytest.approx(float(answer[1] - answer[0]))
    words = decoder()
    resolved = words.resolve(words.example("a film"), Target("bad"))
    assert (resolved.position, resolved.label) == (1, VOCABULARY.ids["bad"])


def test_a_model_describes_itself():
    facts = classifier().describe()
    assert facts["dtype"] == "float32"
    assert facts["n_parameters"] == sum(p.numel() for p in classifier().module.parameters())
