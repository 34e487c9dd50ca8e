"""How far a mechanism is from full attention: softmax(q k^T / sqrt(d_head)) over all keys, on the same tensors.

    weights: |A - softmax|    A the map that the mechanism implies [*batch query key]
    z:       |z - z_full|     [*batch query d_value]

Both as the largest and the mean entry. A mechanism with `causal=True` is compared with causal softmax. Full maps are
formed: this is for texts of some thousand tokens at most.
"""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.mechanisms.softmax import also_causal
from attnprobe.attention.scores import scaled_dot_product_attention


def error_to_full(
    mechanism: Any,
    query: Float[Tensor, "*batch query d_head"],
    key: Float[Tensor, "*batch key d_head"],
    value: Float[Tensor, "*batch key d_value"],
    *,
    visible: Tensor | None = None,
    **options: Any,
) -> dict[str, float]:
    """Largest and mean difference to softmax attention: weights_max, weights_mean, z_max, z_mean.

    mechanism: a name, a function or a `Mechanism`. visible: a mask, of both. Hashed attention (`lsh`) never looks at
    the token itself and takes keys of length 1: give it queries of length sqrt(d_head), and the difference left is that
    and the hashing.
    """
    chosen = Mechanism.of(mechanism, **options)
    mask = visible
    if chosen.options.get("causal"):
        mask = also_causal(visible, query, key)
    full = scaled_dot_product_attention(query, key, value, visible=mask)
    weights_error = (chosen.weights(query, key, visible) - full.weights).abs()
    z_error = (chosen.z(query, key, value, visible) - full.z).abs()
    return {
        "weights_max": weights_error.max().item(),
        "weights_mean": weights_error.mean().item(),
        "z_max": z_error.max().item(),
        "z_mean": z_error.mean().item(),
    }
