"""Layouts family by family: the dense map against a slow one, written from what the attention is, or the model's."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run
from tests.huggingface.sparse_models import IDS, Tiny, tiny
from tests.huggingface.sparse_runs import run

N = IDS.shape[1]


def first(name: str, inputs: dict[str, Any] | None = None, layer: int = 0) -> tuple[Any, Run, list[LaidOut]]:
    """The module of a layer, its run and its parts."""
    model: Tiny = tiny(name)
    torch.manual_seed(5)
    with torch.no_grad():
        _, noted, parts = run(model.module, inputs or model.inputs).runs[layer]
    return noted.module, noted, parts


def heads(projected: Tensor, n_heads: int = 4) -> Tensor:
    """[1 token head*d] -> [head token d]."""
    return projected[0].unflatten(-1, (n_heads, -1)).transpose(0, 1)


def masked_softmax(scores: Tensor, may_see: Tensor) -> Tensor:
    """Softmax of [head query key] over the keys that a query may see, each as often as it is seen."""
    counted = torch.exp(scores - scores.amax(-1, keepdim=True)) * may_see
    return counted / counted.sum(-1, keepdim=True)


def close(got: Tensor, wanted: Tensor) -> None:
    torch.testing.assert_close(got, wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["longformer", "longformer_global", "led"])
@torch.no_grad()
def test_longformer_sees_a_band_and_its_global_tokens_see_and_are_seen_by_all(name: str):
    module, noted, parts = first(name)
    hidden = noted.given("hidden_states")[:, :N]
    scores = heads(module.query(hidden)) @ heads(module.key(hidden)).transpose(-1, -2) / math.sqrt(8)
    is_global = noted.given("is_index_global_attn")[0, :N] if noted.given("is_global_attn") else torch.zeros(N).bool()
    may_see = torch.zeros(N, N)
    for query in range(N):
        for key in range(N):
            near = abs(query - key) <= module.one_sided_attn_window_size
            may_see[query, key] = float(near or bool(is_global[key]))
    wanted = masked_softmax(scores, may_see)
    of_all = heads(module.query_global(hidden)) @ heads(module.key_global(hidden)).transpose(-1, -2) / math.sqrt(8)
    wanted[:, is_global] = of_all.softmax(-1)[:, is_global]
    assert [part.name for part in parts] == (["", "global rows"] if bool(is_global.any()) else [""])
    close(sum(part.weights for part in parts)[0], wanted)


def _bigbird_counts(random: Tensor, n_blocks: int) -> Tensor:
    """[head block block]: how often a block of queries sees a block of keys; random [head block-2 r]."""
    counts = torch.zeros(len(random), n_blocks, n_blocks)
    for head in range(len(random)):
        for query in range(n_blocks):
            if query in (0, n_blocks - 1):
                counts[head, query] = 1
                continue
            for key in {0, query - 1, query, query + 1, n_blocks - 1}:
                counts[head, query, key] = 1
            for key in random[head, query - 1].tolist():
                counts[head, query, key] += 1
    return counts


@pytest.mark.parametrize("name", ["big_bird", "bigbird_pegasus"])
@pytest.mark.parametrize("chosen", ["the first", "others"])
@torch.no_grad()
def test_bigbird_sees_neighbours_ends_and_random_blocks(name: str, chosen: str, monkeypatch: pytest.MonkeyPatch):
    n_blocks = (N + 1) // 2
    random = torch.zeros(4, n_blocks - 2, 1, dtype=torch.long)
    if chosen == "others":
        random = torch.randint(0, n_blocks - 1, random.shape)  # never the padded one
        kind = type(first(name)[0])
        monkeypatch.setattr(kind, "_bigbird_block_rand_mask_with_head", lambda *_, **__: list(random.numpy()))
    module, noted, (part,) = first(name)
    hidden = noted.given("hidden_states")[:, :N]
    scores = heads(module.query(hidden)) @ heads(module.key(hidden)).transpose(-1, -2) / math.sqrt(8)
    counts = _bigbird_counts(random, n_blocks).repeat_interleave(2, 1).repeat_interleave(2, 2)[:, :N, :N]
    close(part.weights[0], masked_softmax(scores, counts))


@torch.no_grad()
def test_longt5_sees_as_far_as_its_radius():
    module, noted, (part,) = first("longt5")
    close(part.weights[0], _longt5_scores(module, noted.given("hidden_states")).softmax(-1))


@torch.no_grad()
def test_longt5_summaries_of_blocks_are_keys_behind_the_tokens():
    module, noted, (part,) = first("longt5_global")
    hidden = noted.given("hidden_states")
    n_blocks = N // module.global_block_size
    # Tokens behind the last whole block belong to it.
    block = (torch.arange(N) // module.global_block_size).clamp(max=n_blocks - 1)
    sums = torch.stack([hidden[0, block == index].sum(0) for index in range(n_blocks)])[None]
    keys = heads(module.k(module.global_input_layer_norm(sums)))
    buckets = module._relative_position_bucket(
        torch.arange(n_blocks) - block[:, None],
        num_buckets=module.relative_attention_num_buckets,
        max_distance=module.relative_attention_max_distance,
    )
    bias = module.global_relative_attention_bias(buckets).permute(2, 0, 1)
    side = heads(module.q(hidden)) @ keys.transpose(-1, -2) + bias
    assert part.weights.shape[-1] == N + n_blocks
    close(part.weights[0], torch.cat([_longt5_scores(module, hidden), side], -1).softmax(-1))


def _longt5_scores(module: Any, hidden: Tensor) -> Tensor:
    at = torch.arange(N)
    distance = at - at[:, None]
    buckets = module._relative_position_bucket(
        distance,
        num_buckets=module.relative_attention_num_buckets,
        max_distance=module.relative_attention_max_distance,
    )
    bias = module.relative_attention_bias(buckets).permute(2, 0, 1)
    scores = heads(module.q(hidden)) @ heads(module.k(hidden)).transpose(-1, -2) + bias
    return scores.masked_fill(distance.abs() > module.local_radius, -torch.inf)


@pytest.mark.parametrize("layer", [0, 1])
@torch.no_grad()
def test_pegasus_x_sees_its_block_and_the_global_tokens(layer: int):
    module, noted, (part, of_globals) = first("pegasus_x", layer=layer)
    shift = layer * module.block_size // 2  # every other layer shifts its blocks
    hidden = noted.given("token_hidden_states")[:, shift : shift + N]
    both = torch.cat([hidden, noted.given("global_hidden_states")], dim=1)
    scores = heads(module.q_proj(both) * module.scaling) @ heads(module.k_proj(both)).transpose(-1, -2)
    block = (torch.arange(N) + shift) // module.block_size
    may_see = torch.ones(N + 3, N + 3)
    may_see[:N, :N] = (block == block[:, None]).float()
    wanted = masked_softmax(scores, may_see)
    close(part.weights[0], wanted[:, :N])
    close(of_globals.weights[0], wanted[:, N:])


@torch.no_grad()
def test_prophetnet_streams_are_the_models_own_maps():
    _, noted, parts = first("prophetnet")
    main, ahead = noted.output[1], noted.output[2]
    assert torch.equal(parts[0].weights, main)
    for index, part in enumerate(parts[1:]):
        assert torch.equal(part.weights, ahead[:, index])
        assert part.weights.shape[-1] == 2 * part.weights.shape[-2]


@pytest.mark.parametrize("layer", [0, 2])
@torch.no_grad()
def test_informer_rows_are_softmax_rows_or_take_all_alike(layer: int):
    module, noted, (part,) = first("informer", layer=layer)
    hidden = noted.given("hidden_states")
    n = hidden.shape[1]
    scores = heads(module.q_proj(hidden) * module.scaling) @ heads(module.k_proj(hidden)).transpose(-1, -2)
    rest = torch.full((n, n), 1 / n)
    if module.is_decoder:
        scores = scores + noted.given("attention_mask")[0]
        rest = torch.ones(n, n).tril()
    chosen = (part.weights[0] - scores.softmax(-1)).abs().amax(-1) < 1e-5
    alike = (part.weights[0] - rest).abs().amax(-1) < 1e-5
    assert bool((chosen | alike).all())
    # The first row of a decoder is the same both ways.
    told_apart, sampled = (chosen & ~alike).sum(-1), math.ceil(math.log1p(n))
    assert bool(((told_apart == sampled) | ((told_apart == sampled - 1) & (chosen & alike)[:, 0])).all())


@torch.no_grad()
def test_nystromformer_is_the_product_of_its_three_factors():
    module, noted, (part,) = first("nystromformer")
    hidden = noted.given("hidden_states")
    query, key = (heads(p(hidden)) / 8**0.25 for p in (module.query, module.key))
    some_queries, some_keys = (t.unflatten(1, (5, 4)).mean(2) for t in (query, key))
    left, middle, right = (
        (a @ b.transpose(-1, -2)).softmax(-1)
        for a, b in ((query, some_keys), (some_queries, some_keys), (some_queries, key))
    )
    close(part.weights[0], left @ module.iterative_inv(middle[None])[0] @ right)


@torch.no_grad()
def test_reformer_local_sees_its_chunk_and_the_one_before():
    module, noted, (part,) = first("reformer_local")
    hidden = noted.given("hidden_states")[:, :N]
    scores = heads(module.query(hidden)) @ heads(module.key(hidden)).transpose(-1, -2) / math.sqrt(8)
    at = torch.arange(N)
    chunk = at // module.chunk_length
    near = (chunk[:, None] - chunk >= 0) & (chunk[:, None] - chunk <= 1) & (at <= at[:, None])
    close(part.weights[0], masked_softmax(scores, near.float()))


@pytest.mark.parametrize("name", ["reformer", "reformer_rounds"])
@torch.no_grad()
def test_reformer_sees_its_chunk_of_the_sorted_tokens_in_each_round(name: str):
    module, noted, (part,) = first(name)
    hidden, mask = noted.given("hidden_states"), noted.given("attention_mask")
    n = hidden.shape[1]
    vectors = heads(module.query_key(hidden))
    keys = module._len_and_dim_norm(vectors, math.sqrt(8))
    buckets = module._hash_vectors(vectors[None], module.num_hashes, mask)[0].unflatten(-1, (-1, n))
    for head in range(4):
        order = [(r, t) for r in range(module.num_hashes) for t in range(n)]
        order.sort(key=lambda rt: (int(buckets[head, rt[0], rt[1]]), rt[1]))
        chunks = [order[i : i + module.chunk_length] for i in range(0, len(order), module.chunk_length)]
        total, mass = torch.zeros(n, n), torch.zeros(n)
        for index, chunk in enumerate(chunks):
            seen = [t for _, t in chunks[index - 1] + chunk]
            for _, query in chunk:
                for key in seen:
                    score = float(vectors[head, query] @ keys[head, key]) if mask[0, key] else -1e9
                    e = math.exp(score if key != query else -1e5)
                    total[query, key] += e
                    mass[query] += e
        # A round's share is its part of the mass, so all rounds together are one softmax.
        wanted = (total / mass[:, None])[:N, :N]
        close(part.weights[0, head], wanted)


@torch.no_grad()
def test_pooled_attention_weighs_positions_by_its_softmax():
    _, noted, (part,) = first("mobilevitv2")
    query, key, _ = noted.child("qkv_proj").split([1, 16, 16], dim=1)
    pooled = (query.softmax(-1) * key).sum(-1)
    close(part.z[0, 0], pooled[0].T)
    for pixel in range(4):
        close(part.weights[0, 0, pixel, pixel * 6 : pixel * 6 + 6], query[0, 0, pixel].softmax(-1))
    # The softmax of SwiftFormer runs over an axis of one entry.
    _, _, (part,) = first("swiftformer")
    assert torch.equal(part.weights, torch.ones(1, 1, 1, 9))


@torch.no_grad()
def test_vits_adds_a_vector_for_each_distance():
    model = tiny("vits")
    _, noted, (tokens, distances) = run(model.module, model.inputs).runs[0]
    module: Any = noted.module
    own = module(*noted.args, **{**noted.kwargs, "output_attentions": True})[1]
    torch.testing.assert_close(tokens.weights, own)
    n = own.shape[-1]
    wanted = tokens.z.clone()
    for query in range(n):
        for key in range(n):
            if abs(key - query) <= module.window_size:
                vector = module.emb_rel_v[0, key - query + module.window_size]
                wanted[0, :, query] += own[0, :, query, key, None] * vector
    close(tokens.z + distances.z, wanted)


@pytest.mark.parametrize("name", ["gemma3n_audio", "gemma4_audio"])
@torch.no_grad()
def test_a_frame_reaches_the_queries_that_give_it_weight_and_no_others(name: str):
    module, noted, (part,) = first(name)
    at = noted.args[0] if noted.args else noted.given("hidden_states")
    for key in range(part.weights.shape[-1]):
        changed = at.clone()
        changed[:, key] += 1
        args, kwargs = ((changed, *noted.args[1:]), noted.kwargs) if noted.args else ((), noted.kwargs)
        kwargs = kwargs if noted.args else {**kwargs, "hidden_states": changed}
        out = module(*args, **kwargs)
        out, before = (t[0] if isinstance(t, tuple) else t for t in (out, noted.output))
        moved = (out != before).flatten(2).any(-1)[0]
        moved[key] = True  # its own query has changed
        reached = (part.weights[0, :, :, key] > 0).any(0)
        reached[key] = True
        assert torch.equal(moved, reached)


@torch.no_grad()
def test_autoformer_takes_the_values_of_the_best_delays():
    module, noted, (part,) = first("autoformer")
    hidden = noted.given("hidden_states")
    query, key = heads(module.q_proj(hidden)), heads(module.k_proj(hidden))
    n = hidden.shape[1]
    # How well queries and keys agree when the keys are so many places behind.
    agreement = torch.stack([(query * key.roll(delay, 1)).sum(1).mean() for delay in range(n)])
    best, delays = agreement.topk(int(module.autocorrelation_factor * math.log(n)))
    wanted = torch.zeros(n, n)
    for weight, delay in zip(best.softmax(0), delays.tolist(), strict=True):
        for at in range(n):
            wanted[at, (at + delay) % n] += weight
    close(part.weights[0], wanted.expand(4, -1, -1))


@torch.no_grad()
def test_groupvit_gives_each_token_to_one_group():
    module, noted, (part,) = first("groupvit")
    groups, tokens = noted.args
    best = (module.q_proj(groups) @ module.k_proj(tokens).transpose(-1, -2)).argmax(1)[0]
    mine = (best == torch.arange(5)[:, None]).float()
    close(part.weights[0, 0], mine / (mine.sum(-1, keepdim=True) + module.assign_eps))


@torch.no_grad()
def test_convbert_convolves_the_tokens_around_each():
    module, noted, (attention, spans) = first("convbert")
    assert torch.equal(attention.weights, noted.output[1])
    hidden = noted.given("hidden_states")
    mixed = module.key_conv_attn_layer(hidden.transpose(1, 2)).transpose(1, 2) * module.query(hidden)
    kernels = module.conv_kernel_layer(mixed)[0].unflatten(-1, (4, 5)).softmax(-1)
    wanted = torch.zeros(4, N, N)
    for query in range(N):
        for place in range(5):
            if 0 <= query + place - 2 < N:
                wanted[:, query, query + place - 2] = kernels[query, :, place]
    close(spans.weights[0], wanted)
