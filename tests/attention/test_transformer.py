"""The small transformers: what may reach what, and that they learn."""

import pytest
import torch

from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.attention.transformer import TransformerClassifier, TransformerLanguageModel, next_token_loss
from attnprobe.errors import InputError

NORMS = ["pre", "post"]


def classifier(norm: str = "pre") -> TransformerClassifier:
    return TransformerClassifier(20, 3, d_model=16, n_heads=2, n_layers=2, max_length=8, norm=norm).double()


def decoder(norm: str = "pre") -> TransformerLanguageModel:
    return TransformerLanguageModel(20, d_model=16, n_heads=2, n_layers=2, max_length=8, norm=norm).double()


@pytest.mark.parametrize("norm", NORMS)
def test_no_gradient_reaches_the_future_of_a_decoder(norm: str):
    network = decoder(norm)
    embeddings = torch.randn(1, 6, 16, dtype=torch.float64, requires_grad=True)
    for position in range(6):
        (gradient,) = torch.autograd.grad(network(embeddings)[0, position].square().sum(), embeddings)
        assert (gradient[0, position + 1 :] == 0).all()
        assert (gradient[0, : position + 1].abs().sum(-1) > 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_the_content_of_padding_has_no_influence(norm: str):
    network, is_token = classifier(norm), torch.tensor([[True, True, True, False, False]])
    embeddings = torch.randn(1, 5, 16, dtype=torch.float64)
    other = embeddings.clone()
    other[0, 3:] = 100 * torch.randn(2, 16, dtype=torch.float64)
    assert torch.equal(network(embeddings, is_token), network(other, is_token))
    assert (network(embeddings, is_token) - network(embeddings[:, :3])).abs().max() < 1e-13
    assert not torch.equal(network(embeddings), network(other))


@pytest.mark.parametrize("norm", NORMS)
def test_a_classifier_with_every_token_visible_equals_one_without_a_mask(norm: str):
    network, embeddings = classifier(norm), torch.randn(2, 5, 16, dtype=torch.float64)
    assert torch.equal(network(embeddings), network(embeddings, torch.ones(2, 5, dtype=torch.bool)))


def test_padding_on_the_right_changes_no_prediction_of_a_decoder():
    network, embeddings = decoder(), torch.randn(1, 5, 16, dtype=torch.float64)
    padded = network(embeddings, torch.tensor([[True, True, True, False, False]]))
    assert (padded[:, :3] - network(embeddings[:, :3])).abs().max() < 1e-13


def test_every_block_is_a_layer_of_the_seam():
    network, tape = decoder(), Tape(keep=Keep.of("weights"))
    with recording(tape):
        network(torch.randn(2, 6, 16, dtype=torch.float64))
    assert [site.layer for site in tape.sites] == [0, 1]
    assert all(torch.equal(site.weights.triu(1), torch.zeros_like(site.weights)) for site in tape.sites)


def test_positions_beyond_the_table_are_refused():
    with pytest.raises(InputError, match="9 tokens are more than the 8 positions"):
        classifier()(torch.randn(1, 9, 16, dtype=torch.float64))


def test_an_unknown_norm_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'post'"):
        classifier("pots")


@pytest.mark.parametrize("norm", NORMS)
def test_a_decoder_learns_to_copy(norm: str):
    """Sequences a b c a b c: after some steps the second half is predicted."""
    torch.manual_seed(0)
    network = TransformerLanguageModel(8, d_model=32, n_heads=2, n_layers=2, max_length=6, norm=norm)
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(300):
        ids = torch.randint(8, (32, 3)).repeat(1, 2)
        loss = next_token_loss(network(network.token_embedding(ids)), ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    ids = torch.randint(8, (64, 3)).repeat(1, 2)
    predicted = network(network.token_embedding(ids))[:, 2:5].argmax(-1)
    assert (predicted == ids[:, 3:]).float().mean() > 0.95
