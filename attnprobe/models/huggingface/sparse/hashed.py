"""Reformer: keys of the query's chunk and its neighbours, after tokens were sorted by hash or in their own order."""

from typing import Any

import torch
from torch import Tensor

from attnprobe.errors import CaptureError
from attnprobe.models.huggingface.sparse.dense import exchange, first_of, kept_tokens, refill, shown, split, spread
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("LocalSelfAttention")
def chunked(run: Run) -> list[LaidOut]:
    """The chunk of a query and the chunks beside it; the first and the last chunk are neighbours."""
    _refuse_cache(run)
    module: Any = run.module
    slots = run.call(-1, "exp").out
    length = run.given("hidden_states").shape[1]
    at = torch.arange(length, device=slots.device).expand(*slots.shape[:2], -1)
    return [_laid_out(run, _by_query(module, slots, at, length)[:, :, :length])]


@layout("LSHSelfAttention")
def hashed(run: Run) -> list[LaidOut]:
    """Chunks of tokens sorted by bucket; with several rounds of hashing the sum of their weights, each by its share."""
    _refuse_cache(run)
    module: Any = run.module
    exponentials = run.named("exp")
    length = run.given("hidden_states").shape[1]
    slots = exponentials[0].out
    gathered = [call for call in run.named("gather") if call.args[0].ndim == 4]
    if not gathered:  # no longer than one chunk: nothing was sorted
        return [_laid_out(run, slots)]
    at = gathered[0].args[2][..., 0]  # [row head place]: the token in each place, one round after the other
    by_place = _by_query(module, slots, at, length)
    back = at.unflatten(2, (-1, length)).argsort(-1)  # [row head round token]: the token's place in its round
    rounds = by_place.unflatten(2, (-1, length))
    rounds = rounds.gather(3, back[..., None].expand_as(rounds))
    if len(exponentials) > 1:
        rounds = rounds * exponentials[1].out
    return [_laid_out(run, rounds.sum(2))]


def _by_query(module: Any, slots: Tensor, at: Tensor, length: int) -> Tensor:
    """[row head chunk query slot] -> [row head place key], `at` [row head place] being the token in each place."""
    if slots.ndim == 4:
        return slots
    places = at.unflatten(2, (slots.shape[2], -1))
    offsets = range(-module.num_chunks_before, module.num_chunks_after + 1)
    keys = torch.cat([places.roll(-offset, dims=2) for offset in offsets], dim=3)
    return spread(slots, keys.unsqueeze(3), length).flatten(2, 3)


def _laid_out(run: Run, weights: Tensor) -> LaidOut:
    module: Any = run.module
    mask, length = run.given("attention_mask"), weights.shape[2]
    n_tokens = length if mask is None else kept_tokens(run, mask == 0, length)
    output = first_of(run.output)

    def put(whole: Any, new: Tensor) -> Any:
        return exchange(whole, refill(first_of(whole), new))

    weights = weights[..., :n_tokens, :n_tokens]
    value = split(run.child("value"), module.num_attention_heads)[:, :, :n_tokens]
    z = split(output, module.num_attention_heads)[:, :, :n_tokens]
    return LaidOut(weights, value, z, put, visible=shown(weights))


def _refuse_cache(run: Run) -> None:
    module: Any = run.module
    cached = run.given("past_buckets_states")
    if cached is not None and len(cached) > module.layer_idx:
        raise CaptureError(
            f"{type(module).__name__} reads chunks of its cache, which are not laid out; run it with use_cache=False"
        )
