"""GroupViT: every token goes to the one group that suits it best; a group takes its tokens with equal weights."""

from typing import Any

from torch import Tensor

from attnprobe.models.huggingface.sparse.dense import exchange, operands, shown
from attnprobe.models.huggingface.sparse.layouts import LaidOut, Run, layout


@layout("GroupViTAssignAttention")
def assigned(run: Run) -> list[LaidOut]:
    """Equal weights of a group on its own tokens, which sum to a little less than 1; zeros where it has none."""
    module: Any = run.module
    product = run.call(-1, "matmul", "__matmul__")
    weights, value = (tensor[:, None] for tensor in operands(product))

    def put(output: Any, new: Tensor) -> Any:
        return exchange(output, module.proj(new[:, 0]))

    z = product.out[:, None]
    return [LaidOut(weights, value, z, put, visible=shown(weights), row_sum="at_most_one", kind="cross")]
