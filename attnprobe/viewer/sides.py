"""What stands along the two sides of a map: names, which of them are special, and patches on a picture."""

import math
import re
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.example import Example
from attnprobe.heads.sides import sides
from attnprobe.site import Site
from attnprobe.viewer.packing import as_text
from attnprobe.viewer.tokens import exact, shown, visible

LARGEST_PICTURE = 224  # pixels a side
_PATCH = re.compile(r"(\d+),(\d+)")


@dataclass(frozen=True)
class Side:
    """Names of one side of a map, special ones by their index; exact: the vocabulary's spelling where it differs."""

    names: tuple[str, ...]
    special: tuple[int, ...] = ()
    exact: tuple[str, ...] = ()
    patches: bool = False

    def facts(self) -> dict[str, Any]:
        """For the page's script."""
        facts: dict[str, Any] = {"names": list(self.names), "special": list(self.special)}
        if any(self.exact):
            facts["exact"] = list(self.exact)
        return facts | ({"patches": 1} if self.patches else {})


def side_of(capture: Capture, site: Site, which: str, n: int) -> Side:
    """The text's tokens where they are it, else those of the answer, else positions; which: "query" or "key"."""
    example, known = capture.example, sides(replace(capture, sites=(site,)))
    of_text = known.queries if which == "query" else known.keys
    if of_text and n == example.n_tokens:
        special = tuple(i for i, is_special in enumerate(example.is_special) if is_special)
        return Side(tuple(shown(example)), special, tuple(exact(example)), example.axis == "patches")
    answer = tuple(visible(str(token)) for token in example.notes.get("decoder_tokens", ()))
    of_answer = not of_text and site.place.stack == "decoder" and (which == "query" or site.place.kind == "self")
    if of_answer and len(answer) == n:
        return Side(answer)
    word = "answer" if of_answer else "position"
    return Side(tuple(f"{word} {i}" for i in range(n)))


def picture_of(example: Example) -> dict[str, Any] | None:
    """The picture with its grid of patches, where pixels and grid are known; None elsewhere."""
    places = [_PATCH.fullmatch(t) for t, special in zip(example.tokens, example.is_special, strict=True) if not special]
    pixels = _pixels(example)
    if example.axis != "patches" or pixels is None or not places or not all(places):
        return None
    last = places[-1]
    rows, columns = (int(part) + 1 for part in last.groups()) if last else (0, 0)
    if rows * columns != len(places):
        return None
    return {"rows": rows, "columns": columns, "first": len(example.tokens) - len(places), "png": png(pixels)}


def _pixels(example: Example) -> Tensor | None:
    """The picture as the model got it, [channel height width], stretched to 0 to 1."""
    found = (v for k, v in example.inputs.items() if k == "pixel_values")
    pixels = next((v for v in found if isinstance(v, Tensor) and v.is_floating_point()), None)
    if pixels is None or pixels.ndim not in (3, 4) or pixels.shape[-3] not in (1, 3):
        return None
    pixels = (pixels[0] if pixels.ndim == 4 else pixels).detach().float().cpu()
    size = (min(LARGEST_PICTURE, pixels.shape[-2]), min(LARGEST_PICTURE, pixels.shape[-1]))
    pixels = torch.nn.functional.adaptive_avg_pool2d(pixels[None], size)[0]
    low, high = pixels.aminmax()
    return (pixels - low) / (high - low).clamp(min=1e-12)


def png(pixels: Tensor) -> str:
    """Pixels [channel height width] from 0 to 1 as a PNG in base64; one channel is ink on paper."""
    levels = (pixels if len(pixels) == 3 else 1 - pixels).mul(255).round().clamp(0, 255).to(torch.uint8)
    channels, height, width = levels.shape
    rows = levels.permute(1, 2, 0).reshape(height, width * channels)
    body = torch.cat([torch.zeros(height, 1, dtype=torch.uint8), rows], 1).contiguous().numpy().tobytes()
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(body, 9)), (b"IEND", b""))
    return as_text(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def blocks(n: int, size: int) -> list[tuple[int, int]]:
    """The ranges over which `size` squares of a pooled side are averaged, as torch's adaptive pooling takes them.

    >>> blocks(5, 2)
    [(0, 3), (2, 5)]
    """
    return [(i * n // size, math.ceil((i + 1) * n / size)) for i in range(size)]


def distinct(sides: Sequence[Side]) -> tuple[list[Side], list[int]]:
    """Each side once, and the number of each given one among them."""
    known = list(dict.fromkeys(sides))
    return known, [known.index(side) for side in sides]
