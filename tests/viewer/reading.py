"""A slow reader of the viewer's facts, written from the description of the format alone."""

import base64
import zlib
from typing import Any

import torch


def raw(facts: dict[str, Any]) -> bytes:
    """The bytes of all maps."""
    return zlib.decompress(base64.b64decode(facts["bytes"]))


def number(code: int, scale: dict[str, Any], peak: float) -> float:
    """What a code stands for."""
    if scale["signed"] and code > 127:
        return -peak * ((code - 128) / scale["n"]) ** 2
    return peak * (code / scale["n"]) ** 2


def full_map(facts: dict[str, Any], stack: dict[str, Any], layer: dict[str, Any], at: int, effect: bool = False) -> Any:
    """A map that is there in full, [query key]."""
    data, head = raw(facts), layer["heads"][at]
    scale, where = (stack["effect"], head["effect"]) if effect else (stack["scale"], head)
    rows, columns = (len(facts["sides"][layer[side]]["names"]) for side in "qk")
    codes = data[where["full"] : where["full"] + rows * columns]
    return torch.tensor([number(c, scale, scale["peak"]) for c in codes], dtype=torch.float64).reshape(rows, columns)


def tops(facts: dict[str, Any], stack: dict[str, Any], layer: dict[str, Any], at: int) -> list[list[tuple[int, float]]]:
    """The largest weights of each row of a map that is not full."""
    data, (start, k) = raw(facts), layer["heads"][at]["top"]
    n = len(facts["sides"][layer["q"]]["names"])
    scale = stack["scale"]
    return [
        [
            (
                data[start + q * k + j] + 256 * data[start + n * k + q * k + j],
                number(data[start + 2 * n * k + q * k + j], scale, scale["peak"]),
            )
            for j in range(k)
        ]
        for q in range(n)
    ]
