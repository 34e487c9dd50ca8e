"""Our own attention, which does not call torch's kernel, beside that kernel: forward and backward.

Run: .venv/bin/python benchmarks/own_attention.py   (writes benchmarks/OWN_ATTENTION.md)

512 tokens, 12 heads of 64, one thread, float32, nothing captured. The two take turns; the ratio of their medians
counts. The bar is 1.4.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnprobe.attention.masks import causal_mask
from attnprobe.attention.mechanisms.softmax import softmax_mix

RESULTS = Path(__file__).parent / "OWN_ATTENTION.md"
N_TOKENS, N_HEADS, D_HEAD, ROUNDS, BAR = 512, 12, 64, 25, 1.4


def seconds(run: Callable[[Tensor, Tensor, Tensor], Tensor], tensors: list[Tensor]) -> float:
    """Time of one pass forward and backward."""
    for tensor in tensors:
        tensor.grad = None
    started = time.perf_counter()
    run(*tensors).sum().backward()
    return time.perf_counter() - started


def ratio(ours: Callable[..., Tensor], theirs: Callable[..., Tensor]) -> tuple[float, float, float]:
    """Median milliseconds of ours and of torch's, and their ratio."""
    torch.manual_seed(0)
    tensors = [torch.randn(1, N_HEADS, N_TOKENS, D_HEAD, requires_grad=True) for _ in range(3)]
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(ROUNDS + 2):
        for run, found in zip((ours, theirs), times, strict=True):
            spent = seconds(run, tensors)
            if turn > 1:
                found.append(spent)
    own, torchs = (statistics.median(found) * 1e3 for found in times)
    return own, torchs, own / torchs


def main() -> None:
    """Measure both cases and write the table."""
    torch.set_num_threads(1)
    scale, visible = D_HEAD**-0.5, causal_mask(N_TOKENS)
    cases = {
        "unmasked": (
            lambda q, k, v: softmax_mix(q, k, v, scale),
            lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
        ),
        "causal": (
            lambda q, k, v: softmax_mix(q, k, v, scale, visible),
            lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        ),
    }
    lines = [
        "# Our own attention beside torch's kernel",
        "",
        f"Written by `benchmarks/own_attention.py`: {N_TOKENS} tokens, {N_HEADS} heads of {D_HEAD}, one thread,",
        f"forward and backward, medians of {ROUNDS} rounds in turn. The bar is {BAR}.",
        "",
        "| mask | ours, ms | torch, ms | ratio |",
        "|---|---|---|---|",
    ]
    for name, (ours, theirs) in cases.items():
        own, torchs, found = ratio(ours, theirs)
        lines.append(f"| {name} | {own:.1f} | {torchs:.1f} | {found:.2f} |")
        print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
