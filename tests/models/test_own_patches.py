"""Pictures as inputs of our own models: patches as tokens, removal and gradients on their embeddings."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from attnprobe import attribute, compare
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.seam import Keep, Tape
from attnprobe.attention.transformer import TransformerClassifier
from attnprobe.attention.two_towers import PictureAsked, QuestionAsked, TwoTowers
from attnprobe.attention.vision import VisionTransformer, to_patches
from attnprobe.errors import InputError
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.rows import Row
from attnprobe.target import Target

SIZE, SIDE, LABELS = (4, 6), 2, ("cat", "dog", "hen")
METHODS = (
    "raw_attention",
    "rollout",
    "value_zeroing",
    "attention_x_gradient",
    "input_x_gradient",
    "integrated_gradients",
    "leave_one_out",
    "occlusion",
)


def pictures(n: int = 5, channels: int = 1) -> Tensor:
    return torch.rand(n, channels, *SIZE, generator=torch.Generator().manual_seed(3))


def transformer(channels: int = 1) -> VisionTransformer:
    network = VisionTransformer(SIZE, SIDE, 3, n_channels=channels, d_model=16, n_heads=2, n_layers=2)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(2.0)
    return network


@pytest.fixture
def model() -> OwnModel:
    return OwnModel(transformer(), labels=LABELS, pictures=pictures())


# ---------------------------------------------------------------- reading


def test_a_picture_becomes_patches_by_row_and_column(model: OwnModel):
    example = model.example(pictures()[0])
    assert example.tokens == ("[CLS]", "0,0", "0,1", "0,2", "1,0", "1,1", "1,2")
    assert example.is_special == (True, *[False] * 6) and example.axis == "patches"
    assert example.text == "picture of 2 \N{MULTIPLICATION SIGN} 3 patches"
    assert torch.equal(example.inputs["pixel_values"], pictures()[:1])


def test_a_picture_is_the_same_in_every_form(model: OwnModel):
    one = pictures()[0]
    for form in (one, one[None], one[0], one.numpy(), one.double(), one.tolist(), one[0].tolist()):
        assert torch.equal(model.example(form).inputs["pixel_values"], one[None])
    colours = OwnModel(transformer(3), labels=LABELS)
    assert colours.example(pictures(1, 3)[0]).n_tokens == 7
    with pytest.raises(InputError, match=r"\[channel height width\] of \[3, 4, 6\], got \[4, 6\]"):
        colours.example(one[0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.rand(1, 4, 4), r"\[1, 4, 6\], got \[1, 4, 4\]"),
        (torch.rand(2, 1, 4, 6), r"got \[2, 1, 4, 6\]"),
        (torch.zeros(1, 4, 6, dtype=torch.uint8), "got uint8"),
        (np.zeros((4, 6), dtype=int), "got int64"),
        ("a cat", "got str"),
        ([], "channel height width|floats"),
    ],
)
def test_what_is_no_picture_of_the_network_is_refused(model: OwnModel, given: object, message: str):
    with pytest.raises(InputError, match=message):
        model.example(given)


def test_a_network_that_reads_pictures_and_what_does_not_go_with_it():
    words = Vocabulary(("[CLS]", "a", "b", "c"))
    with pytest.raises(InputError, match="name its classes: labels"):
        OwnModel(transformer())
    with pytest.raises(InputError, match="it reads pictures: leave the vocabulary out"):
        OwnModel(transformer(), words, labels=LABELS)
    with pytest.raises(InputError, match="reads words with a vocabulary, or pictures with embed="):
        OwnModel(TransformerClassifier(4, 2), labels=("a", "b"))
    with pytest.raises(InputError, match="pictures does not go with a network that has a vocabulary"):
        OwnModel(TransformerClassifier(4, 2), words, labels=("a", "b"), pictures=pictures())
    with pytest.raises(InputError, match="target_vocabulary does not go with a network that has no vocabulary"):
        OwnModel(transformer(), labels=LABELS, target_vocabulary=words)
    with pytest.raises(InputError, match=r"each \[1, 4, 6\], got \[5, 3, 4, 6\]"):
        OwnModel(transformer(), labels=LABELS, pictures=pictures(5, 3))
    with pytest.raises(InputError, match="3 outputs and 2 labels"):
        OwnModel(transformer(), labels=("cat", "dog")).resolve(OwnModel(transformer(), labels=LABELS)._probe())
    with pytest.raises(InputError, match=r"PictureAsked\(towers, ids\)"):
        OwnModel(TwoTowers(9, 4, SIZE, SIDE), words, labels=tuple("abcd"))


# ---------------------------------------------------------------- passes


def test_logits_and_captures_are_those_of_the_network(model: OwnModel):
    network, given = model.module, pictures()
    expected = network(network.embed(given[:1]))
    capture = model.capture(model.example(given[0]), keep=Keep.of("weights", "value", "z"), check="full")
    assert (capture.logits - expected).abs().max() < 1e-5
    assert torch.equal(capture.logits, model.forward([Row(capture.example)]))
    assert all(check.passed for check in capture.checks)
    (stack,) = model.stacks
    assert (stack.name, stack.kind, stack.n_heads) == ("vision", "self", (2, 2))
    assert stack.paths == ("blocks.0.attention", "blocks.1.attention")


def test_fillers_are_the_mean_patch_the_patch_of_nothing_and_zero(model: OwnModel):
    network = model.module.requires_grad_(False)
    patches = torch.stack([network.patch_embedding(patch) for patch in to_patches(pictures(), SIDE).flatten(0, 1)])
    assert list(model.fillers) == ["mean", "mask", "zero"]
    assert (model.fillers["mean"] - patches.mean(0)).abs().max() < 1e-6
    assert (model.fillers["mask"] - network.patch_embedding.bias).abs().max() < 1e-6
    assert not model.fillers["zero"].any()
    assert list(OwnModel(network, labels=LABELS).fillers) == ["mask", "zero"]


def test_fillers_follow_the_network_when_it_is_trained(model: OwnModel):
    before = model.fillers["mean"]
    assert model.fillers["mean"] is before
    with torch.no_grad():
        model.module.patch_embedding.bias.add_(1.0)
    assert (model.fillers["mean"] - before - 1).abs().max() < 1e-5


@pytest.mark.parametrize("operator", ["mean", "mask", "zero"])
def test_a_removed_patch_has_another_embedding(model: OwnModel, operator: str):
    network, given = model.module, pictures()
    embeddings = network.embed(given[:1]).detach()
    embeddings[0, 4] = model.fillers[operator]
    kept = torch.arange(7) != 4
    found = model.forward([Row(model.example(given[0]), kept=kept, operator=operator)])
    assert (found - network(embeddings)).abs().max() < 1e-6


def test_nobody_looks_at_a_patch_that_the_attention_mask_hides_and_none_can_be_deleted(model: OwnModel):
    example, kept, tape = model.example(pictures()[0]), torch.arange(7) != 4, Tape(keep=Keep.of("weights"))
    model.forward([Row(example, kept=kept, operator="attention_mask")], tape)
    assert all(not site.weights[..., 4].any() for site in tape.sites)
    with pytest.raises(InputError, match="reads exactly 7 tokens, got 6"):
        model.forward([Row(example, kept=kept, operator="delete")])


# ---------------------------------------------------------------- methods


def test_gradients_are_those_of_patch_embeddings(model: OwnModel):
    network, given = model.module, pictures()
    embeddings = network.embed(given[:1]).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(network(embeddings)[0, 1], embeddings)
    found = attribute(model, given[0], "input_x_gradient", "dog").scores
    assert (found - (gradient * embeddings)[0].sum(-1).detach()).abs().max() < 1e-5


def test_integrated_gradients_add_up_to_the_change_from_the_mean_patch(model: OwnModel):
    network, given = model.module.requires_grad_(False), pictures()
    embeddings = network.embed(given[:1])
    start = embeddings.clone()
    start[0, 1:] = network.embed(given)[:, 1:].mean((0, 1))
    change = float(network(embeddings)[0, 1] - network(start)[0, 1])
    found = attribute(model, given[0], "integrated_gradients", "dog", n_steps=200)
    assert float(found.scores.sum()) == pytest.approx(change, abs=1e-3)
    assert float(found.scores[0]) == 0  # [CLS] is in the baseline too


@pytest.mark.parametrize("known", [True, False])
def test_every_method_judges_patches(known: bool):
    model = OwnModel(transformer(), labels=LABELS, pictures=pictures() if known else None)
    comparison = compare(model, list(pictures(2)), METHODS, n_random=2, progress=False)
    assert comparison.failures.empty
    assert comparison.settings.operator == ("mean" if known else "mask")
    assert all(study.target.label_name in LABELS for study in comparison.studies)


class Convolved(nn.Module):
    """Somebody's own network: a convolution embeds, attention mixes, the mean answers; it says nothing of itself."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution, self.attention = nn.Conv2d(1, 8, 2, 2), MultiHeadAttention(8, 2)

    def patches(self, given: Tensor) -> Tensor:
        return self.convolution(given).flatten(2).mT

    def forward(self, embeddings: Tensor, is_token: Tensor | None = None) -> Tensor:
        return self.attention(embeddings).mean(1)[:, :3]


