"""Linformer: full attention where nothing is projected; the map is pulled back through the values' projection."""

import pytest
import torch
from torch import Tensor

from attnprobe.attention.mechanisms.linformer import linformer, linformer_weights
from attnprobe.errors import InputError

N_TOKENS, N_SLOTS, D_HEAD = 7, 3, 4
PRECISE = {"rtol": 0, "atol": 1e-12}


@pytest.fixture
def tensors() -> list[Tensor]:
    return [torch.randn(2, N_TOKENS, D_HEAD, dtype=torch.float64) for _ in range(3)]


@pytest.fixture
def projections() -> list[Tensor]:
    return [torch.randn(N_SLOTS, N_TOKENS, dtype=torch.float64) for _ in range(2)]


def test_with_identity_projections_it_is_torchs_attention(tensors: list[Tensor]):
    identity = torch.eye(N_TOKENS, dtype=torch.float64)
    z = torch.nn.functional.scaled_dot_product_attention(*tensors)
    torch.testing.assert_close(linformer(*tensors, E=identity, F=identity), z, **PRECISE)


def test_z_is_attention_over_slots_that_mix_all_tokens(tensors: list[Tensor], projections: list[Tensor]):
    query, key, value = tensors
    E, F = projections
    z = torch.nn.functional.scaled_dot_product_attention(query, E @ key, F @ value)
    torch.testing.assert_close(linformer(query, key, value, E=E, F=F), z, **PRECISE)


def test_the_map_comes_back_through_the_projection_of_the_values(tensors: list[Tensor], projections: list[Tensor]):
    query, key, value = tensors
    E, F = projections
    weights = linformer_weights(query, key, E=E, F=F)
    # one value at a time: what it adds to z is its column of the map
    z = linformer(query, key, torch.zeros_like(value), E=E, F=F)
    assert z.eq(0).all()
    for token in range(N_TOKENS):
        one = torch.zeros_like(value)
        one[:, token] = 1.0
        added = linformer(query, key, one, E=E, F=F)
        torch.testing.assert_close(added, weights[..., token : token + 1].expand_as(added), **PRECISE)
    # F and not E decides: with another E of which softmax sees the same, nothing changes
    torch.testing.assert_close(
        linformer_weights(query, torch.zeros_like(key), E=2 * E, F=F), F.mean(0).expand_as(weights)
    )


def test_the_map_is_signed_and_its_rows_sum_to_anything(tensors: list[Tensor], projections: list[Tensor]):
    weights = linformer_weights(tensors[0], tensors[1], E=projections[0], F=projections[1])
    assert weights.min() < -0.1
    assert (weights.sum(-1) - 1).abs().max() > 0.1


def test_projections_may_differ_from_head_to_head(tensors: list[Tensor]):
    E, F = torch.randn(2, 2, N_SLOTS, N_TOKENS, dtype=torch.float64)
    z = linformer(*tensors, E=E, F=F)
    for head in range(2):
        alone = linformer(*(t[head] for t in tensors), E=E[head], F=F[head])
        torch.testing.assert_close(z[head], alone, **PRECISE)


def test_one_projection_serves_keys_and_values(tensors: list[Tensor], projections: list[Tensor]):
    E = projections[0]
    assert torch.equal(linformer(*tensors, E=E), linformer(*tensors, E=E, F=E))


def test_drawn_projections_keep_lengths_on_average(tensors: list[Tensor]):
    # the map's row is P F with F of entries N(0, 1/n_slots): its mean square over draws is |P|²/n_slots
    query, key, _ = tensors
    flat = torch.zeros_like(query)  # all scores 0: P = 1/n_slots everywhere
    squares = torch.stack([linformer_weights(flat, key, n_slots=N_SLOTS, seed=s).square() for s in range(400)])
    assert abs(squares.mean().item() - 1 / N_SLOTS**2) < 0.02
    assert not torch.equal(squares[0], squares[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"E": torch.zeros(3, 5)}, r"at least the 7 keys of this text, got \(3, 5\)"),
        ({"E": torch.zeros(3, 7), "F": torch.zeros(2, 7)}, r"\(3, 7\) and \(2, 7\)"),
        ({"E": torch.zeros(7)}, r"got \(7,\)"),
        ({"F": torch.zeros(3, 7)}, "F without E"),
        ({"n_slots": 0}, "n_slots = 0"),
    ],
)
def test_projections_that_do_not_fit_are_refused(tensors: list[Tensor], options: dict, message: str):
    options = {name: value.double() if torch.is_tensor(value) else value for name, value in options.items()}
    with pytest.raises(InputError, match=message):
        linformer(*tensors, **options)
