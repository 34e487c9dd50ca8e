"""Effects of heads: every registered one on every family of models, and each against values that are known exactly."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.errors import InputError
from attnprobe.heads import head_effects
from attnprobe.heads.direct_logit import direct_logit_by_source, direct_logits
from attnprobe.heads.measuring import head_effect
from attnprobe.heads.mediation import total_effect
from attnprobe.models import load
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.planted import planted
from attnprobe.models.projections import projections
from attnprobe.target import Target
from tests import resumed_models, tiny

OTHER = [16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5]
FAMILIES = [
    ("bert", "encoder.self"),
    ("gpt2", "decoder.self"),
    ("llama", "decoder.self"),
    ("t5", "encoder.self"),
    ("t5", "decoder.self"),
    ("t5", "decoder.cross"),
    ("vit", "vision.self"),
]
PAIRED = ("attribution_patching", "integrated_attribution_patching", "direct_effect", "indirect_effect")


def with_biases(name: str) -> Any:
    """A tiny model whose biases and norms are not those of a fresh one (0 and 1)."""
    module = tiny.build(name)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module


@cache
def biased(name: str, *, double: bool = False) -> Any:
    """That model, loaded: one for all tests, which leave it as it is."""
    module = with_biases(name)
    return tiny.shared(load(module.double() if double else module))


def other_example(model: Any, name: str) -> Any:
    if name == "vit":
        return model.example(torch.rand(3, 12, 12, generator=torch.Generator().manual_seed(1)))
    return model.example(OTHER, **({"answer": [4, 5, 6]} if name == "t5" else {}))


def asked(name: str, model: Any, family: str) -> dict[str, Any]:
    """The options that an effect needs."""
    corrupt = other_example(model, family)
    return {"corrupt": corrupt} if name in PAIRED else {"data": [corrupt]} if name == "resample_ablation" else {}


def target_of(family: str) -> Target:
    return Target(3, position=1) if family == "t5" else Target(1)


# ---------------------------------------------------------------- every effect


@pytest.mark.parametrize("name", list(head_effects))
def test_every_head_effect_says_what_it_is(name):
    entry = head_effects[name]
    assert entry.description.endswith(".") and entry.source and entry.facts["label"]
    assert entry.facts["unit"] == "target" and {"low", "high"} <= set(entry.facts)


@pytest.mark.parametrize(("family", "stack"), FAMILIES)
@pytest.mark.parametrize("name", list(head_effects))
def test_every_head_effect_has_a_number_for_each_head(name, family, stack):
    model = biased(family)
    example = tiny.example(model, family)
    found = head_effect(model, example, name, target_of(family), stack=stack, **asked(name, model, family))
    assert found.values.shape == (3, 4) and bool(torch.isfinite(found.values).all())
    assert f"{found.stack}.{found.kind}" == stack and found.forward_passes > 0 and found.seconds > 0
    moves = bool((found.values != 0).any())
    assert moves or (name, stack) == (
        "direct_logit",
        "encoder.self",
    )  # of an encoder nothing is written into the answer
    assert len(found.to_frame()) == 12


# ---------------------------------------------------------------- against the model's own code


def columns_of(model: Any, stack: Any, layer: int, head: int) -> tuple[nn.Module, slice]:
    """The output projection of a layer, and where a head lies in its input."""
    found = projections(model, stack.name, stack.kind)[layer]
    width = found.need("W_O").shape[1]
    assert found.output_order == "head d_value"
    return model.module.get_submodule(found.output_map), slice(head * width, (head + 1) * width)


def with_columns(
    model: Any, example: Any, target: Any, stack: Any, layer: int, head: int, change: Callable[[torch.Tensor], Any]
) -> float:
    """The target with one head's columns of the input of W_O changed by a hook."""
    module, columns = columns_of(model, stack, layer, head)

    def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        z = args[0].clone()
        z[..., columns] = change(z[..., columns])
        return (z, *args[1:])

    handle = module.register_forward_pre_hook(hook)
    try:
        with torch.no_grad():
            return float(target(model.module(**example.inputs).logits))
    finally:
        handle.remove()


def columns_in(model: Any, example: Any, stack: Any, layer: int, head: int) -> torch.Tensor:
    """A head's columns of the input of W_O in a plain pass."""
    module, columns = columns_of(model, stack, layer, head)
    seen: list[torch.Tensor] = []
    handle = module.register_forward_pre_hook(lambda _, args: seen.append(args[0][..., columns].clone()))
    try:
        with torch.no_grad():
            model.module(**example.inputs)
    finally:
        handle.remove()
    return seen[0]


