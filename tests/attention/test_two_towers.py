"""Two towers: what the words see of the picture, stacks by name, edits, and torch's own attention beside ours."""

import pytest
import torch
from torch import Tensor, nn

from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.attention.two_towers import LookingBlock, PictureAsked, TwoTowers
from attnprobe.errors import EditError, InputError
from attnprobe.intervention import knock_out, silence_head, uniform


def towers(vision_layers: int = 1, **options) -> TwoTowers:
    sizes = {"d_model": 16, "n_heads": 2, "vision_layers": vision_layers, "text_layers": 2, "max_length": 6, **options}
    network = TwoTowers(9, 4, (4, 6), 2, **sizes).double().eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    return network


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    pictures = torch.randn(2, 3, 4, 6, dtype=torch.float64, generator=generator)
    return torch.tensor([[1, 4, 7, 2], [1, 3, 3, 8]]), pictures


def seen(network: TwoTowers, *tensors: str, edits=()) -> Tape:
    with recording(Tape(edits, keep=Keep.of(*tensors), locate=network.locate)) as tape:
        network(*inputs())
    return tape


def torchs(ours: MultiHeadAttention, query: Tensor, context: Tensor) -> Tensor:
    """nn.MultiheadAttention with the weights of ours."""
    theirs = nn.MultiheadAttention(16, ours.n_heads, batch_first=True, dtype=torch.float64)
    maps = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([m.weight for m in maps]))
        theirs.in_proj_bias.copy_(torch.cat([m.bias for m in maps]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    return theirs(query, context, context)[0]


def test_a_looking_block_equals_one_of_torchs_multihead_attentions():
    block = LookingBlock(16, 2, 32).double()
    x, context = torch.randn(2, 4, 16, dtype=torch.float64), torch.randn(2, 5, 16, dtype=torch.float64)
    normed = block.attention_norm(x)
    expected = x + torchs(block.attention, normed, normed)
    expected = expected + torchs(block.crossing, block.crossing_norm(expected), context)
    expected = expected + block.mlp(block.mlp_norm(expected))
    assert (block(x, context) - expected).abs().max() < 1e-12


def test_stacks_have_the_names_of_the_towers_and_layers_their_paths():
    tape = seen(towers(), "weights")
    assert [(s.place.stack, s.place.kind, s.place.layer, s.place.path) for s in tape.sites] == [
        ("vision", "self", 0, "vision.blocks.0.attention"),
        ("text", "self", 0, "blocks.0.attention"),
        ("text", "cross", 0, "blocks.0.crossing"),
        ("text", "self", 1, "blocks.1.attention"),
        ("text", "cross", 1, "blocks.1.crossing"),
    ]
    assert [tuple(site.weights.shape[2:]) for site in tape.sites] == [(6, 6), (4, 4), (4, 6), (4, 4), (4, 6)]
    assert all((site.weights.sum(-1) - 1).abs().max() < 1e-14 for site in tape.sites)


def test_the_answer_depends_on_every_patch_and_every_word():
    network, (ids, pictures) = towers(), inputs()
    words = network.token_embedding(ids).detach().requires_grad_()
    patches = network.vision.embed(pictures).detach().requires_grad_()
    gradients = torch.autograd.grad(network.answer(words, patches).square().sum(), (words, patches))
    assert all((gradient.abs().sum(-1) > 0).all() for gradient in gradients)


def test_padding_words_have_no_influence_and_change_no_answer():
    network, (ids, pictures) = towers(), inputs()
    padded, is_word = torch.cat([ids, torch.tensor([[0, 5], [6, 0]])], 1), torch.ones(2, 6, dtype=torch.bool)
    is_word[:, 4:] = False
    assert (network(padded, pictures, is_word) - network(ids, pictures)).abs().max() < 1e-13
    assert (network(padded, pictures) - network(ids, pictures)).abs().max() > 1e-3


def test_a_question_without_its_picture_is_refused():
    ids, pictures = inputs()
    with pytest.raises(InputError, match="2 questions and 1 pictures"):
        towers()(ids, pictures[:1])


def test_where_patches_do_not_mix_one_that_no_word_looks_at_does_not_exist():
    """One patch is cut from all words: its pixels have a gradient only where patches mix."""
    for vision_layers, mixing, hidden in ((0, True, True), (1, False, True), (1, True, False)):
        network, (ids, pictures) = towers(vision_layers, mixing=mixing), inputs()
        pictures.requires_grad_()
        with recording(Tape([knock_out(None, 4, stack="text", kind="cross")], locate=network.locate)):
            (gradient,) = torch.autograd.grad(network(ids, pictures).square().sum(), pictures)
        patch = gradient[:, :, 2:4, 2:4]  # patch 4 of 2 x 3: second row, second column
        assert bool((patch == 0).all()) is hidden
        assert (gradient[:, :, :2, :2] != 0).any()


def test_silencing_the_cross_attention_is_an_output_projection_of_zeros():
    network, given = towers(), inputs()
    edits = [silence_head(layer, [0, 1], stack="text", kind="cross") for layer in (0, 1)]
    with recording(Tape(edits, locate=network.locate)):
        edited = network(*given)
    with torch.no_grad():
        for block in network.blocks:
            block.crossing.output.weight.zero_()
    assert torch.equal(edited, network(*given))
    assert torch.equal(edited, network(given[0], torch.randn_like(given[1])))  # blind to the picture


def test_an_edit_of_one_stack_leaves_the_others_as_they_are():
    network = towers()
    edit = uniform(layers=1, stack="text", kind="cross")
    plain, edited = seen(network, "weights"), seen(network, "weights", edits=[edit])
    changed = [not torch.equal(a.weights, b.weights) for a, b in zip(plain.sites, edited.sites, strict=True)]
    assert changed == [False, False, False, False, True]
    assert (edited.sites[-1].weights - 1 / 6).abs().max() < 1e-15


def test_an_edit_of_a_stack_that_is_not_there_is_refused():
    with pytest.raises(EditError, match="vision self-attention layers 0 to 0, text self-attention"):
        seen(towers(), "weights", edits=[silence_head(0, 0, stack="audio")])


def test_a_picture_asked_one_question_answers_as_the_towers_do():
    network, (ids, pictures) = towers(), inputs()
    asked = PictureAsked(network, ids[0])
    answers = asked(network.vision.embed(pictures))
    assert (answers - network(ids[:1].expand(2, -1), pictures)).abs().max() < 1e-14
    with recording(Tape(locate=asked.locate)) as tape:
        asked(network.vision.embed(pictures))
    assert str(tape.sites[2].place) == "text cross-attention layer 0 (towers.blocks.0.crossing)"


def test_a_patch_that_is_not_there_is_seen_by_no_word_and_no_patch():
    network, (ids, pictures) = towers(), inputs()
    asked, embeddings = PictureAsked(network, ids[0]), network.vision.embed(pictures)
    is_patch = torch.ones(2, 6, dtype=torch.bool)
    is_patch[:, 2] = False
    other = embeddings.clone()
    other[:, 2] = 50.0
    assert torch.equal(asked(embeddings, is_patch), asked(other, is_patch))
