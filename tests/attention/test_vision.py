"""The Vision Transformer: patches, positions, what their order changes, and torch's own attention beside it."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.attention.vision import PictureEncoder, VisionTransformer, grid_positions, to_patches
from attnprobe.errors import InputError
from attnprobe.intervention import knock_out, silence_head

POSITIONS = ["learned", "grid", "none"]


def transformer(positions: str = "learned", **options) -> VisionTransformer:
    sizes = {"d_model": 16, "n_heads": 2, "n_layers": 2, "positions": positions, **options}
    network = VisionTransformer((4, 6), 2, 3, n_channels=2, **sizes).double().eval()
    for parameter in network.parameters():  # biases of 0 and small embeddings would hide mistakes
        nn.init.normal_(parameter, std=0.3)
    return network


def pictures(n: int = 2) -> Tensor:
    return torch.randn(n, 2, 4, 6, dtype=torch.float64)


# ---------------------------------------------------------------- patches


@pytest.mark.parametrize(("size", "side"), [((4, 6), 2), ((6, 6), 3), ((5, 2), 1), ((4, 4), 4)])
def test_patches_are_those_of_torchs_unfold(size: tuple[int, int], side: int):
    given = torch.randn(3, 2, *size)
    assert torch.equal(to_patches(given, side), F.unfold(given, side, stride=side).transpose(1, 2))


def test_the_embedding_of_patches_is_a_convolution_with_stride():
    network, given = transformer(), pictures()
    kernel = network.patch_embedding.weight.reshape(16, 2, 2, 2)
    folded = F.conv2d(given, kernel, network.patch_embedding.bias, stride=2).flatten(2).transpose(1, 2)
    embeddings = network.embed(given)
    assert (embeddings[:, 1:] - folded).abs().max() < 1e-13
    assert torch.equal(embeddings[:, 0], network.class_embedding.expand(2, -1))


def test_patches_that_do_not_tile_are_refused():
    with pytest.raises(InputError, match="3 x 3 pixels do not tile 4 x 6"):
        VisionTransformer((4, 6), 3, 2)


# ---------------------------------------------------------------- the whole network, once more by torch's own attention


def by_torch(network: VisionTransformer, given: Tensor) -> Tensor:
    """Logits with nn.MultiheadAttention in the place of ours, its weights copied."""
    x = network.embed(given)
    x = x + (network.table if network.positions is None else network.positions.weight)
    for block in network.blocks:
        attention = torchs(block.attention)
        normed = block.attention_norm(x)
        x = x + attention(normed, normed, normed)[0]
        x = x + block.mlp(block.mlp_norm(x))
    return network.classifier(network.final_norm(x)[:, 0])


def torchs(ours: MultiHeadAttention) -> nn.MultiheadAttention:
    theirs = nn.MultiheadAttention(16, ours.n_heads, batch_first=True, dtype=torch.float64)
    maps = (ours.query, ours.key, ours.value)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([m.weight for m in maps]))
        theirs.in_proj_bias.copy_(torch.cat([m.bias for m in maps]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    return theirs


@pytest.mark.parametrize("positions", POSITIONS)
def test_logits_equal_those_of_torchs_multihead_attention_with_copied_weights(positions: str):
    network, given = transformer(positions), pictures()
    assert (network(network.embed(given)) - by_torch(network, given)).abs().max() < 1e-12


# ---------------------------------------------------------------- positions


def test_without_positions_the_order_of_patches_changes_nothing():
    network, order = transformer("none"), torch.tensor([0, 3, 1, 6, 2, 5, 4])
    embeddings = network.embed(pictures())
    assert (network(embeddings) - network(embeddings[:, order])).abs().max() < 1e-12
    # and what is said of each patch moves with it
    assert (network.stream(embeddings)[:, order] - network.stream(embeddings[:, order])).abs().max() < 1e-12


@pytest.mark.parametrize("positions", ["learned", "grid"])
def test_with_positions_it_does(positions: str):
    network, order = transformer(positions), torch.tensor([0, 3, 1, 6, 2, 5, 4])
    embeddings = network.embed(pictures())
    assert (network(embeddings) - network(embeddings[:, order])).abs().max() > 1e-3


def test_2d_positions_are_sines_and_cosines_of_row_and_column_by_a_slow_loop():
    table = grid_positions(3, 4, 16)
    for row in range(3):
        for column in range(4):
            expected = []
            for place in (row, column):
                for i in range(4):
                    angle = torch.tensor(place * 100.0 ** (-2 * i / 8), dtype=torch.float64)
                    expected += [angle.sin(), angle.cos()]
            assert (table[4 * row + column] - torch.stack(expected)).abs().max() < 1e-15


def test_likeness_of_2d_positions_depends_on_the_steps_down_and_right_alone():
    table = grid_positions(4, 5, 16).unflatten(0, (4, 5))
    for down, right in ((0, 1), (2, 0), (1, 3)):
        dots = (table[: 4 - down, : 5 - right] * table[down:, right:]).sum(-1)
        assert (dots - dots[0, 0]).abs().max() < 1e-13
    assert torch.equal(transformer("grid").table[0], torch.zeros(16, dtype=torch.float64))


def test_a_width_without_two_halves_of_pairs_is_refused():
    with pytest.raises(InputError, match="divisible by 4"):
        grid_positions(2, 2, 6)
    with pytest.raises(InputError, match="did you mean 'learned'"):
        transformer("learnt")


# ---------------------------------------------------------------- input


def test_another_number_of_patches_is_refused():
    with pytest.raises(InputError, match=r"reads 7 tokens \(2 x 3 patches and \[CLS\]\), got 5"):
        transformer()(torch.randn(1, 5, 16, dtype=torch.float64))


def test_the_content_of_a_patch_that_nobody_may_look_at_has_no_influence():
    network, embeddings = transformer(), transformer().embed(pictures(1))
    is_token = torch.ones(1, 7, dtype=torch.bool)
    is_token[0, 3] = False
    other = embeddings.clone()
    other[0, 3] = 100.0
    assert torch.equal(network(embeddings, is_token), network(other, is_token))
    assert not torch.equal(network(embeddings), network(other))


def test_dropout_acts_in_training_alone():
    network = transformer(dropout=0.5)
    embeddings = network.embed(pictures())
    assert torch.equal(network(embeddings), network(embeddings))
    network.train()
    assert not torch.equal(network(embeddings), network(embeddings))


def test_an_encoder_without_a_class_token_gives_patches_alone():
    encoder = PictureEncoder((4, 6), 2, d_model=8, n_heads=2, class_token=False)
    assert encoder.stream(encoder.embed(torch.randn(2, 1, 4, 6))).shape == (2, 6, 8)


@pytest.mark.parametrize("masked", [False, True])
def test_patches_kept_apart_are_said_of_as_if_each_were_alone(masked: bool):
    encoder = PictureEncoder((4, 6), 2, d_model=8, n_heads=2, class_token=False, mixing=False).double()
    embeddings = torch.randn(1, 6, 8, dtype=torch.float64, requires_grad=True)
    is_token = torch.ones(1, 6, dtype=torch.bool) if masked else None
    for patch in range(6):
        (gradient,) = torch.autograd.grad(encoder.stream(embeddings, is_token)[0, patch].square().sum(), embeddings)
        assert (gradient[0].abs().sum(-1) > 0).nonzero().flatten().tolist() == [patch]


# ---------------------------------------------------------------- through the seam


def test_every_layer_is_seen_with_rows_that_sum_to_one():
    network, tape = transformer(), Tape(keep=Keep.of("weights", "value", "z"))
    with recording(tape):
        network(network.embed(pictures()))
    assert [(site.layer, tuple(site.weights.shape)) for site in tape.sites] == [(0, (2, 2, 7, 7)), (1, (2, 2, 7, 7))]
    assert all((site.weights.sum(-1) - 1).abs().max() < 1e-14 for site in tape.sites)
    assert all((site.weights @ site.value - site.z).abs().max() < 1e-14 for site in tape.sites)


def test_silencing_every_head_is_an_output_projection_of_zeros():
    network, embeddings = transformer(), transformer().embed(pictures())
    with recording(Tape([silence_head(1, [0, 1])])):
        edited = network(embeddings)
    with torch.no_grad():
        network.blocks[1].attention.output.weight.zero_()
    assert torch.equal(edited, network(embeddings))


def test_a_class_token_cut_from_a_patch_in_every_layer_still_hears_of_it_by_the_others():
    network, given = transformer(), pictures(1).requires_grad_()
    with recording(Tape([knock_out(0, 4)])):
        (gradient,) = torch.autograd.grad(network(network.embed(given)).sum(), given)
    assert to_patches(gradient, 2)[0, 3].abs().max() > 0  # token 4 is patch 3
    with recording(Tape([knock_out(None, 4)])):
        (gradient,) = torch.autograd.grad(network(network.embed(given)).sum(), given)
    assert to_patches(gradient, 2)[0, 3].abs().max() == 0