@pytest.mark.parametrize(("family", "stack"), FAMILIES)
def test_ablations_and_mediation_are_hooks_on_the_columns_of_a_head(family, stack):
    model = biased(family)
    example, other = tiny.example(model, family), other_example(model, family)
    target = model.resolve(example, target_of(family))
    where = next(s for s in model.stacks if f"{s.name}.{s.kind}" == stack)

    def y(at: Any, layer: int, head: int, change: Callable[[torch.Tensor], Any]) -> float:
        return with_columns(model, at, target, where, layer, head, change)

    options: dict[str, dict[str, Any]] = {
        "zero_ablation": {},
        "mean_ablation": {"data": [example, other]},
        "resample_ablation": {"data": [other]},
        "indirect_effect": {"corrupt": other},
        "direct_effect": {"corrupt": other},
    }
    found = {n: head_effect(model, example, n, target, stack=stack, **given).values for n, given in options.items()}
    own_mean = head_effect(model, example, "mean_ablation", target, stack=stack).values
    for layer, head in ((0, 1), (1, 3), (2, 0)):
        plain = y(example, layer, head, lambda z: z)
        mine, theirs = (columns_in(model, one, where, layer, head) for one in (example, other))
        both = torch.cat([mine, theirs], dim=1).mean(1, keepdim=True)
        expected = {
            "zero_ablation": plain - y(example, layer, head, torch.zeros_like),
            "mean_ablation": plain - y(example, layer, head, lambda z, m=both: m.expand_as(z)),
            "resample_ablation": plain - y(example, layer, head, lambda _, z=theirs: z),
            "indirect_effect": y(example, layer, head, lambda _, z=theirs: z) - plain,
            "direct_effect": y(other, layer, head, lambda _, z=mine: z) - plain,
        }
        for name, value in expected.items():
            assert found[name][layer, head].item() == pytest.approx(value, abs=2e-5), name
        alone = plain - y(example, layer, head, lambda z: z.mean(1, keepdim=True).expand_as(z))
        assert own_mean[layer, head].item() == pytest.approx(alone, abs=2e-5)


