"""Numbers as bytes for drawing: few steps, small numbers kept apart from 0, compressed for a page.

The page draws from these; tables hold full precision.
"""

import base64
import zlib
from dataclasses import dataclass

import torch
from torch import Tensor

# Steps of the scale, the finest first; a text that is too large for the page takes the next.
STEPS = (255, 180, 127, 90, 63)
SIGNED = 127  # the eighth bit is the sign
# Compressed bytes of attention that a page carries in all (4/3 of that as text).
BUDGET = 3_300_000


@dataclass(frozen=True)
class Scale:
    """A number is peak × (code / n)²; code 0 is 0 and nothing else. signed: codes from 128 on are negative.

    In square roots a number is off by half a step at most: the number itself by √(number × peak) / n, and a quarter of
    the smallest step, peak / n², at that. What is smaller than half a step gets code 1: it never becomes 0.
    """

    peak: float
    n: int = STEPS[0]
    signed: bool = False

    def codes(self, numbers: Tensor) -> Tensor:
        """The code of each number, uint8.

        >>> Scale(1.0).codes(torch.tensor([0.0, 1e-30, 0.25, 1.0])).tolist()
        [0, 1, 128, 255]
        """
        sizes = numbers.detach().float().cpu().nan_to_num(0.0).abs()
        if self.peak <= 0:
            return torch.zeros_like(sizes, dtype=torch.uint8)
        codes = (self.n * (sizes / self.peak).sqrt()).round().clamp(1, self.n)
        codes = codes.masked_fill(sizes == 0, 0)
        if self.signed:
            codes = codes + 128 * ((numbers.detach().float().cpu() < 0) & (codes > 0))
        return codes.to(torch.uint8)

    def numbers(self, codes: Tensor) -> Tensor:
        """What the page draws for codes: the same that its script computes.

        >>> Scale(1.0, 127, signed=True).numbers(torch.tensor([0, 127, 255], dtype=torch.uint8)).tolist()
        [0.0, 1.0, -1.0]
        """
        whole = codes.to(torch.int32)
        sign = torch.where(whole > 127, -1.0, 1.0) if self.signed else torch.ones(whole.shape)
        sizes = torch.where(whole > 127, whole - 128, whole) if self.signed else whole
        return sign * self.peak * (sizes / self.n) ** 2

    def error(self, number: float) -> float:
        """How far what is drawn for a number may lie from it, at most.

        >>> round(Scale(1.0).error(1.0), 4), round(Scale(1.0).error(0.01), 5)
        (0.0039, 0.0004)
        """
        size = abs(number)
        rounding = (size * self.peak) ** 0.5 / self.n + 0.25 * self.peak / self.n**2
        return max(rounding, self.peak / self.n**2) if size < self.peak / (4 * self.n**2) else rounding

    @property
    def facts(self) -> dict[str, float | int]:
        """The scale as the page's script reads it."""
        return {"peak": self.peak, "n": self.n, "signed": int(self.signed)}


def scale_of(numbers: list[Tensor], n: int = STEPS[0]) -> Scale:
    """The scale that holds all of the numbers; signed where one of them is negative."""
    ends = [t.detach().float().nan_to_num(0.0).aminmax() for t in numbers if t.numel()]
    low = min((float(low) for low, _ in ends), default=0.0)
    high = max((float(high) for _, high in ends), default=0.0)
    return Scale(max(high, -low), min(n, SIGNED) if low < 0 else n, low < 0)


class Buffer:
    """Bytes of all heads, one behind the other; compressed as a whole."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0

    def add(self, numbers: Tensor) -> int:
        """Put in whole numbers (uint8, or 16 bits of int32 as two planes), row by row; where they begin."""
        start = self._length
        planes = [numbers] if numbers.dtype == torch.uint8 else [numbers % 256, numbers // 256]
        for plane in planes:
            self._parts.append(plane.to(torch.uint8).contiguous().numpy().tobytes())
            self._length += plane.numel()
        return start

    def __len__(self) -> int:
        return self._length

    def packed(self) -> bytes:
        """All of it, deflated; a browser's `DecompressionStream("deflate")` reads it."""
        # Weights are nearly noise: looking for longer repeats than runs makes the result 10 % larger, and takes longer.
        deflate = zlib.compressobj(6, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_RLE)
        return deflate.compress(b"".join(self._parts)) + deflate.flush()


def as_text(data: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(data).decode()


def sixteen(numbers: Tensor, peak: float) -> Tensor:
    """Numbers from 0 to peak in 65535 even steps, for the few that stand beside a map (norms)."""
    return (numbers.detach().float().cpu() / (peak or 1.0) * 65535).round().clamp(0, 65535).to(torch.int32)


class Budget:
    """Compressed bytes of attention that are left on a page.

    refused: weights of the last text for which there was no room; one as large is not tried again.
    """

    def __init__(self, left: int = BUDGET) -> None:
        self.given = self.left = left
        self.refused: int | None = None

    def refuses(self, weights: int) -> bool:
        """Whether a text of so many weights is known not to fit."""
        return self.left <= 0 or (self.refused is not None and weights >= self.refused)

    def take(self, size: int) -> bool:
        """Whether that many bytes are left; they are then spent."""
        fits = size <= self.left
        self.left -= size if fits else 0
        return fits
