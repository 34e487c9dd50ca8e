"""Sparse patterns: masks that leave most pairs out, so that attention costs less than n² (True = may look).

local    |i − j| < w                      causal: 0 ≤ i − j < w    Child et al. 2019; Beltagy et al. 2020 (Longformer)
strided  (i − j) mod s = 0                causal: and j ≤ i        Child et al. 2019 (Sparse Transformer), section 4.2
block    layout[i // b, j // b]                                    Gray et al. 2017 (block-sparse kernels)
global   i ∈ G or j ∈ G                                            Beltagy et al. 2020; Zaheer et al. 2020, section 2
random   r keys a query, drawn once from a seed                    Zaheer et al. 2020 (BigBird), section 2
graph    (i, j) is an edge                                         Veličković et al. 2018 (graph attention)

All are [query key] over the same n tokens, on the CPU (`.to(device)` moves one). Combine them with `&` and `|`, also
with `causal_mask` and `padding_mask`; of a cache's newest tokens take the last rows: `local_mask(n, w)[-1:]`.
How far L layers of a pattern see is `attnprobe.attention.reach`; what it looks like, `attnprobe.mask_figures`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Shaped
from torch import Tensor

from attnprobe.attention.positions import at_least, relative_positions
from attnprobe.errors import InputError

Mask = Bool[Tensor, "query key"]


def local_mask(n_tokens: int, width: int, *, causal: bool = False) -> Mask:
    """A window: the own position and width − 1 before it, and as many behind it unless causal.

    >>> local_mask(4, 2).int().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    at_least("width", width, 1)
    offset = relative_positions(n_tokens)
    return (offset.abs() < width) & (offset <= (0 if causal else n_tokens))


def strided_mask(n_tokens: int, stride: int, *, causal: bool = True) -> Mask:
    """Every stride-th position, counted from the own one; two layers of window and stride see everything before.

    >>> strided_mask(5, 2)[4].int().tolist()
    [1, 0, 1, 0, 1]
    """
    at_least("stride", stride, 1)
    offset = relative_positions(n_tokens)
    return (offset % stride == 0) & (offset <= (0 if causal else n_tokens))


def block_mask(layout: Tensor, block_size: int, *, n_tokens: int | None = None) -> Mask:
    """Whole blocks of the map: a query of block a may look at the keys of block b where layout[a, b].

    layout: boolean [block block]. n_tokens: fewer than blocks × size where the last block is not full.

    >>> block_mask(torch.tensor([[True, False], [True, True]]), 2, n_tokens=3).int().tolist()
    [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    """
    at_least("block_size", block_size, 1)
    if layout.dtype is not torch.bool or layout.ndim != 2:
        raise InputError(
            f"a layout is boolean [block block], got {layout.dtype} {tuple(layout.shape)}; layout > 0 is one"
        )
    if layout.shape[0] != layout.shape[1]:
        raise InputError(f"a layout of self-attention is square, got {tuple(layout.shape)}")
    most = layout.shape[0] * block_size
    n_tokens = most if n_tokens is None else n_tokens
    if not most - block_size < n_tokens <= most:
        raise InputError(
            f"{layout.shape[0]} blocks of {block_size} hold {most - block_size + 1} to {most} tokens, got {n_tokens}; "
            "give a layout of ceil(n_tokens / block_size) blocks"
        )
    return layout.repeat_interleave(block_size, 0).repeat_interleave(block_size, 1)[:n_tokens, :n_tokens]


def global_mask(n_tokens: int, positions: Sequence[int]) -> Mask:
    """Some positions look at everything and are looked at by everyone; −1 is the last.

    >>> global_mask(3, [0]).int().tolist()
    [[1, 1, 1], [1, 0, 0], [1, 0, 0]]
    """
    places = _within(positions, n_tokens, allow_negative=True)
    chosen = torch.zeros(n_tokens, dtype=torch.bool)
    chosen[places] = True
    return chosen[:, None] | chosen


def random_mask(n_tokens: int, n_random: int, *, seed: int, beside: Mask | None = None) -> Mask:
    """Each query looks at n_random keys drawn without repetition, the same for the same seed.

    beside: keys that are seen anyway and are not drawn; a query with fewer others gets all of them.

    >>> random_mask(6, 2, seed=0).sum(1).tolist()
    [2, 2, 2, 2, 2, 2]
    """
    at_least("n_random", n_random, 0)
    at_least("n_tokens", n_tokens, 1)
    taken = torch.zeros(n_tokens, n_tokens, dtype=torch.bool) if beside is None else beside
    lots = torch.rand(n_tokens, n_tokens, generator=torch.Generator().manual_seed(seed)).masked_fill(taken, torch.inf)
    return (lots.argsort(-1).argsort(-1) < n_random) & ~taken


def big_bird_mask(
    n_tokens: int,
    *,
    block_size: int,
    n_window: int = 3,
    global_blocks: Sequence[int] = (0, -1),
    n_random: int = 3,
    seed: int = 0,
) -> Mask:
    """BigBird: in blocks, a window of n_window, global blocks, and n_random others a row of blocks.

    >>> big_bird_mask(12, block_size=2, n_random=1).float().mean().item() < 1
    True
    """
    at_least("block_size", block_size, 1)
    at_least("n_window", n_window, 1)
    if n_window % 2 == 0:
        raise InputError(f"a window has its own block in the middle, so n_window is odd, got {n_window}")
    n_blocks = -(-n_tokens // block_size)
    layout = local_mask(n_blocks, n_window // 2 + 1) | global_mask(n_blocks, global_blocks)
    layout = layout | random_mask(n_blocks, n_random, seed=seed, beside=layout)
    return block_mask(layout, block_size, n_tokens=n_tokens)


def edge_mask(n_tokens: int, edges: Sequence[tuple[int, int]], *, directed: bool = False, loops: bool = True) -> Mask:
    """A graph by its edges: (i, j) lets i look at j, and j at i unless directed; loops: everyone sees itself.

    >>> edge_mask(3, [(0, 1)], directed=True).int().tolist()
    [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    """
    if wrong := [edge for edge in edges if len(edge) != 2]:
        raise InputError(f"an edge is a pair (i, j) of positions, got {wrong[0]!r}")
    ends = torch.tensor(_within([end for edge in edges for end in edge], n_tokens), dtype=torch.long).reshape(-1, 2)
    adjacency = torch.zeros(n_tokens, n_tokens, dtype=torch.bool)
    adjacency[ends[:, 0], ends[:, 1]] = True
    return adjacency_mask(adjacency if directed else adjacency | adjacency.T, loops=loops)


def adjacency_mask(adjacency: Shaped[Tensor, "query key"], *, loops: bool = True) -> Mask:
    """A graph by its matrix: i may look at j where the entry is not 0; loops: everyone sees itself."""
    if adjacency.shape[0] != adjacency.shape[1]:
        raise InputError(f"an adjacency matrix is square, a row and a column a token, got {tuple(adjacency.shape)}")
    own = torch.eye(adjacency.shape[0], dtype=torch.bool, device=adjacency.device)
    return adjacency.bool() | own if loops else adjacency.bool()


def _within(positions: Sequence[int], n_tokens: int, allow_negative: bool = False) -> list[int]:
    """The positions, or an `InputError` for one that is no token."""
    at_least("n_tokens", n_tokens, 1)
    lowest = -n_tokens if allow_negative else 0
    for position in positions:
        if not lowest <= position < n_tokens:
            raise InputError(f"{n_tokens} tokens have positions {lowest} to {n_tokens - 1}, got {position}")
    return list(positions)