def test_a_network_with_an_embed_function_of_its_own_is_asked_at_its_positions():
    network = Convolved()
    with pytest.raises(InputError, match="does not say how large its pictures are"):
        OwnModel(network, labels=LABELS, embed=network.patches)
    model = OwnModel(network, labels=LABELS, embed=network.patches, pictures=list(pictures()))
    example = model.example(pictures()[1])
    assert example.tokens[-1] == "position 5" and example.axis == "positions" and not any(example.is_special)
    assert torch.equal(model.embed(example), network.patches(pictures()[1:2])[0].detach())
    assert (model.fillers["mean"] - network.patches(pictures()).mean((0, 1))).abs().max() < 1e-6
    assert attribute(model, example, "leave_one_out").scores.shape == (6,)
    with pytest.raises(InputError, match=r"embed gives \[picture token d_model\]"):
        OwnModel(network, labels=LABELS, embed=network.convolution, pictures=pictures()).example(pictures()[0])


# ---------------------------------------------------------------- two towers


def towers() -> TwoTowers:
    network = TwoTowers(9, 4, SIZE, SIDE, d_model=16, n_heads=2, max_length=6)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    return network


def test_the_picture_of_two_towers_is_explained_with_the_question_held_fixed():
    network, ids, given = towers(), torch.tensor([1, 4, 7]), pictures(2, 3)
    model = OwnModel(PictureAsked(network, ids), labels=tuple("abcd"), pictures=given)
    example = model.example(given[0])
    assert example.tokens == ("0,0", "0,1", "0,2", "1,0", "1,1", "1,2")
    assert (model.forward([Row(example)]) - network(ids[None], given[:1])).abs().max() < 1e-5
    found = attribute(model, example, "raw_attention").scores
    crossing = model.capture(example).weights("text", "cross")[-1].mean(0)[0]  # the answer is read from [CLS]
    assert (found - crossing).abs().max() < 1e-6


