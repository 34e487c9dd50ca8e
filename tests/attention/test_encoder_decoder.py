"""The transformer encoder-decoder: the same numbers as torch's own layers, what may reach what, and the seam."""

import pytest
import torch
from torch import nn

from attnprobe.attention.encoder_decoder import EncoderDecoder
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.positions.rotary import rotary
from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.attention.sequence_to_sequence import cross_maps, greedy, located, translation_loss
from attnprobe.errors import InputError
from attnprobe.intervention import silence_head

D, HEADS, LAYERS = 16, 2, 2


def made(**options) -> EncoderDecoder:
    return EncoderDecoder(11, 7, d_model=D, n_heads=HEADS, n_layers=LAYERS, max_length=9, **options).double()


def embedded(n: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, n, D, dtype=torch.float64)


def copy_attention(ours: MultiHeadAttention, theirs: nn.MultiheadAttention) -> None:
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
    theirs.out_proj.load_state_dict(ours.output.state_dict())


def torchs_own(network: EncoderDecoder) -> tuple[nn.Module, nn.Module]:
    """torch's encoder and decoder stacks with the network's weights."""
    options = {"activation": "gelu", "norm_first": True, "batch_first": True, "dropout": 0.0, "dtype": torch.float64}
    encoder = nn.ModuleList(nn.TransformerEncoderLayer(D, HEADS, 4 * D, **options) for _ in range(LAYERS))
    decoder = nn.ModuleList(nn.TransformerDecoderLayer(D, HEADS, 4 * D, **options) for _ in range(LAYERS))
    for theirs, ours in zip([*encoder, *decoder], [*network.encoder.blocks, *network.decoder.blocks], strict=True):
        copy_attention(ours.attention, theirs.self_attn)
        norms = [ours.attention_norm, ours.mlp_norm]
        if isinstance(theirs, nn.TransformerDecoderLayer):
            copy_attention(ours.cross_attention, theirs.multihead_attn)
            norms.insert(1, ours.cross_norm)
        for name, norm in zip(("norm1", "norm2", "norm3"), norms, strict=False):
            getattr(theirs, name).load_state_dict(norm.state_dict())
        theirs.linear1.load_state_dict(ours.mlp[0].state_dict())
        theirs.linear2.load_state_dict(ours.mlp[2].state_dict())
    return encoder, decoder


def test_it_equals_torchs_own_layers_with_the_same_weights():
    network, source, written = made(), embedded(6), embedded(4)
    is_token = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    encoder, decoder = torchs_own(network)
    x = source + network.encoder.positions.table(6)
    for layer in encoder:
        x = layer(x, src_key_padding_mask=~is_token)
    states = network.encoder.final_norm(x)
    y, future = written + network.decoder.positions.table(4), torch.ones(4, 4, dtype=torch.bool).triu(1)
    for layer in decoder:
        y = layer(y, states, tgt_mask=future, memory_key_padding_mask=~is_token)
    expected = network.decoder.final_norm(y) @ network.decoder.unembedding.weight.T
    assert (network(source, written, is_token) - expected).abs().max() < 1e-12


def test_no_gradient_reaches_what_is_written_later_and_some_reaches_every_input():
    network, source, written = made(), embedded(5, 1).requires_grad_(), embedded(4, 1).requires_grad_()
    for step in range(4):
        of_source, of_written = torch.autograd.grad(network(source, written)[0, step].square().sum(), (source, written))
        assert (of_written[0, step + 1 :] == 0).all()
        assert (of_written[0, : step + 1].abs().sum(-1) > 0).all()
        assert (of_source[0].abs().sum(-1) > 0).all()


def test_padding_of_the_input_has_no_influence():
    network, source, written = made(), embedded(6, 1), embedded(4, 1)
    is_token = torch.tensor([[True] * 4 + [False] * 2])
    other = source.clone()
    other[:, 4:] = 100.0
    assert torch.equal(network(source, written, is_token), network(other, written, is_token))
    assert (network(source, written, is_token) - network(source[:, :4], written)).abs().max() < 1e-12


