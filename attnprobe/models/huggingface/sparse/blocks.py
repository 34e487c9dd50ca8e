"""BigBird: blocks of neighbours, of the first and last tokens, and of random others."""

from typing import Any

import torch
from torch import Tensor

from attnprobe.errors import CaptureError
from attnprobe.models.huggingface.sparse.dense import exchange, kept_tokens, refill, shown, split, spread
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("BigBirdBlockSparseAttention", "BigBirdPegasusBlockSparseAttention")
def blocked(run: Run) -> list[LaidOut]:
    """Five softmaxes, of the first, second, middle, last but one and last blocks of queries, as one matrix.

    A random block that is also a neighbour counts twice in this attention; its weights are added up here.
    """
    module: Any = run.module
    size, n_heads = module.block_size, module.num_attention_heads
    n_tokens = kept_tokens(run, run.given("to_mask")[:, 0, 0] == 0, size)
    first, second, middle, before_last, last = (run.call(index, "softmax").out for index in range(5))
    length = first.shape[-1]
    n_blocks = length // size
    chosen = _random_blocks(run, n_blocks)
    at = torch.arange(n_blocks, device=chosen.device)
    middle_keys = torch.cat(
        [
            _columns(at[:1], chosen[:, :, 1:-1]),
            (at[2:-2, None] + torch.arange(-1, 2, device=at.device)).expand(*chosen.shape[:2], -1, -1),
            chosen[:, :, 1:-1],
            _columns(at[-1:], chosen[:, :, 1:-1]),
        ],
        dim=-1,
    )
    second_keys = torch.cat([_columns(at[[0, 1, 2, -1]], chosen[:, :, 0]), chosen[:, :, 0]], dim=-1)
    before_last_keys = torch.cat([_columns(at[[0, -3, -2, -1]], chosen[:, :, -1]), chosen[:, :, -1]], dim=-1)
    rows = [
        first,
        spread(second, _tokens(second_keys, size), length),
        spread(middle, _tokens(middle_keys, size), length).flatten(2, 3),
        spread(before_last, _tokens(before_last_keys, size), length),
        last,
    ]
    weights = (torch.cat(rows, dim=2) * run.given("from_mask"))[..., :n_tokens, :n_tokens]

    def put(output: Any, new: Tensor) -> Any:
        return exchange(output, refill(output[0], new))

    return [
        LaidOut(
            weights=weights,
            value=split(run.child("value"), n_heads)[:, :, :n_tokens],
            z=split(run.output[0], n_heads)[:, :, :n_tokens],
            put=put,
            visible=shown(weights),
            row_sum="at_most_one",
        )
    ]


def _columns(blocks: Tensor, like: Tensor) -> Tensor:
    """The same key blocks [block] for every leading index of `like`."""
    return blocks.expand(*like.shape[:-1], -1)


def _tokens(blocks: Tensor, size: int) -> Tensor:
    """Key blocks [... block] -> keys [... 1 slot], the same for all queries of a block."""
    inside = torch.arange(size, device=blocks.device)
    return (blocks[..., None] * size + inside).flatten(-2).unsqueeze(-2)


def _random_blocks(run: Run, n_blocks: int) -> Tensor:
    """[row head query_block block], of query blocks 1 to the last but one, as they were gathered."""
    for call in run.named("gather"):
        if call.args[0].ndim == 5:  # blocks of keys [row head block token d], and not a mask
            return call.args[2][..., 0, 0].unflatten(2, (n_blocks - 2, -1))
    raise CaptureError(f"{type(run.module).__name__} gathered no random blocks of keys; its layout expects them")
