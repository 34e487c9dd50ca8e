"""LongT5 and Pegasus-X: keys of the query's own and neighbouring blocks, and global memories behind the tokens.

Keys n_tokens, n_tokens + 1, ... are the global memories: summaries of blocks in LongT5, learned tokens in Pegasus-X.
"""

from typing import Any

import torch
from torch import Tensor

from attnprobe.models.huggingface.sparse.dense import (
    exchange,
    kept_tokens,
    merge,
    refill,
    shown,
    split,
    spread,
)
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("LongT5LocalAttention", "LongT5TransientGlobalAttention")
def three_blocks(run: Run) -> list[LaidOut]:
    """The block of a query and both its neighbours, with the summaries of all blocks where there are any."""
    module: Any = run.module
    length, size, n_heads = run.given("hidden_states").shape[1], module.block_len, module.n_heads
    value = split(run.child("v"), n_heads)
    if len(run.children["v"]) > 1:
        value = torch.cat([value, split(run.child("v", 1), n_heads)], dim=2)
    slots = run.call(0, "softmax").out.to(value.dtype)  # [row block head query slot]
    keys = _three_blocks(slots.shape[1], size, length, slots.device)
    memories = torch.arange(length, value.shape[2], device=keys.device).expand(len(keys), -1)
    by_query = slots.transpose(1, 2).flatten(2, 3)[:, :, :length]
    weights = spread(by_query, torch.cat([keys, memories], dim=1)[:length], value.shape[2])
    z = run.call(-1, "einsum").out.flatten(1, 2)[:, :length].transpose(1, 2)

    def put(output: Any, new: Tensor) -> Any:
        return exchange(output, module.o(merge(new)))

    # Padding beside the first and last block takes a share where no mask hides it; its value is zero.
    return [LaidOut(weights, value, z, put, visible=shown(weights), row_sum="at_most_one")]


def _three_blocks(n_blocks: int, size: int, length: int, device: torch.device) -> Tensor:
    """[query slot]: the keys of three blocks around each query, -1 beside the tokens."""
    block = torch.arange(n_blocks * size, device=device) // size
    keys = (block[:, None] - 1) * size + torch.arange(3 * size, device=device)
    return torch.where((keys >= 0) & (keys < length), keys, -1)


@layout("PegasusXGlobalLocalAttention")
def own_block(run: Run) -> list[LaidOut]:
    """The tokens of a query's own block and the global tokens; then what the global tokens look at.

    Every other layer shifts its blocks by half a block of zeros in front and behind, which is cut off here.
    """
    module: Any = run.module
    size, hidden, mask = module.block_size, run.given("token_hidden_states"), run.given("attention_mask")
    length = hidden.shape[1]
    first = size // 2 if _shifted(hidden, mask, size // 2) else 0
    inner = mask[:, first : length - first] < 0
    n_tokens = kept_tokens(run, inner, size)
    tokens = slice(first, first + n_tokens)
    value = split(run.child("v_proj"), module.num_heads)[:, :, tokens]
    value = torch.cat([value, split(run.child("v_proj", 1), module.num_heads)], dim=2)
    whole = (run.call(4, "einsum").out + run.call(5, "einsum").out).flatten(2, 3)
    weights = _own_block(run.call(1, "softmax").out, size)[:, :, tokens]
    weights = _tokens_first(weights, value.shape[2] - n_tokens, tokens)

    def put(output: Any, new: Tensor) -> Any:
        return exchange(output, module.out_proj(refill(merge(whole), new, first)))

    def put_global(output: Any, new: Tensor) -> Any:
        return exchange(output, module.out_proj(merge(new)), 1)

    rows = _tokens_first(run.call(0, "softmax").out, value.shape[2] - n_tokens, tokens)
    return [
        LaidOut(weights, value, whole[:, :, tokens], put, visible=shown(weights)),
        LaidOut(rows, value, run.call(1, "einsum").out, put_global, visible=shown(rows), name="global tokens"),
    ]


def _own_block(slots: Tensor, size: int) -> Tensor:
    """[row head block query slot] -> [row head query key], global keys in front of the tokens as they are in a slot."""
    n_blocks, n_memories = slots.shape[2], slots.shape[-1] - size
    inside = torch.arange(size, device=slots.device)
    own = n_memories + torch.arange(n_blocks, device=slots.device)[:, None] * size + inside
    memories = torch.arange(n_memories, device=slots.device).expand(n_blocks, -1)
    keys = torch.cat([memories, own], dim=1)[:, None]
    return spread(slots, keys, n_memories + n_blocks * size).flatten(2, 3)


def _tokens_first(weights: Tensor, n_memories: int, tokens: slice) -> Tensor:
    """Keys (memories, padded tokens) -> keys (tokens, memories)."""
    return torch.cat([weights[..., n_memories:][..., tokens], weights[..., :n_memories]], dim=-1)


def _shifted(hidden: Tensor, mask: Tensor, half: int) -> bool:
    """Whether half a block of hidden zeros stands in front and behind; a normed token is never all zeros."""
    ends = torch.cat([hidden[:, :half], hidden[:, -half:]], dim=1)
    masked = torch.cat([mask[:, :half], mask[:, -half:]], dim=1) < 0
    return bool((ends == 0).all() and masked.all())
