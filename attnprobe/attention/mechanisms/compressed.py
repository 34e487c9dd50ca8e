"""Compressed memories: c neighbouring keys and values become one slot, and attention looks at the slots.

    memory_compressed:  K' = pool(K), V' = pool(V)                  slot s mixes tokens s c … s c + c - 1
    compressive:        K' = [pool(K_old); K_recent], V' alike      the last n_recent tokens stay as they are
    z    = P V',   P = softmax(q K'^T / sqrt(d_head))               [*batch query slot]
    A_ij = P_is p_sj  for j in slot s                               [*batch query key]: a slot's weight is spread over
                                                                    its tokens by the pooling weights p
Pooling is the mean, or a strided convolution with one number for each of the c places (`kernel`; the same for all
channels, else a token would have no single weight). A last slot that is not full takes the mean of what is there; a
convolution sees zeros. Causal: a slot is seen from its last token on. The cost falls from n² to n² / c.

Sources: Liu et al. 2018, "Generating Wikipedia by summarizing long sequences", section 4.2.3 (memory-compressed);
Rae et al. 2020, "Compressive transformers", section 3 (with its mean pooling).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.compression import Memory, memory_of
from attnprobe.attention.masks import mask_scores
from attnprobe.attention.mechanisms import mechanisms
from attnprobe.attention.scores import scaled_dot_scores
from attnprobe.errors import InputError
from attnprobe.site import softmax


def look(query: Tensor, key: Tensor, memory: Memory, causal: bool) -> Float[Tensor, "*batch query slot"]:
    """P: softmax over the slots; a query that sees none yet has zeros."""
    scores = scaled_dot_scores(query, memory.pool(key))
    if not causal:
        return torch.softmax(scores, dim=-1)
    return softmax(mask_scores(scores, memory.visible(query.shape[-2]).to(query.device)))


def memory_compressed_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    factor: int = 3,
    kernel: Tensor | None = None,
    causal: bool = False,
) -> Float[Tensor, "*batch query key"]:
    """The map over tokens; causal: the first rows, which see no full slot yet, are zeros."""
    memory = memory_of(key, factor, kernel=kernel)
    return memory.spread(look(query, key, memory, causal))


@mechanisms.add(
    family="compressed",
    source="Liu et al. 2018, section 4.2.3",
    weights=memory_compressed_weights,
    row_sum=lambda options: "any" if options["kernel"] is not None else "at_most_one" if options["causal"] else "one",
    cost="n²/c",
    formula="z = softmax(q pool_c(K)ᵀ / √d) pool_c(V)",
    meaning="a slot's weight, spread by the pooling",
)
def memory_compressed(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    factor: int = 3,
    kernel: Tensor | None = None,
    causal: bool = False,
) -> Float[Tensor, "*batch query d_value"]:
    """Memory-compressed attention: c neighbouring keys and values are pooled into one."""
    memory = memory_of(key, factor, kernel=kernel)
    return look(query, key, memory, causal) @ memory.pool(value)


def compressive_weights(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    *,
    n_recent: int = 64,
    factor: int = 3,
    causal: bool = False,
) -> Float[Tensor, "*batch query key"]:
    """The map over tokens: recent ones have their own weights, old ones a share of their slot's."""
    memory = _with_recent(query, key, n_recent, factor, causal)
    return memory.spread(look(query, key, memory, causal))


@mechanisms.add(
    family="compressed",
    source="Rae et al. 2020, section 3",
    weights=compressive_weights,
    row_sum="one",
    cost="n n_recent + n²/c",
    formula="z = softmax(q [pool_c(K_old); K_recent]ᵀ / √d) [pool_c(V_old); V_recent]",
    meaning="a slot's share for an old token, its own for a recent one",
)
def compressive(
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    n_recent: int = 64,
    factor: int = 3,
    causal: bool = False,
) -> Float[Tensor, "*batch query d_value"]:
    """Compressive attention: the last n_recent keys as they are, those before them c to a slot."""
    memory = _with_recent(query, key, n_recent, factor, causal)
    return look(query, key, memory, causal) @ memory.pool(value)


def _with_recent(query: Tensor, key: Tensor, n_recent: int, factor: int, causal: bool) -> Memory:
    if causal and n_recent < query.shape[-2]:
        raise InputError(
            f"causal compressive attention keeps the tokens that ask uncompressed: n_recent = {n_recent} is less than "
            f"{query.shape[-2]} queries; give n_recent of at least that, or ask in shorter segments"
        )
    return memory_of(key, factor, n_recent)
