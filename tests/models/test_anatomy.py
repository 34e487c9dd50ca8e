"""What a part of a network is, by what it does; and other code in its place for a while."""

import threading

import pytest
import torch
from torch import nn

from attnprobe.models.anatomy import kind_of, norm_of, replacing, slope
from tests import tiny

PARTS = [
    (nn.Linear(8, 5), "affine"),
    (nn.Dropout().eval(), "affine"),
    (nn.BatchNorm1d(6).eval(), "affine"),
    (nn.Identity(), "affine"),
    (nn.GELU(), "activation"),
    (nn.ReLU(), "activation"),
    (nn.Sigmoid(), "activation"),
    (nn.PReLU(), "activation"),
    (nn.LayerNorm(8), "norm"),
    (nn.RMSNorm(8), "norm"),
    (nn.LayerNorm(8, elementwise_affine=False), "norm"),
    (nn.Softmax(-1), None),
    (nn.GLU(), None),
    (nn.Embedding(3, 8), None),
    (nn.Sequential(nn.Linear(8, 8)), None),
]


def states(dtype=torch.float64, size=1.0):
    return (size * torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).to(dtype)


def with_noise(part):
    generator = torch.Generator().manual_seed(1)
    for parameter in part.parameters():
        parameter.data.add_(0.5 * torch.randn(parameter.shape, generator=generator).to(parameter))
    return part


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("part", "kind"), PARTS, ids=lambda x: type(x).__name__ if isinstance(x, nn.Module) else "")
def test_a_part_is_known_by_what_it_does(part, kind, dtype):
    assert kind_of(with_noise(part).to(dtype), states(dtype)) == kind


@pytest.mark.parametrize("size", [1e-4, 1.0, 100.0])
@pytest.mark.parametrize(("part", "kind"), [(nn.GELU(), "activation"), (nn.Softmax(-1), None), (nn.RMSNorm(8), "norm")])
def test_a_part_is_the_same_for_small_numbers_where_everything_smooth_looks_linear(part, kind, size):
    assert kind_of(part.float(), states(torch.float32, size)) == kind


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "gemma2", "t5", "modernbert"])
def test_norms_and_activations_of_models_are_found_without_their_names(name):
    module = tiny.build(name)
    found = {}

    def note(part, args, output):
        found.setdefault(type(part).__name__, set()).add(kind_of(part, args[0] if args else None))

    handles = [part.register_forward_hook(note) for part in module.modules()]
    more = {"decoder_input_ids": torch.tensor([[4, 5]])} if name == "t5" else {}
    with torch.no_grad():
        module(input_ids=torch.tensor([tiny.IDS]), **more)
    for handle in handles:
        handle.remove()
    for part, kinds in found.items():
        if "Norm" in part:
            assert kinds == {"norm"}, part
        elif "Activation" in part or part in ("Tanh", "ReLU", "GELUTanh"):
            assert kinds == {"activation"}, part
        elif part in ("Linear", "Conv1D"):
            assert kinds == {"affine"}, part


@pytest.mark.parametrize("centred", [True, False])
def test_a_norm_is_its_linear_part_and_its_shift(centred):
    part = with_noise(nn.LayerNorm(8) if centred else nn.RMSNorm(8)).double()
    x = states() + 0.7
    norm = norm_of(part, x)
    assert norm.centred == centred
    torch.testing.assert_close(norm(x) + norm.shift, part(x), atol=1e-12, rtol=0)
    sigma = (x.var(-1, correction=0, keepdim=True) + part.eps).sqrt() if centred else None
    rms = (x.pow(2).mean(-1, keepdim=True) + torch.finfo(x.dtype).eps).sqrt()
    other = torch.randn_like(x)
    expected = (other - other.mean(-1, keepdim=True)) / sigma if centred else other / rms
    torch.testing.assert_close(norm(other), expected * part.weight, atol=1e-12, rtol=1e-9)
    # What the mean takes away cannot be told from states that have none: it is told from other numbers.
    assert norm_of(part, x - x.mean(-1, keepdim=True)).centred == centred


def test_a_norm_with_one_plus_its_weight_has_that_gain():
    class Gemma(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(-0.5, 0.5, 8, dtype=torch.float64))

        def forward(self, x):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1.0 + self.weight)

    part, x = Gemma(), states()
    rms = (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()
    torch.testing.assert_close(norm_of(part, x).coefficient, (1 + part.weight) / rms, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize(("part", "at_zero"), [(nn.GELU(), 0.5), (nn.Tanh(), 1.0), (nn.ReLU(), 0.0), (nn.SiLU(), 0.5)])
def test_the_slope_is_the_value_over_the_input_and_the_derivative_at_zero(part, at_zero):
    x = torch.tensor([-2.0, 0.0, 1e-30, 0.5], dtype=torch.float64)
    found = slope(part, x)
    torch.testing.assert_close(found * x, part(x), atol=1e-15, rtol=1e-12)
    assert float(found[1]) == pytest.approx(at_zero, abs=1e-12)
    assert x.grad is None and not x.requires_grad


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.ReLU(), nn.ReLU()

    def forward(self, x):
        return self.second(self.first(x))


def test_other_code_runs_in_the_place_of_a_part_and_blocks_nest():
    network, x = Two(), torch.tensor([-1.0, 2.0])
    with replacing({network.first: lambda forward, x: forward(x) + 1}):
        assert network(x).tolist() == [1.0, 3.0]
        with replacing({network.first: lambda forward, x: 10 * forward(x)}):
            assert network(x).tolist() == [10.0, 30.0]
        assert network(x).tolist() == [1.0, 3.0]
    assert network(x).tolist() == [0.0, 2.0]
    assert all("forward" not in vars(part) for part in network.modules())


def test_parts_are_put_back_after_an_error_and_keep_a_forward_of_their_own():
    network, x = Two(), torch.tensor([-1.0, 2.0])
    own = network.second.__dict__["forward"] = lambda x: x - 1  # as accelerate sets it
    with (
        pytest.raises(ZeroDivisionError),
        replacing(dict.fromkeys((network.first, network.second), lambda f, x: 1 / 0)),
    ):
        network(x)
    assert network.second.__dict__["forward"] is own and "forward" not in vars(network.first)
    assert network(x).tolist() == [-1.0, 1.0]


def test_other_threads_run_the_part_itself_meanwhile():
    network, x, found = Two(), torch.tensor([-1.0, 2.0]), []
    with replacing({network.first: lambda forward, x: x + 100}):
        thread = threading.Thread(target=lambda: found.append(network(x)))
        thread.start()
        thread.join()
        assert network(x).tolist() == [99.0, 102.0]
    assert found[0].tolist() == [0.0, 2.0]