def gated(model: Any, example: Any, target: Any, module: nn.Module, columns: slice, gate: torch.Tensor) -> torch.Tensor:
    """The target with a gate on some columns of the input of a map, by the model's own code."""

    def hook(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        chosen = torch.zeros(args[0].shape[-1], dtype=torch.bool)
        chosen[columns] = True
        return (torch.where(chosen, args[0] * gate, args[0]), *args[1:])

    handle = module.register_forward_pre_hook(hook)
    try:
        with torch.set_grad_enabled(gate.requires_grad):
            return target(model.module(**example.inputs).logits)[0]
    finally:
        handle.remove()


@pytest.mark.parametrize(("family", "stack"), FAMILIES)
def test_a_gate_gradient_is_the_slope_of_the_target_in_the_gate(family, stack):
    """Autograd through the model's own code, and four-point differences, with a gate on the columns of a head."""
    model = biased(family, double=True)
    example = tiny.example(model, family)
    target = model.resolve(example, target_of(family))
    where = next(s for s in model.stacks if f"{s.name}.{s.kind}" == stack)
    found = head_effect(model, example, "gate_gradient", target, stack=stack, signed=True).values
    for layer, head in ((0, 1), (1, 3), (2, 0)):
        gate = torch.ones((), dtype=torch.float64, requires_grad=True)
        module, columns = columns_of(model, where, layer, head)
        y = gated(model, example, target, module, columns, gate)
        (slope,) = torch.autograd.grad(y, gate)
        assert found[layer, head].item() == pytest.approx(slope.item(), rel=1e-5, abs=1e-6)
        if family not in ("bert", "gpt2"):  # the others work in float32 inside (norms, softmax): too coarse
            continue
        h, near = 1e-3, [-2, -1, 1, 2]
        at = [
            float(gated(model, example, target, module, columns, torch.tensor(1 + s * h, dtype=torch.float64)))
            for s in near
        ]
        difference = (at[0] - 8 * at[1] + 8 * at[2] - at[3]) / (12 * h)
        assert found[layer, head].item() == pytest.approx(difference, abs=1e-9 * max(1, abs(difference)))
    positive = head_effect(model, example, "gate_gradient", target, stack=stack).values
    assert torch.equal(positive, found.abs())


# ---------------------------------------------------------------- planted values


def test_zero_ablation_counts_a_constant_head_and_mean_and_resample_ablation_do_not():
    """P4: mean |effect| over four inputs: zero 4 and .6; mean 0 and .6; resample over ordered pairs 0 and .7."""
    made = [planted("P4", first=a, second=b) for a in (1.0, -1.0) for b in (1.0, -1.0)]
    # One network for all inputs: the first plan's, with the other signs as contents of words of its own.
    vocabulary = [m.example.tokens for m in made]
    assert len(set(vocabulary)) == 1
    zero = torch.stack([head_effect(m.model, m.example, "zero_ablation", m.target).values[0].abs() for m in made])
    assert zero.mean(0).tolist() == pytest.approx([4.0, 0.6], abs=1e-12)
    one = made[0]
    gates = head_effect(one.model, one.example, "gate_gradient", one.target).values[0]
    assert gates.tolist() == pytest.approx([4.0, 0.8], abs=1e-12)


class Signs(nn.Module):
    """P4 with words for both signs: head 1 always reads the constant 4 of [BOS], head 2 reads two signs."""

    def __init__(self) -> None:
        super().__init__()
        made = planted("P4").model.module
        self.blocks, self.readout, self.read, self.fixed_length = made.blocks, made.readout, made.read, 3
        table = torch.zeros(3, made.token_embedding.weight.shape[1], dtype=torch.float64)
        table[0, 0], table[1, 1], table[2, 1] = 4.0, 1.0, -1.0
        self.token_embedding = nn.Embedding.from_pretrained(table, freeze=False)

    def forward(self, embeddings: torch.Tensor, is_token: torch.Tensor | None = None) -> torch.Tensor:
        x = embeddings
        for block in self.blocks:
            x = block(x)
        return self.readout(x[:, self.read])


def test_means_and_other_inputs_leave_a_constant_in_its_place():
    words = Vocabulary(("[BOS]", "+", "-"), begin=None, pattern=r"\S+", lowercase=False)
    model = OwnModel(Signs(), words, labels=("y",), fillers={"zero": torch.zeros(3, dtype=torch.float64)})
    inputs = [model.example(["[BOS]", a, b]) for a in "+-" for b in "+-"]

    def mean_size(name: str, **options: Any) -> list[float]:
        found = [head_effect(model, one, name, "y", **options).values[0].abs() for one in inputs]
        return torch.stack(found).mean(0).tolist()

    assert mean_size("zero_ablation") == pytest.approx([4.0, 0.6], abs=1e-12)
    assert mean_size("mean_ablation", data=inputs) == pytest.approx([0.0, 0.6], abs=1e-12)
    pairs = torch.tensor([mean_size("resample_ablation", data=[donor]) for donor in inputs], dtype=torch.float64)
    assert pairs.mean(0).tolist() == pytest.approx([0.0, 0.7], abs=1e-12)
    drawn = [head_effect(model, inputs[0], "resample_ablation", "y", data=inputs, n_samples=3, seed=s) for s in (1, 1)]
    assert torch.equal(drawn[0].values, drawn[1].values) and drawn[0].seed == 1


def test_what_a_backup_head_repairs_shows_in_ablation_and_not_in_direct_logits():
    """P11: direct 1 and 0 (the second writes into a dimension that only the MLP reads), zero ablation .1 and 0."""
    made = planted("P11")
    found = {
        name: head_effect(made.model, made.example, name, made.target).values[0].tolist()
        for name in ("direct_logit", "zero_ablation", "gate_gradient")
    }
    assert found["direct_logit"] == pytest.approx([1.0, 0.0], abs=1e-12)
    assert found["zero_ablation"] == pytest.approx([0.1, 0.0], abs=1e-12)
    assert found["gate_gradient"] == pytest.approx([1.0, 0.0], abs=1e-12)


@pytest.mark.parametrize("name", ["P1", "P2", "P4", "P5", "P16"])
def test_in_a_linear_network_patching_is_exact_and_total_is_direct_and_indirect(name):
    made = planted(name)
    corrupt = made.model.example([*made.example.tokens[1:], made.example.tokens[0]])
    given = {
        effect: head_effect(made.model, made.example, effect, made.target, corrupt=corrupt).values for effect in PAIRED
    }
    close = {"atol": 1e-12, "rtol": 1e-12}
    torch.testing.assert_close(given["attribution_patching"], given["indirect_effect"], **close)
    torch.testing.assert_close(given["integrated_attribution_patching"], given["indirect_effect"], **close)
    target = made.model.resolve(made.example, made.target)
    total = torch.full_like(given["direct_effect"], total_effect(made.model, made.example, target, corrupt))
    torch.testing.assert_close(given["direct_effect"] + given["indirect_effect"], total, **close)
    assert float(total.abs().max()) > 0.5


def test_the_integrated_form_sees_what_a_saturated_gradient_does_not():
    """P10, y = 1 − relu(1 − 2a): flat at a = 1, and half of the way to a = 0 it is not."""
    made = planted("P10")
    nothing = next(word for word in made.plan.vocabulary if not made.plan.contents.get(word))
    ask = {"corrupt": made.model.example([nothing] * made.example.n_tokens)}
    flat = head_effect(made.model, made.example, "attribution_patching", made.target, **ask).values
    seen = head_effect(made.model, made.example, "integrated_attribution_patching", made.target, **ask).values
    whole = head_effect(made.model, made.example, "indirect_effect", made.target, **ask).values
    assert flat.tolist() == [[0.0]] and seen.item() == pytest.approx(whole.item(), abs=1e-9) == pytest.approx(-1.0)


# ---------------------------------------------------------------- direct logits


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "modernbert", "gpt2", "llama", "gemma2", "t5", "vit"])
def test_direct_logits_add_up_to_the_logit(family):
    model = biased(family)
    example = tiny.example(model, family)
    target = model.resolve(example, target_of(family))
    with torch.no_grad():
        y = float(target(model.module(**example.inputs).logits))
    for stack in model.stacks:
        found = direct_logits(model, example, target, stack)
        assert found.total == pytest.approx(y, abs=1e-5) and found.sum == pytest.approx(y, abs=1e-5)
        sources = direct_logit_by_source(model, example, target, stack)
        torch.testing.assert_close(sources.sum(-1), found.heads)


