"""Numbers as bytes: how far off they may be, that nothing small becomes 0, and that the bytes can be read again."""

import zlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnprobe.viewer.packing import SIGNED, STEPS, Budget, Buffer, Scale, scale_of, sixteen

SHARES = st.floats(0, 1, allow_subnormal=False, width=32)


@given(st.lists(SHARES, min_size=1, max_size=30), st.sampled_from(STEPS), st.floats(0.001, 4))
def test_no_number_is_drawn_further_off_than_is_said(shares, n, peak):
    scale = Scale(peak, n)
    exact = torch.tensor(shares, dtype=torch.float64) * peak
    drawn = scale.numbers(scale.codes(exact))
    for number, other in zip(exact.tolist(), drawn.tolist(), strict=True):
        assert abs(number - other) <= scale.error(number) * (1 + 1e-5) + 1e-9


@given(st.lists(SHARES, min_size=1, max_size=30), st.sampled_from(STEPS))
def test_zero_alone_is_drawn_as_zero(shares, n):
    exact = torch.tensor(shares)
    assert torch.equal(Scale(1.0, n).codes(exact) == 0, exact == 0)


def test_the_error_that_is_said_is_reached():
    scale = Scale(1.0)
    exact = torch.linspace(0.98, 1, 100_001, dtype=torch.float64)
    worst = float((scale.numbers(scale.codes(exact)) - exact).abs().max())
    assert 0.98 * scale.error(1.0) < worst <= scale.error(1.0)


def test_small_weights_are_closer_than_on_an_even_scale():
    exact = torch.logspace(-5, -2, 200, dtype=torch.float64)
    root = Scale(1.0)
    even = (exact * 255).round() / 255
    off = (root.numbers(root.codes(exact)) - exact).abs()
    assert float(off.max()) < 0.5 * float((even - exact).abs().max())


@pytest.mark.parametrize("n", STEPS)
def test_negative_numbers_keep_their_sign(n):
    numbers = torch.tensor([-2.0, -1e-9, 0.0, 1e-9, 1.0])
    scale = scale_of([numbers], n)
    assert scale.signed and scale.n <= SIGNED and scale.peak == 2.0
    assert torch.equal(scale.numbers(scale.codes(numbers)).sign(), numbers.sign())


def test_an_all_zero_map_stays_so():
    scale = scale_of([torch.zeros(2, 3)])
    assert scale.numbers(scale.codes(torch.zeros(2, 3))).abs().sum() == 0


def test_the_buffer_gives_back_what_was_put_in():
    buffer, norms = Buffer(), torch.rand(2, 5) * 7
    first = buffer.add(torch.arange(6, dtype=torch.uint8))
    second = buffer.add(sixteen(norms, 7.0))
    data = zlib.decompress(buffer.packed())
    assert (first, second, len(data), len(buffer)) == (0, 6, 26, 26)
    assert list(data[:6]) == list(range(6))
    low, high = (torch.tensor(list(data[a : a + 10])) for a in (6, 16))
    torch.testing.assert_close((low + 256 * high).reshape(2, 5) / 65535 * 7.0, norms, atol=7 / 65535, rtol=0)


def test_a_budget_is_spent_once():
    budget = Budget(10)
    assert budget.take(7) and not budget.take(4) and budget.take(3) and budget.left == 0
