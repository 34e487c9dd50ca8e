"""Pairs of inputs on tiny and on planted models, and a planted network that is linear in what its tokens say."""

from functools import cache

import torch
import transformers as t

from attnprobe.heads.pairs import pair
from attnprobe.models import load
from attnprobe.models.planted import build, planted
from attnprobe.models.planted.plan import Head, Layer, Plan, Unit
from tests import tiny

_SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
_WORDS = {"vocab_size": 60, "bos_token_id": 1, "eos_token_id": 2}
# Attention and feed-forward part side by side behind two norms, or one; norms behind outputs alone.
MORE = {
    "gpt_neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**_SIZES, **_WORDS)),
    "gptj": lambda: t.GPTJForCausalLM(t.GPTJConfig(n_embd=32, n_layer=3, n_head=4, rotary_dim=4, **_WORDS)),
    "olmo2": lambda: t.Olmo2ForCausalLM(t.Olmo2Config(**_SIZES, **_WORDS, pad_token_id=0)),
}


def more(name):
    """A tiny random model of `MORE`, with parameters as large as those of `tiny.build`."""
    torch.manual_seed(0)
    module = MORE[name]().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(4.0 if parameter.ndim > 1 else 1.0)
    module.set_attn_implementation("eager")
    return module


@cache
def loaded_more(name, dtype):
    return tiny.shared(load(more(name).to(dtype)))


def tiny_pair(name, implementation="eager", dtype=None):
    """A tiny random model, one for all tests, and a pair of inputs that differ in one token (patch)."""
    dtype = dtype or torch.float32
    model = loaded_more(name, dtype) if name in MORE else tiny.loaded(name, implementation, dtype=dtype)
    clean = tiny.given(name)
    if name == "vit":
        corrupt = clean.clone()
        corrupt[:, :4, :4] = 1 - corrupt[:, :4, :4]
        return model, pair(model, clean, corrupt)
    corrupt = [*clean[:3], 30, *clean[4:]]
    return model, pair(model, clean, corrupt, **({"answer": [4, 5, 6]} if name in ("t5", "bart") else {}))


def planted_pair(name, words, **constants):
    """A planted model, and its example against other words of its vocabulary; target: its own."""
    made = planted(name, **constants)
    return made.model, pair(made.model, made.example, made.model.example(list(words)), made.target)


def linear(n_layers=3):
    """Two heads a layer whose weights do not depend on the tokens, every head reading all dimensions: y is linear."""
    dims, generator = ("a", "b", "out"), torch.Generator().manual_seed(1)

    def numbers(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def head():
        rows = numbers(3, 3) + 0.1
        value = {(x, y): float(numbers(1)) - 0.3 for x in dims for y in dims}
        return Head(tuple(map(tuple, (rows / rows.sum(-1, keepdim=True)).tolist())), value)

    plan = Plan(
        name="linear",
        title="linear",
        story="",
        tokens=("r", "s", "t"),
        dims=dims,
        contents={"r": {"a": 1.0}, "s": {"a": 2.0, "b": -1.0}, "t": {"b": 3.0}, "u": {"a": -2.0, "b": 1.0}},
        layers=tuple(Layer((head(), head())) for _ in range(n_layers)),
        answer=0.0,
        truth=(0.0, 0.0, 0.0),
        players=(),
    )
    made = build(plan)
    corrupt = made.model.example(["r", "u", "t"])
    return made.model, pair(made.model, made.model.example(["r", "s", "t"]), corrupt, "y")


def gate(kind):
    """Head 0.0 reads a, head 0.1 reads b, and y is a AND b, or a OR b; 1 of both against none of both."""
    rows = ((0.0, 1.0, 0.0),), ((0.0, 0.0, 1.0),)
    heads = tuple(Head(row, {("x", out): 1.0}) for row, out in zip(rows, ("p", "q"), strict=True))
    units = {"and": (Unit({"p": 1.0, "q": 1.0}, -1.0, 1.0),), "or": (Unit({"p": -1.0, "q": -1.0}, 1.0, -1.0),)}[kind]
    plan = Plan(
        name=kind,
        title=kind,
        story="",
        tokens=("[CLS]", "a", "b"),
        dims=("x", "p", "q", "out"),
        contents={"a": {"x": 1.0}, "b": {"x": 1.0}},
        layers=(Layer(heads, units, offset=1.0 if kind == "or" else 0.0),),
        answer=1.0,
        truth=(0.0, 0.5, 0.5),
        players=(1, 2),
    )
    made = build(plan)
    return made.model, pair(made.model, made.example, made.model.example(["[CLS]", "[CLS]", "[CLS]"]), "y")
