"""The network of a plan, on our own attention: contents as embeddings, blocks, outputs read at one token."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.attention.masks import causal_mask, padding_mask
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.errors import InputError, nearest
from attnprobe.models.planted.plan import Entries, Head, Layer, Plan
from attnprobe.site import Kind

EXACT = torch.float64

# B of a weight of 0: e^-60 is 1e-26. Nothing is hidden by it, so a row of such keys alone still has weights.
LOWEST = -60.0


class SharedHeads(nn.Module):
    """One head of keys or values, read by `shared` query heads in a row."""

    def __init__(self, n_heads: int, shared: int) -> None:
        super().__init__()
        self.n_groups, self.shared = n_heads // shared, shared

    def forward(self, x: Float[Tensor, "batch token group_width"]) -> Float[Tensor, "batch token head_width"]:
        """Each head's slice of the width, once for each query head that reads it."""
        return x.unflatten(-1, (self.n_groups, -1)).repeat_interleave(self.shared, -2).flatten(-2)


class PlantedBlock(nn.Module):
    """One layer of a plan: attention with planted biases, residual, and the MLP where there is one."""

    def __init__(self, layer: Layer, plan: Plan) -> None:
        super().__init__()
        self.residual, dims = layer.residual, plan.dims
        d, n_heads, d_head = len(dims), len(layer.heads), max(1, *(len(head.scores) for head in layer.heads))
        # One dimension of query and key for each entry of W_QK, scale 1: the scores are as the plan says.
        self.attention = MultiHeadAttention(d, n_heads, d_head=d_head, d_value=d, bias=False, scale=1.0).to(EXACT)
        self.register_buffer("score_bias", torch.stack([_bias(head, layer, plan) for head in layer.heads]))
        self.mlp = _mlp(layer, dims) if layer.units else None
        owners = layer.heads[:: layer.shared]
        with torch.no_grad():
            self.attention.query.weight.copy_(torch.cat([_reads(head, 0, d_head, dims) for head in layer.heads]))
            self.attention.output.weight.copy_(torch.eye(d, dtype=EXACT).repeat(1, n_heads))
        keys = torch.cat([_reads(head, 1, d_head, dims) for head in owners])
        values = torch.cat([matrix(head.value, dims).T for head in owners])
        for name, weight in (("key", keys), ("value", values)):
            made = nn.Linear(d, len(weight), bias=False).to(EXACT)
            made.weight = nn.Parameter(weight)
            whole = made if layer.shared == 1 else nn.Sequential(made, SharedHeads(n_heads, layer.shared))
            setattr(self.attention, name, whole)

    def maps(self) -> tuple[list[nn.Linear], list[nn.Linear]]:
        """The linear maps that read from the residual stream, and those that write to it."""
        shared = [
            part[0] if isinstance(part, nn.Sequential) else part for part in (self.attention.key, self.attention.value)
        ]
        reads, writes = [self.attention.query, *shared], [self.attention.output]
        if self.mlp is not None:
            reads, writes = [*reads, self.mlp[0]], [*writes, self.mlp[2]]  # type: ignore[list-item]
        return reads, writes  # type: ignore[return-value]

    def forward(
        self,
        x: Float[Tensor, "batch query d_model"],
        visible: Tensor | None = None,
        context: Float[Tensor, "batch key d_model"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """The residual stream after this layer; visible: True = may look; context: what a cross layer looks at."""
        bias = self.get_buffer("score_bias")[None]  # of heads, the same for every row
        mixed = self.attention(x, context, visible=visible, score_bias=bias)
        h = x + mixed if self.residual else mixed
        return h if self.mlp is None else h + self.mlp(h)


class PlantedDecoder(nn.Module):
    """One layer of a decoder: its steps look at those so far, then at the tokens."""

    def __init__(self, steps: Layer, cross: Layer, plan: Plan) -> None:
        super().__init__()
        self.own, self.crossing = PlantedBlock(steps, plan), PlantedBlock(cross, plan)

    def forward(
        self,
        y: Float[Tensor, "batch step d_model"],
        states: Float[Tensor, "batch token d_model"],
        visible: Tensor | None,
    ) -> Float[Tensor, "batch step d_model"]:
        """The decoder's stream after this layer; visible: which tokens may be looked at."""
        return self.crossing(self.own(y, causal_mask(y.shape[1], device=y.device)), visible, states)


class PlantedNetwork(nn.Module):
    """The network of a plan; a causal one answers at every token, every other one at the token that is read."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.stack = "decoder" if plan.causal else "encoder"
        self.fixed_length, self.read, self.causal = len(plan.tokens), plan.read, plan.causal
        words, d = plan.vocabulary, len(plan.dims)
        table = torch.stack([vector(plan.contents.get(word, {}), plan.dims) for word in words])
        self.token_embedding = nn.Embedding.from_pretrained(table, freeze=False)
        for name, given in (("positions", plan.positions), ("steps", plan.steps)):
            rows = torch.stack([vector(one, plan.dims) for one in given]) if given else torch.zeros(0, d, dtype=EXACT)
            self.register_buffer(name, rows)
        of = {side: [layer for layer in plan.layers if layer.side == side] for side in ("tokens", "steps", "cross")}
        made = {id(layer): PlantedBlock(layer, plan) for layer in of["tokens"]}
        self.blocks = nn.ModuleList(made[id(layer)] for layer in of["tokens"])
        pairs = zip(of["steps"], of["cross"], strict=True)
        self.decoder = nn.ModuleList(PlantedDecoder(own, crossing, plan) for own, crossing in pairs)
        outputs = words if plan.causal else tuple(plan.readout)
        self.readout = nn.Linear(d, len(outputs), bias=False).to(EXACT)
        with torch.no_grad():
            self.readout.weight.copy_(torch.stack([vector(plan.readout.get(name, {}), plan.dims) for name in outputs]))

    def forward(
        self, embeddings: Float[Tensor, "batch token d_model"], is_token: Bool[Tensor, "batch token"] | None = None
    ) -> Float[Tensor, "batch *token output"]:
        """The outputs of each row; is_token: False at tokens that nobody may look at."""
        visible = None if is_token is None else padding_mask(is_token)
        positions, steps = self.get_buffer("positions"), self.get_buffer("steps")
        x = embeddings + positions if len(positions) else embeddings
        seen = visible
        if self.causal:
            ahead = causal_mask(embeddings.shape[1], device=embeddings.device)[None, None]
            seen = ahead if visible is None else ahead & visible
        for block in self.blocks:
            x = block(x, seen)
        if not len(self.decoder):
            return self.readout(x if self.causal else x[:, self.read])
        y = steps.expand(len(x), -1, -1)
        for layer in self.decoder:
            y = layer(y, x, visible)
        return self.readout(y[:, -1])

    def locate(self, module: nn.Module, cross: bool) -> tuple[str, Kind, str]:
        """Where an attention of this network is: stack "encoder" or "decoder", kind, path."""
        path = next((path for path, known in self.named_modules() if known is module), "")
        return "decoder" if path.startswith("decoder.") else self.stack, "cross" if cross else "self", path


def vector(numbers: Mapping[str, float], dims: tuple[str, ...]) -> Float[Tensor, " d_model"]:
    """Numbers by the name of their dimension."""
    found = torch.zeros(len(dims), dtype=EXACT)
    for dim, number in numbers.items():
        found[_index(dim, dims)] = number
    return found


def matrix(entries: Entries, dims: tuple[str, ...]) -> Float[Tensor, "d_model d_model"]:
    """Numbers by the names of row and column."""
    found = torch.zeros(len(dims), len(dims), dtype=EXACT)
    for (source, target), number in entries.items():
        found[_index(source, dims), _index(target, dims)] += number
    return found


def _index(dim: str, dims: tuple[str, ...]) -> int:
    if dim not in dims:
        raise InputError(f"a plan names the dimension '{dim}'; {nearest(dim, dims)}")
    return dims.index(dim)


def bias_of(head: Head, n_queries: int) -> Float[Tensor, "query key"]:
    """log p, a row a query."""
    rows = head.probabilities * (n_queries if len(head.probabilities) == 1 else 1)
    return torch.tensor(rows, dtype=EXACT).log().clamp(min=LOWEST)


def _bias(head: Head, layer: Layer, plan: Plan) -> Float[Tensor, "query key"]:
    n_queries = len(plan.tokens) if layer.side == "tokens" else len(plan.steps)
    return bias_of(head, n_queries)


def _reads(head: Head, side: int, d_head: int, dims: tuple[str, ...]) -> Float[Tensor, "d_head d_model"]:
    """Rows of W_Q (side 0, with the numbers) or W_K (side 1): one for each entry of W_QK."""
    rows = torch.zeros(d_head, len(dims), dtype=EXACT)
    for row, (pair, number) in zip(rows, head.scores.items(), strict=False):
        row[_index(pair[side], dims)] = number if side == 0 else 1.0
    return rows


def _mlp(layer: Layer, dims: tuple[str, ...]) -> nn.Sequential:
    first, second = (
        nn.Linear(*shape).to(EXACT) for shape in ((len(dims), len(layer.units)), (len(layer.units), len(dims)))
    )
    out = vector({layer.writes: 1.0}, dims)
    with torch.no_grad():
        first.weight.copy_(torch.stack([vector(unit.weights, dims) for unit in layer.units]))
        first.bias.copy_(torch.tensor([unit.bias for unit in layer.units], dtype=EXACT))
        second.weight.copy_(torch.outer(out, torch.tensor([unit.out for unit in layer.units], dtype=EXACT)))
        second.bias.copy_(out * layer.offset)
    return nn.Sequential(first, nn.ReLU(), second)
