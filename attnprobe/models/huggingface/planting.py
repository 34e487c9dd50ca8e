"""Planted models as transformers models: a BERT of one label, or a GPT-2 for causal plans.

Their norms are made harmless by their own constants: with epsilon = 1e8 and a weight of 1e4, LN(x) = (x - mean x) (1 -
var x / 2e8 + …), and every number x_k of the plan stands beside -x_k, so that the mean is 0. B, which depends on places
alone, becomes a large component of the position embeddings that only queries and keys read; a weight of 0 is e^-60. y
and weights are those of the plan to 1e-4, in float32 too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import transformers as t
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.errors import InputError
from attnprobe.models.huggingface.model import HuggingFaceModel
from attnprobe.models.planted.network import EXACT, bias_of, vector
from attnprobe.models.planted.plan import Head, Layer, Plan, PlantedModel
from attnprobe.target import Target

EPSILON = 1e8
SIZES: dict[str, Any] = {"use_cache": False, "tie_word_embeddings": False}


@dataclass(frozen=True)
class _Room:
    """Where things lie: numbers of the plan, a place for each token, both again with the other sign, and air."""

    plan: Plan
    n_heads: int
    d_head: int

    @classmethod
    def of(cls, plan: Plan) -> "_Room":
        heads = [head for layer in plan.layers for head in layer.heads]
        n_heads, wide = max(len(layer.heads) for layer in plan.layers), len(plan.dims) + len(plan.tokens)
        inside = max(len(plan.tokens) + len(head.scores) for head in heads)
        sources = max(len({source for source, _ in head.value}) for head in heads)
        return cls(plan, n_heads, max(inside, sources, -(-2 * wide // n_heads)))

    @property
    def n_numbers(self) -> int:
        return len(self.plan.dims) + len(self.plan.tokens)

    @property
    def width(self) -> int:
        return self.n_heads * self.d_head

    def at(self, dim: str) -> int:
        return self.plan.dims.index(dim)

    def place(self, token: int) -> int:
        return len(self.plan.dims) + token

    def twofold(self, rows: Float[Tensor, "row number"]) -> Float[Tensor, "row width"]:
        """Numbers beside their negatives: what is written to the stream."""
        wide = torch.zeros(len(rows), self.width, dtype=EXACT)
        wide[:, : rows.shape[1]] = rows
        wide[:, self.n_numbers : self.n_numbers + rows.shape[1]] = -rows
        return wide


def to_huggingface(
    planted: PlantedModel | Plan, *, attention: Literal["eager", "sdpa"] = "eager", dtype: torch.dtype = EXACT
) -> PlantedModel:
    """The plan as a transformers model, with the same example, target and truth.

    Heads of one layer that share keys and values get copies, and a layer that runs several times is there several
    times. Errors: `InputError` for a plan with cross-attention, and for one that was turned or made noisy.
    """
    plan = planted.plan if isinstance(planted, PlantedModel) else planted
    changed = sorted({"rotation", "noise"} & set(planted.variant)) if isinstance(planted, PlantedModel) else []
    if changed:
        raise InputError(f"a plan is exported as it is, without {' and '.join(changed)}; plant it without")
    if plan.steps:
        raise InputError(
            f"{plan.name} has cross-attention that is aligned by place, which no transformers model has without a bias "
            "on its scores; use the planted model itself"
        )
    room = _Room.of(plan)
    module = (_gpt2 if plan.causal else _bert)(room, attention).to(dtype).eval()
    model = HuggingFaceModel(module, None, name=f"{plan.name} as {'GPT-2' if plan.causal else 'BERT'}")
    # Truth is said against zero contents, so that is what stands in for a token here too, and nothing else.
    model.own_fillers = {"zero": torch.zeros(room.width, dtype=dtype)}
    n = len(plan.tokens)
    example = model.example([plan.vocabulary.index(token) for token in plan.tokens])
    example = replace(example, tokens=plan.tokens, is_special=(False,) * n, words=tuple(range(n)))
    label = plan.vocabulary.index(plan.label) if plan.causal else tuple(plan.readout).index(plan.label)
    truths = {name: torch.tensor(values, dtype=EXACT) for name, values in plan.other_truth.items()}
    truth = torch.tensor(plan.truth, dtype=EXACT)
    target = Target(label, position=plan.read)
    return PlantedModel(
        plan.name, model, example, target, plan.answer, truth, truths, plan, {"as": type(module).__name__}
    )


def _bert(room: _Room, attention: str) -> Any:
    plan = room.plan
    config = t.BertConfig(
        vocab_size=len(plan.vocabulary),
        hidden_size=room.width,
        num_hidden_layers=len(plan.layers),
        num_attention_heads=room.n_heads,
        intermediate_size=_most_units(plan),
        hidden_act="relu",
        max_position_embeddings=_n_places(plan),
        type_vocab_size=1,
        layer_norm_eps=EPSILON,
        pad_token_id=None,
        id2label=dict(enumerate(plan.readout)),
        **SIZES,
    )
    module = _blank(t.BertForTokenClassification, config, attention)
    with torch.no_grad():
        words, places = _embeddings(room)
        module.bert.embeddings.word_embeddings.weight.copy_(words)
        module.bert.embeddings.position_embeddings.weight.copy_(places)
        module.classifier.weight.copy_(_readout(room, tuple(plan.readout)))
        for block, layer in zip(module.bert.encoder.layer, plan.layers, strict=True):
            own, maps = block.attention, _maps(room, layer)
            own_maps = (own.self.query, own.self.key, own.self.value, own.output.dense)
            for linear, weight in zip((*own_maps, block.intermediate.dense, block.output.dense), maps, strict=True):
                linear.weight.copy_(weight.T)
            block.intermediate.dense.bias.copy_(_unit_bias(room, layer))
            block.output.dense.bias.copy_(_offset(room, layer))
    return module


def _gpt2(room: _Room, attention: str) -> Any:
    plan = room.plan
    config = t.GPT2Config(
        vocab_size=len(plan.vocabulary),
        n_embd=room.width,
        n_layer=len(plan.layers),
        n_head=room.n_heads,
        n_inner=_most_units(plan),
        n_positions=_n_places(plan),
        activation_function="relu",
        layer_norm_epsilon=EPSILON,
        bos_token_id=None,
        eos_token_id=None,
        **SIZES,
    )
    module = _blank(t.GPT2LMHeadModel, config, attention)
    with torch.no_grad():
        words, places = _embeddings(room)
        module.transformer.wte.weight.copy_(words)
        module.transformer.wpe.weight.copy_(places)
        module.lm_head.weight.copy_(_readout(room, plan.vocabulary))
        for block, layer in zip(module.transformer.h, plan.layers, strict=True):
            query, key, value, output, first, second = _maps(room, layer)
            block.attn.c_attn.weight.copy_(torch.cat([query, key, value], 1))
            for linear, weight in ((block.attn.c_proj, output), (block.mlp.c_fc, first), (block.mlp.c_proj, second)):
                linear.weight.copy_(weight)
            block.mlp.c_fc.bias.copy_(_unit_bias(room, layer))
            block.mlp.c_proj.bias.copy_(_offset(room, layer))
    return module


def _blank(kind: Any, config: Any, attention: str) -> Any:
    """A model of zeros whose norms do nothing."""
    with torch.random.fork_rng(devices=[]):
        module = kind._from_config(config, attn_implementation=attention).to(EXACT)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        for part in module.modules():
            if isinstance(part, nn.LayerNorm):
                part.weight.fill_(math.sqrt(EPSILON))
    return module


def _most_units(plan: Plan) -> int:
    return max(1, *(len(layer.units) for layer in plan.layers), 1)


def _n_places(plan: Plan) -> int:
    """As many places as there are tokens, and enough for the short input that a model is looked at with."""
    return max(16, len(plan.tokens))


def _embeddings(room: _Room) -> tuple[Tensor, Tensor]:
    plan = room.plan
    words = torch.stack([vector(plan.contents.get(word, {}), plan.dims) for word in plan.vocabulary])
    places = torch.zeros(_n_places(plan), room.n_numbers, dtype=EXACT)
    for token in range(len(plan.tokens)):
        places[token, room.place(token)] = 1.0
        if plan.positions:
            places[token, : len(plan.dims)] = vector(plan.positions[token], plan.dims)
    return room.twofold(words), room.twofold(places)


def _readout(room: _Room, names: Sequence[str]) -> Float[Tensor, "output width"]:
    """Reads the numbers and not their negatives."""
    rows = torch.zeros(len(names), room.width, dtype=EXACT)
    for row, name in zip(rows, names, strict=True):
        row[: len(room.plan.dims)] = vector(room.plan.readout.get(name, {}), room.plan.dims)
    return rows


def _maps(room: _Room, layer: Layer) -> list[Tensor]:
    """W_Q, W_K, W_V, W_O, M_1, M_2 as x W; heads that the layer does not have are zero."""
    parts = [_head(room, head) for head in layer.heads]
    query, key, value = (torch.zeros(room.width, room.width, dtype=EXACT) for _ in range(3))
    output = torch.zeros(room.width, room.width, dtype=EXACT)
    for number, (q, k, v, o) in enumerate(parts):
        mine = slice(number * room.d_head, (number + 1) * room.d_head)
        query[:, mine], key[:, mine], value[:, mine] = q, k, v
        output[mine] = room.twofold(o)
    units = _most_units(room.plan)
    first, second = torch.zeros(room.width, units, dtype=EXACT), torch.zeros(units, len(room.plan.dims), dtype=EXACT)
    for index, unit in enumerate(layer.units):
        first[: len(room.plan.dims), index] = vector(unit.weights, room.plan.dims)
        second[index, room.at(layer.writes)] = unit.out
    return [query, key, value, output, first, room.twofold(second)]


def _head(room: _Room, head: Head) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores: a query's place holds its row of B, a key's place is one-hot; behind them what contents add."""
    plan, n = room.plan, len(room.plan.tokens)
    q, k, v = (torch.zeros(room.width, room.d_head, dtype=EXACT) for _ in range(3))
    o = torch.zeros(room.d_head, len(plan.dims), dtype=EXACT)
    bias = bias_of(head, n)
    for token in range(n):
        q[room.place(token), :n] = bias[token]
        k[room.place(token), token] = 1.0
    for index, ((asks, answers), number) in enumerate(head.scores.items()):
        q[room.at(asks), n + index], k[room.at(answers), n + index] = number, 1.0
    for index, source in enumerate(dict.fromkeys(source for source, _ in head.value)):
        v[room.at(source), index] = 1.0
        for (read, written), number in head.value.items():
            if read == source:
                o[index, room.at(written)] += number
    return q * math.sqrt(room.d_head), k, v, o


def _unit_bias(room: _Room, layer: Layer) -> Float[Tensor, " unit"]:
    bias = torch.zeros(_most_units(room.plan), dtype=EXACT)
    bias[: len(layer.units)] = torch.tensor([unit.bias for unit in layer.units], dtype=EXACT)
    return bias


def _offset(room: _Room, layer: Layer) -> Float[Tensor, " width"]:
    written = {layer.writes: layer.offset} if layer.units else {}
    return room.twofold(vector(written, room.plan.dims)[None])[0]
