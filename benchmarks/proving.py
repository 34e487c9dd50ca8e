"""What it costs that a capture proves itself: the checks of every site, as a share of the model's own pass.

Run: .venv/bin/python benchmarks/proving.py   (writes benchmarks/PROVING.md)

A model of the size of BERT-base and one of the size of the bundled model, on both kernels and by hand (MPNet), at
three lengths, one thread. The three passes (plain, recorded without checks, recorded with them) take turns, and the
median of the differences counts, so that a slow moment of the machine falls on all of them.
"""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification, MPNetConfig, MPNetForSequenceClassification

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnprobe import Keep, Row, load
from attnprobe.attention.seam import Tape
from attnprobe.models.capturing import summarize
from attnprobe.models.model import Model

RESULTS = Path(__file__).parent / "PROVING.md"
SIZES = {"12 layers, d 768": (12, 768, 12, 3072), "3 layers, d 128": (3, 128, 4, 512)}
LENGTHS = (32, 128, 512)
ROUTES = ("eager", "sdpa", "by hand")
BAR = 0.10


def model_of(size: tuple[int, int, int, int], route: str) -> Model:
    """A random model; the time does not depend on what it learned."""
    n_layers, d_model, n_heads, d_mlp = size
    settings: dict[str, Any] = {
        "num_hidden_layers": n_layers,
        "hidden_size": d_model,
        "num_attention_heads": n_heads,
        "intermediate_size": d_mlp,
        "vocab_size": 1000,
        "max_position_embeddings": 1024,
    }
    torch.manual_seed(0)
    if route == "by hand":
        return load(MPNetForSequenceClassification(MPNetConfig(**settings)).eval())
    module = BertForSequenceClassification(BertConfig(**settings)).eval()
    module.set_attn_implementation(route)
    return load(module)


def shares(model: Model, n_tokens: int, repetitions: int) -> tuple[float, float, float]:
    """Seconds of the plain pass; recording and checking as shares of it."""
    example = model.example([5] * n_tokens)

    def recorded(check: bool) -> Callable[[], Any]:
        def run() -> None:
            tape = Tape(keep=Keep(), check=check, n_rows=1)
            model.forward([Row(example)], tape)
            summarize(tape.proofs)

        return run

    passes = (lambda: model.forward([Row(example)]), recorded(False), recorded(True))
    times: list[list[float]] = [[], [], []]
    with torch.no_grad():
        for repetition in range(repetitions + 1):
            for index, run in enumerate(passes):
                started = time.perf_counter()
                run()
                if repetition:
                    times[index].append(time.perf_counter() - started)
    plain, without, with_checks = times
    base = statistics.median(plain)
    recording = statistics.median(b - a for a, b in zip(plain, without, strict=True)) / base
    checking = statistics.median(c - b for b, c in zip(without, with_checks, strict=True)) / base
    return base, recording, checking


def main() -> None:
    """Measure every cell and write the table."""
    torch.set_num_threads(1)
    lines = [
        "# What proving costs",
        "",
        "Written by `benchmarks/proving.py`. Shares of the model's own pass, one thread, one input. Recording keeps",
        f"the weights of every layer; checking is bound to stay below {BAR:.0%}.",
        "",
        "| model | route | tokens | pass, ms | recording | checking |",
        "|---|---|---|---|---|---|",
    ]
    for size, numbers in SIZES.items():
        for route in ROUTES:
            model = model_of(numbers, route)
            for n_tokens in LENGTHS:
                base, recording, checking = shares(model, n_tokens, 15 if numbers[1] > 500 else 60)
                lines.append(
                    f"| {size} | {route} | {n_tokens} | {base * 1e3:.1f} | {recording:+.1%} | {checking:+.1%} |"
                )
                print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
