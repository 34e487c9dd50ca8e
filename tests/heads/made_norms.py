"""Tiny models whose norms and biases are not what they are made with: gains and shifts of every norm are random."""

from functools import cache

import torch
from torch import nn

from attnprobe.models import load
from tests import tiny


def with_norms(build, *, seed=3):
    """A transformers module, made by name or by a function, with random gains and shifts of its norms."""
    module = tiny.build(build) if isinstance(build, str) else build()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in module.modules():
            if "Norm" in type(part).__name__:
                for parameter in part.parameters(recurse=False):
                    parameter.copy_(0.5 + torch.rand(parameter.shape, generator=generator))
    return module.eval()


@cache
def loaded(build, **options):
    """That model, loaded: one for all tests, which leave it as it is."""
    return tiny.shared(load(with_norms(build, **options)))


def centred(x):
    """x without its mean."""
    return x - x.mean(-1, keepdim=True)


def rms(x):
    """x divided by its length, as an RMSNorm or (centred) a LayerNorm does."""
    return x / x.square().mean(-1, keepdim=True).sqrt()


def normed(x, norm: nn.Module, is_centred=True):
    """x through a norm without its shift, σ that of x."""
    return rms(centred(x) if is_centred else x) * norm.weight.detach().double()


def folded(norm: nn.Module, weight, is_centred=True):
    """The matrix diag(gain) W, and what centring does to it: (I − 1/d) diag(gain) W, written out."""
    d = len(norm.weight)
    centring = torch.eye(d).double() - (1.0 / d if is_centred else 0.0)
    return centring @ torch.diag(norm.weight.detach().double()) @ weight.double()


def gpt2_parts(module, layer, head):
    """W_Q, W_K, W_V, W_O of a head of a tiny GPT-2, cut out by hand; float64."""
    attention = module.transformer.h[layer].attn
    packed = attention.c_attn.weight.detach().double()
    q, k, v = (packed[:, start + 8 * head : start + 8 * head + 8] for start in (0, 32, 64))
    return q, k, v, attention.c_proj.weight.detach().double()[8 * head : 8 * head + 8]


def llama_parts(module, layer, head):
    """The same of a tiny Llama, in which two query heads share keys and values."""
    attention, group = module.model.layers[layer].self_attn, head // 2
    q = attention.q_proj.weight.detach().double()[8 * head : 8 * head + 8].T
    k, v = (part.weight.detach().double()[8 * group : 8 * group + 8].T for part in (attention.k_proj, attention.v_proj))
    return q, k, v, attention.o_proj.weight.detach().double()[:, 8 * head : 8 * head + 8].T