def test_direct_logits_of_a_network_that_adds_in_place_add_up_to_the_logit():
    model = load(resumed_models.build("falcon"))
    example = model.example(tiny.IDS)
    target = model.resolve(example, Target(7))
    with torch.no_grad():
        y = float(model.module(**example.inputs).logits[0, -1, 7])
    found = direct_logits(model, example, target, model.stacks[0])
    assert found.total == pytest.approx(y, abs=1e-5) and found.sum == pytest.approx(y, abs=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["bert", "llama"])
def test_direct_logits_of_coarse_types_are_those_of_float32_but_for_rounding(family, dtype):
    fine, coarse = tiny.loaded(family), load(tiny.build(family).to(dtype))
    example = fine.example(tiny.IDS)
    target = fine.resolve(example, Target(1))
    expected = head_effect(fine, tiny.IDS, "direct_logit", target).values
    found = head_effect(coarse, tiny.IDS, "direct_logit", target).values
    assert float((found - expected).abs().max()) <= 0.03 * float(expected.abs().max())


def test_direct_logits_of_gpt2_are_those_of_the_formula():
    """(z W_O) centred, over σ of the final norm, times its gain and the row of the unembedding."""
    model = load(with_biases("gpt2").double())
    example = model.example(tiny.IDS)
    target = model.resolve(example, Target(7, against=9, position=8))
    body, stack = model.module.transformer, model.stacks[0]
    states: list[torch.Tensor] = []
    handle = body.ln_f.register_forward_pre_hook(lambda _, args: states.append(args[0][0, 8]))
    with torch.no_grad():
        model.module(**example.inputs)
    handle.remove()
    sigma = (states[0].var(correction=0) + body.ln_f.eps).sqrt()
    towards = (model.module.lm_head.weight[7] - model.module.lm_head.weight[9]).detach()

    def logit_of(vector: torch.Tensor) -> float:
        return float((((vector - vector.mean()) / sigma) * body.ln_f.weight) @ towards)

    found = direct_logits(model, example, target, stack)
    for parameter in model.module.parameters():
        parameter.requires_grad_(False)
    for layer, block in enumerate(body.h):
        for head in range(4):
            z = columns_in(model, example, stack, layer, head)[0, 8]
            written = z @ block.attn.c_proj.weight[8 * head : 8 * head + 8]
            assert found.heads[layer, head].item() == pytest.approx(logit_of(written), abs=1e-9)
    biases = sum(logit_of(block.attn.c_proj.bias) for block in body.h)
    assert found.biases == pytest.approx(biases, abs=1e-9)
    ids = example.inputs["input_ids"][0]
    assert found.embedding == pytest.approx(logit_of(body.wte.weight[ids[8]] + body.wpe.weight[8]), abs=1e-9)
    assert found.constant == pytest.approx(float(body.ln_f.bias @ towards), abs=1e-9)


