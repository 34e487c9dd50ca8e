"""The recurrent encoder-decoder with alignment: against a slow version written from the paper, and the seam."""

import pytest
import torch
from torch import Tensor, nn

from attnprobe.attention.recurrent import AdditiveAlignment, RecurrentEncoderDecoder
from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.attention.sequence_to_sequence import cross_maps, greedy, located
from attnprobe.errors import InputError
from attnprobe.intervention import knock_out, silence_head, uniform
from attnprobe.site import Site

D, STATE, HIDDEN = 5, 6, 7


def made() -> RecurrentEncoderDecoder:
    return RecurrentEncoderDecoder(11, 8, d_embedding=D, d_state=STATE, d_alignment=HIDDEN).double()


def embedded(n: int, batch: int = 2) -> Tensor:
    return torch.randn(batch, n, D, dtype=torch.float64)


def gru(x: Tensor, h: Tensor, module: nn.Module, suffix: str) -> Tensor:
    """One step of a GRU on vectors: reset gate, update gate, candidate."""
    w_i, w_h, b_i, b_h = (
        getattr(module, f"{name}{suffix}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    (i_r, i_z, i_n), (h_r, h_z, h_n) = (w_i @ x + b_i).chunk(3), (w_h @ h + b_h).chunk(3)
    reset, update = torch.sigmoid(i_r + h_r), torch.sigmoid(i_z + h_z)
    return (1 - update) * torch.tanh(i_n + reset * h_n) + update * h


def slow(
    network: RecurrentEncoderDecoder, source: Tensor, written: Tensor, looks: str = "softmax"
) -> tuple[Tensor, Tensor]:
    """Logits [step vocabulary] and alignment [step position] of one input [position d], one vector at a time.

    looks: "softmax" as in the paper; "even" the mean of the annotations; "nowhere" a context of zeros.
    """
    n, h, forward, backward = len(source), torch.zeros(STATE, dtype=torch.float64), [], [None] * len(source)
    for j in range(n):
        h = gru(source[j], h, network.encoder, "_l0")
        forward.append(h)
    h = torch.zeros(STATE, dtype=torch.float64)
    for j in reversed(range(n)):
        h = gru(source[j], h, network.encoder, "_l0_reverse")
        backward[j] = h
    annotations = [torch.cat(pair) for pair in zip(forward, backward, strict=True)]
    part = network.decoder
    state, logits, rows = torch.tanh(part.start.weight @ backward[0] + part.start.bias), [], []
    for before in written:
        scores = []
        for annotation in annotations:
            hidden = torch.tanh(part.alignment.query.weight @ state + part.alignment.key.weight @ annotation)
            scores.append(sum(part.alignment.direction[i] * hidden[i] for i in range(HIDDEN)))
        total = sum(score.exp() for score in scores)
        row = {
            "softmax": [s.exp() / total for s in scores],
            "even": [torch.tensor(1 / n)] * n,
            "nowhere": [torch.tensor(0.0)] * n,
        }[looks]
        context = sum(weight * annotation for weight, annotation in zip(row, annotations, strict=True))
        state = gru(torch.cat([before, context]), state, part.cell, "")
        logits.append(part.unembedding.weight @ torch.cat([state, before, context]) + part.unembedding.bias)
        rows.append(torch.stack(row))
    return torch.stack(logits), torch.stack(rows)


def recorded(
    network: RecurrentEncoderDecoder, source: Tensor, written: Tensor, edits=(), **options
) -> tuple[Tensor, Tape]:
    tape = Tape(
        edits, keep=Keep.of("query", "key", "scores", "weights", "value", "z"), locate=located(network), **options
    )
    with recording(tape):
        return network(source, written), tape


def at_step(edit, step: int):
    """The edit at one step of the decoder alone."""

    def change(site: Site) -> Site:
        return edit(site) if site.place.part == step else site

    return change


def test_the_alignment_and_the_logits_equal_the_slow_version():
    network, source, written = made(), embedded(4), embedded(3)
    logits, tape = recorded(network, source, written)
    alignment = torch.stack([site.weights[:, 0] for site in tape.sites]).sum(0)
    for row in range(2):
        expected_logits, expected = slow(network, source[row], written[row])
        assert (logits[row] - expected_logits).abs().max() < 1e-12
        assert (alignment[row] - expected).abs().max() < 1e-12
    assert (alignment.sum(-1) - 1).abs().max() < 1e-12


def test_all_steps_are_parts_of_one_layer_of_cross_attention():
    _, tape = recorded(made(), embedded(4), embedded(3))
    places = [site.place for site in tape.sites]
    assert [(p.stack, p.kind, p.layer, p.part, p.name) for p in places] == [
        ("decoder", "cross", 0, part, "step") for part in range(3)
    ]
    assert {p.path for p in places} == {"decoder.alignment"}
    assert all((site.weights @ site.value - site.z).abs().max() < 1e-12 for site in tape.sites)


def test_a_part_is_the_whole_map_with_the_row_of_its_step_alone():
    _, tape = recorded(made(), embedded(4), embedded(3))
    for site in tape.sites:
        others = torch.arange(3) != site.place.part
        assert site.weights.shape == (2, 1, 3, 4)
        assert (site.weights[:, :, ~others].sum(-1) - 1).abs().max() < 1e-12
        assert not site.weights[:, :, others].any() and not site.z[:, :, others].any()
        assert not site.visible[:, :, others].any() and site.visible[:, :, ~others].all()
        assert torch.isneginf(site.scores[:, :, others]).all()


def test_a_tape_changes_nothing_by_looking():
    network, source, written = made(), embedded(4), embedded(3)
    assert torch.equal(recorded(network, source, written)[0], network(source, written))


@pytest.mark.parametrize(
    ("looks", "edit"),
    [("nowhere", silence_head(0, 0, kind="cross")), ("even", uniform(layers=0, kind="cross"))],
    ids=["silenced", "uniform"],
)
def test_an_edit_of_the_alignment_is_the_slow_version_with_that_context(looks: str, edit):
    network, source, written = made(), embedded(4), embedded(3)
    logits, _ = recorded(network, source, written, [edit])
    for row in range(2):
        assert (logits[row] - slow(network, source[row], written[row], looks)[0]).abs().max() < 1e-12


def test_an_edit_at_a_step_changes_that_step_and_those_after_it_alone():
    network, source, written = made(), embedded(4), embedded(5)
    plain = network(source, written)
    edited, _ = recorded(network, source, written, [at_step(silence_head(0, 0), 2)])
    changed = (edited - plain).abs().amax((0, 2))
    assert (changed[:2] == 0).all()
    assert (changed[2:] > 1e-6).all()


def test_a_knocked_out_position_gets_no_weight_and_the_others_share_it():
    network, source, written = made(), embedded(4), embedded(1)
    _, plain = recorded(network, source, written)
    _, cut = recorded(network, source, written, [knock_out(None, 1)])
    before, after = plain.sites[0].weights, cut.sites[0].weights
    expected = before.clone()
    expected[..., 1] = 0
    assert (after - expected / expected.sum(-1, keepdim=True)).abs().max() < 1e-12


def test_edits_of_one_row_of_a_batch_leave_the_others_alone():
    network, source, written = made(), embedded(4), embedded(3)
    both, _ = recorded(network, source, written, row_edits=[[silence_head(0, 0)], []])
    alone, _ = recorded(network, source[:1], written[:1], [silence_head(0, 0)])
    assert (both[:1] - alone).abs().max() < 1e-12
    assert torch.equal(both[1:], network(source, written)[1:])


def test_padding_of_the_input_has_no_influence_and_no_weight():
    network, source, written = made(), embedded(6), embedded(3)
    is_token = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    with recording(Tape(keep=Keep.of("weights"))) as tape:
        padded = network(source, written, is_token)
    assert (padded[:1] - network(source[:1], written[:1])).abs().max() < 1e-12
    assert (padded[1:] - network(source[1:, :4], written[1:])).abs().max() < 1e-12
    assert all((site.weights[1, ..., 4:] == 0).all() for site in tape.sites)


@pytest.mark.parametrize("row", [[False, True, True], [True, False, True], [False, False, False]])
def test_padding_before_or_between_tokens_is_refused(row: list[bool]):
    with pytest.raises(InputError, match="put padding behind"):
        made()(embedded(3, 1), embedded(2, 1), torch.tensor([row]))


def test_without_a_direction_the_alignment_is_even():
    network = made()
    with torch.no_grad():
        network.decoder.alignment.direction.zero_()
    maps = cross_maps(network, torch.randint(11, (2, 4)), None, torch.randint(8, (2, 3)))
    assert maps.shape == (2, 1, 1, 3, 4)
    assert torch.equal(maps, torch.full_like(maps, 0.25))


def test_an_alignment_alone_projects_its_keys_itself():
    module = AdditiveAlignment(3, 4, 5).double()
    state, annotations = torch.randn(2, 3, dtype=torch.float64), torch.randn(2, 6, 4, dtype=torch.float64)
    assert torch.equal(module(state, annotations), module(state, annotations, module.key(annotations)))


def test_greedy_writes_the_likeliest_token_of_a_full_pass_at_each_step():
    network, ids = made(), torch.randint(11, (3, 5))
    written = greedy(network, ids, begin=0, n_steps=4)
    for step in range(4):
        logits = network(network.token_embedding(ids), network.target_embedding(written[:, : step + 1]))
        assert torch.equal(logits[:, step].argmax(-1), written[:, step + 1])


def test_gradients_reach_the_recorded_weights():
    network, source, written = made(), embedded(4, 1), embedded(2, 1)
    with recording(Tape(keep=Keep.of("weights"), differentiable=True)) as tape:
        logits = network(source, written)
    first, second = (site.weights for site in tape.sites)
    of_first, of_second = torch.autograd.grad(logits[0, 1].sum(), (first, second))
    assert of_first.abs().max() > 0
    assert of_second.abs().max() > 0