def test_each_of_the_three_attentions_is_a_stack_of_the_seam():
    network = made()
    with recording(Tape(keep=Keep.of("weights", "value", "z"), locate=located(network))) as tape:
        network(embedded(6), embedded(4))
    found = [(site.place.stack, site.place.kind, site.layer, tuple(site.weights.shape[2:])) for site in tape.sites]
    assert found == [
        *(("encoder", "self", layer, (6, 6)) for layer in range(LAYERS)),
        *(
            (("decoder", kind, layer, shape))
            for layer in range(LAYERS)
            for kind, shape in (("self", (4, 4)), ("cross", (4, 6)))
        ),
    ]
    for site in tape.sites:
        assert (site.weights.sum(-1) - 1).abs().max() < 1e-12
        assert (site.weights @ site.value - site.z).abs().max() < 1e-12
    assert tape.sites[-1].place.path == "decoder.blocks.1.cross_attention"


@pytest.mark.parametrize("layer", range(LAYERS))
def test_silencing_the_cross_attention_is_giving_its_projection_zeros(layer: int):
    network, source, written = made(), embedded(6), embedded(4)
    silence = silence_head(layer, range(HEADS), stack="decoder", kind="cross")
    with recording(Tape([silence], locate=located(network))):
        silenced = network(source, written)
    projection = network.decoder.blocks[layer].cross_attention.output
    hook = projection.register_forward_pre_hook(lambda _, given: (torch.zeros_like(given[0]),))
    expected = network(source, written)
    hook.remove()
    assert torch.equal(silenced, expected)
    assert (silenced - network(source, written)).abs().max() > 1e-3


def test_cross_maps_are_what_the_modules_compute_and_leave_the_logits_alone():
    network, ids, written = made(), torch.randint(11, (2, 6)), torch.randint(7, (2, 4))
    maps = cross_maps(network, ids, None, written)
    assert maps.shape == (2, LAYERS, HEADS, 4, 6)
    seen = {}
    attention = network.decoder.blocks[1].cross_attention
    hook = attention.register_forward_hook(lambda _, given, __: seen.update(y=given[0], states=given[1]))
    network(network.token_embedding(ids), network.target_embedding(written))
    hook.remove()
    theirs = nn.MultiheadAttention(D, HEADS, batch_first=True, dtype=torch.float64)
    copy_attention(attention, theirs)
    _, expected = theirs(seen["y"], seen["states"], seen["states"], average_attn_weights=False)
    assert (maps[:, 1] - expected).abs().max() < 1e-12


def test_greedy_writes_the_likeliest_token_of_a_full_pass_at_each_step():
    network, ids = made(), torch.randint(11, (3, 5))
    written = greedy(network, ids, begin=0, n_steps=6)
    assert written[:, 0].eq(0).all()
    for step in range(6):
        logits = network(network.token_embedding(ids), network.target_embedding(written[:, : step + 1]))
        assert torch.equal(logits[:, step].argmax(-1), written[:, step + 1])


def test_a_tape_tells_the_steps_of_greedy_decoding_apart():
    network = made()
    with recording(Tape(keep=Keep.of("weights", kind="cross"), locate=located(network))) as tape:
        greedy(network, torch.randint(11, (1, 5)), begin=0, n_steps=3)
    found = [(site.place.step, site.layer, site.weights.shape[2]) for site in tape.sites]
    assert found == [(step, layer, step + 1) for step in range(3) for layer in range(LAYERS)]


def test_the_loss_is_that_of_the_next_token():
    network, ids, target_ids = made(), torch.randint(11, (2, 5)), torch.randint(7, (2, 4))
    logits = network(network.token_embedding(ids), network.target_embedding(target_ids[:, :-1]))
    terms = [logits[row, t].log_softmax(-1)[target_ids[row, t + 1]] for row in range(2) for t in range(3)]
    assert torch.isclose(translation_loss(network, ids, None, target_ids), -torch.stack(terms).mean())


def test_rotary_positions_leave_no_table_and_the_order_of_the_input_still_counts():
    network, source, written = made(positions=rotary()), embedded(6), embedded(4)
    assert not [name for name, _ in network.encoder.named_parameters() if "position" in name]
    assert (network(source, written) - network(source.flip(1), written)).abs().max() > 1e-3


def test_more_steps_than_positions_are_refused():
    with pytest.raises(InputError, match="10 steps are more than the 9 positions"):
        made()(embedded(3), embedded(10))
