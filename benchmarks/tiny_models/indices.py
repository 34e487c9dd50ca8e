"""Fields that name layers by number, after the number of layers has shrunk."""

import re
from typing import Any

from benchmarks.tiny_models.sizes import LAYERS

_GLOBAL = re.compile(r"global_attn_indexes|fullatt_block_indexes|window_block_indices|full_attn_.*")
_LISTED = re.compile(r".*(_indexes|_indices|_indexs|hook_ids|extract_layers|_target_layers|feature_layers?|layer_ids)")


def indices(config: Any, changed: dict[str, Any]) -> dict[str, Any]:
    """New values for such fields, and for the number of layers where they need more of them."""
    name, before = _depth(config)
    found: dict[str, Any] = {}
    taken = getattr(config, "_out_indices", None)
    count = len(taken) if isinstance(taken, (list, tuple)) else 1
    listed = {
        field: value
        for field, value in vars(config).items()
        if _LISTED.fullmatch(field)
        and field != "_out_indices"
        and isinstance(value, (list, tuple))
        and value
        and all(isinstance(item, int) for item in value)
    }
    if name is not None:
        longest = max([len(value) for field, value in listed.items() if not _GLOBAL.fullmatch(field)], default=0)
        after = max(changed.get(name, before), min(max(longest, count if count > 1 else 0), 4))
        if after != changed.get(name, before):
            found[name] = after
        if isinstance(taken, (list, tuple)) and (count > 1 or max(taken) > after) and not hasattr(config, "depths"):
            found |= {"out_indices": [after - count + 1 + place for place in range(count)], "out_features": None}
    else:
        after = LAYERS
    for field, value in listed.items():
        found[field] = type(value)(_moved(field, list(value), after, name is not None))
    return found


def _depth(config: Any) -> tuple[str | None, int]:
    for name in ("num_hidden_layers", "depth", "num_layers", "n_layer"):
        value = vars(config).get(name)
        if isinstance(value, int) and value > 0:
            return name, value
    return None, 0


def _moved(field: str, value: list[int], count: int, own: bool) -> list[int]:
    if _GLOBAL.fullmatch(field):
        return [count - 1]
    if own and len(value) <= count and min(value) >= 0:
        return list(range(count - len(value), count))
    return [max(item, -count) if item < 0 else min(item, count) for item in value]
