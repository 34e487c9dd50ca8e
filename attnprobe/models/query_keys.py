"""W_Q and W_K of one attention layer: what its scores are made of."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import CaptureError, InputError


@dataclass(frozen=True, eq=False, kw_only=True)
class QueryKeys:
    """Queries x W_Q + b_Q and keys x W_K + b_K; scores are x W_Q W_Kᵀ xᵀ but for scale, cap, biases, masks.

    key_groups: the key head of each query head. key_weight, key_bias: one entry a key head; `W_K` and `b_K`: one a
    query head. query_map, key_map: path of the module (or parameter). rotary: queries and keys are turned by position
    before they meet; what attention uses is the maps' output at position 0 alone. turn: one step of that, for rows
    (position t: q turnᵗ); None where it could not be told. factor: what queries times keys were multiplied by besides
    (1 for most). score_reasons: why something was not found (a norm of queries, Qwen3).
    """

    key_groups: tuple[int, ...] = ()
    W_Q: Float[Tensor, "head d_query_in d_head"] | None = field(default=None, repr=False)
    b_Q: Float[Tensor, "head d_head"] | None = field(default=None, repr=False)  # noqa: N815
    key_weight: Float[Tensor, "key_group d_key_in d_head"] | None = field(default=None, repr=False)
    key_bias: Float[Tensor, "key_group d_head"] | None = field(default=None, repr=False)
    query_map: str | None = None
    key_map: str | None = None
    rotary: bool = False
    turn: Float[Tensor, "d_head d_head"] | None = field(default=None, repr=False)
    factor: float = 1.0
    score_reasons: tuple[str, ...] = ()

    @property
    def W_K(self) -> Float[Tensor, "head d_key_in d_head"] | None:  # noqa: N802
        """The key matrix of each query head; made when asked for where heads share one."""
        return by_head(self.key_weight, self.key_groups)

    @property
    def b_K(self) -> Float[Tensor, "head d_head"] | None:  # noqa: N802
        """The key bias of each query head, zeros where the map has none."""
        return by_head(self.key_bias, self.key_groups)

    def turned(self, offset: int) -> Float[Tensor, "d_head d_head"] | None:
        """What stands between W_Q and W_Kᵀ where the key lies `offset` positions before the query; None for nothing.

        Errors: `CaptureError` for another offset than 0 where the turn is not known.
        """
        if not self.rotary or not offset:
            return None
        if self.turn is None:
            raise CaptureError(
                f"{self}: queries and keys are turned by position in a way that was not told (more than one axis, "
                f"half precision, …), so there is no W_QK at offset {offset}; ask for offset 0, or load in float32"
            )
        return torch.linalg.matrix_power(self.turn if offset > 0 else self.turn.T, abs(offset))

    def W_QK(self, head: int, offset: int = 0) -> Float[Tensor, "d_query_in d_key_in"]:  # noqa: N802
        """W_Q W_Kᵀ of one head: how well the key's x answers the query's, without scale, cap and biases.

        offset: position of the query less that of the key, which matters under RoPE alone.
        """
        W_Q, key_weight = self.W_Q, self.key_weight
        if W_Q is None or key_weight is None:
            raise CaptureError(f"{self}: W_QK was not found: {' '.join(self.score_reasons)}")
        if not 0 <= head < len(W_Q):
            raise InputError(f"{self} has heads 0 to {len(W_Q) - 1}, got head {head}")
        turn = self.turned(offset)
        queries = W_Q[head] if turn is None else W_Q[head] @ turn.to(W_Q)
        return queries @ key_weight[self.key_groups[head]].T


def by_head(grouped: Tensor | None, groups: tuple[int, ...]) -> Tensor | None:
    """One entry a query head of what has one entry a group."""
    shared = grouped is not None and len(grouped) != len(groups)
    return grouped[list(groups)] if grouped is not None and shared else grouped