def test_direct_logits_of_grouped_heads_are_those_of_the_formula():
    model = load(with_biases("llama"))
    example = model.example(tiny.IDS)
    target = model.resolve(example, Target(7))
    norm, stack, states = model.module.model.norm, model.stacks[0], []
    handle = norm.register_forward_pre_hook(lambda _, args: states.append(args[0][0, -1]))
    with torch.no_grad():
        model.module(**example.inputs)
    handle.remove()
    for parameter in model.module.parameters():
        parameter.requires_grad_(False)
    scale = norm.weight * (states[0].pow(2).mean() + norm.variance_epsilon).rsqrt()
    found = direct_logits(biased("llama"), example, target, stack).heads
    for layer, block in enumerate(model.module.model.layers):
        for head in range(4):
            z = columns_in(model, example, stack, layer, head)[0, -1]
            written = block.self_attn.o_proj.weight[:, 8 * head : 8 * head + 8] @ z
            expected = float((written * scale) @ model.module.lm_head.weight[7])
            assert found[layer, head].item() == pytest.approx(expected, abs=1e-5)


# ---------------------------------------------------------------- what is refused, and heads that are not there


@pytest.mark.parametrize(
    ("name", "target", "options", "message"),
    [
        ("direct_logit", Target(1, scale="probability"), {}, "ask for a logit"),
        ("direct_logit", Target(function=lambda logits: logits[:, 0]), {}, "ask for a logit"),
        ("indirect_effect", None, {}, "corrupt="),
        ("attribution_patching", None, {"corrupt": [5, 6, 7]}, "3 tokens, the example 12"),
        ("resample_ablation", None, {}, "data="),
        ("resample_ablation", None, {"data": [OTHER], "n_samples": 0}, "at least 1"),
        ("mean_ablation", None, {"data": []}, "data is empty"),
        ("zero_ablation", None, {"stack": "decoder"}, "it has encoder.self"),
        ("zero_ablaton", None, {}, "zero_ablation"),
        ("zero_ablation", None, {"seed": 1}, "no option 'seed'"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_what_to_do(name, target, options, message):
    model = tiny.loaded("bert")
    with pytest.raises(InputError, match=message):
        head_effect(model, tiny.IDS, name, target, **options)


def test_an_answer_of_many_steps_has_no_direct_logits():
    model = tiny.loaded("t5")
    with pytest.raises(InputError, match="position="):
        head_effect(model, tiny.example(model, "t5"), "direct_logit", stack="decoder.cross")


def test_inputs_of_other_lengths_give_z_of_random_positions():
    model = tiny.loaded("bert")
    found = head_effect(model, tiny.IDS, "resample_ablation", data=[OTHER[:5], OTHER], seed=3)
    again = head_effect(model, tiny.IDS, "resample_ablation", data=[OTHER[:5], OTHER], seed=3)
    assert torch.equal(found.values, again.values) and found.seed == 3


class Layer(nn.Module):
    """Attention and what goes past it."""

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(8, n_heads)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attention(x)


class Uneven(nn.Module):
    """Two layers, of 4 heads and of 2."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(6, 8)
        self.blocks = nn.ModuleList(Layer(n) for n in (4, 2))
        self.readout = nn.Linear(8, 2)

    def forward(self, embeddings: torch.Tensor, is_token: torch.Tensor | None = None) -> torch.Tensor:
        x = embeddings
        for block in self.blocks:
            x = block(x)
        return self.readout(x[:, 0])


@pytest.mark.parametrize("name", list(head_effects))
def test_heads_that_a_layer_lacks_are_nan(name):
    words = Vocabulary(tuple("abcdef"), begin=None, pattern=r"\S+", lowercase=False)
    model = OwnModel(Uneven(), words, labels=("no", "yes"), fillers={"zero": torch.zeros(8)})
    options = {"corrupt": ["f", "b", "a"]} if name in PAIRED else {}
    options = {"data": [["f", "b", "a"]]} if name == "resample_ablation" else options
    found = head_effect(model, ["a", "b", "c"], name, "yes", **options)
    assert [[math.isnan(v) for v in row] for row in found.values.tolist()] == [[False] * 4, [False, False, True, True]]
    assert len(found.to_frame()) == 6 and len(found.top(2)) == 2