def test_the_question_of_two_towers_is_explained_with_the_picture_held_fixed():
    network, given, words = towers(), pictures(1, 3), Vocabulary(("[PAD]", "[CLS]", *"abcdefg"))
    model = OwnModel(QuestionAsked(network, given[0]), words, labels=tuple("abcd"))
    example = model.example("c f")
    ids = torch.tensor([[1, 4, 7]])
    assert example.inputs["input_ids"].tolist() == ids.tolist()
    assert (model.forward([Row(example)]) - network(ids, given)).abs().max() < 1e-5
    embeddings = network.token_embedding(ids).detach().requires_grad_()
    patches = network.vision.embed(given)
    (gradient,) = torch.autograd.grad(network.answer(embeddings, patches)[0, 2], embeddings)
    found = attribute(model, example, "input_x_gradient", "c").scores
    assert (found - (gradient * embeddings)[0].sum(-1).detach()).abs().max() < 1e-5
    raw = attribute(model, example, "raw_attention").scores
    assert (raw - model.capture(example).weights("text", "self")[-1].mean(0)[0]).abs().max() < 1e-6
    with pytest.raises(InputError, match="7 tokens, own has 6 positions"):
        model.example("a b c d e f")


@pytest.mark.parametrize("method", METHODS)
def test_methods_say_something_of_every_word_of_a_question(method: str):
    words = Vocabulary(("[PAD]", "[CLS]", *"abcdefg"))
    model = OwnModel(QuestionAsked(towers(), pictures(1, 3)[0]), words, labels=tuple("abcd"))
    scores = attribute(model, "c f a", method, Target("b")).scores
    assert scores.shape == (4,) and bool(scores.isfinite().all()) and float(scores.abs().max()) > 0
