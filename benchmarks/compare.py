"""Time and passes of compare(): 20 sentences x 10 methods on the bundled model; and the evaluator's two bars.

Run: .venv/bin/python benchmarks/compare.py   (writes benchmarks/RESULTS.md)

A pass is one forward pass of one row. The bars are ratios within one run, on one thread, at 64 tokens: the time of a
method's row or step over the time of a forward pass of a single row of the same model. Each is the best of several
repetitions; the single row is timed before and after, and the smaller time counts, which is the stricter one.
"""

import platform
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from captum.attr import FeatureAblation
from transformers import BertConfig, BertForSequenceClassification

from attnprobe import Row, attribute, compare, load
from attnprobe.cli.demo import TEXTS
from attnprobe.provenance import provenance

RESULTS = Path(__file__).parent / "RESULTS.md"
N_SENTENCES, N_TOKENS, N_STEPS = 20, 64, 50
SIZES = {
    "3 layers, d 128 (as the bundled model)": (3, 128, 4, 512),
    "6 layers, d 384 (MiniLM's size)": (6, 384, 12, 1536),
    "12 layers, d 768 (BERT-base's size)": (12, 768, 12, 3072),
}


def best(run: Callable[[], Any], repetitions: int) -> float:
    """The shortest of some runs, in seconds, after one that is not counted."""
    run()
    times = []
    for _ in range(repetitions):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return min(times)


def random_bert(n_layers: int, d_model: int, n_heads: int, d_mlp: int) -> Any:
    """A random BERT of a size; the time does not depend on what it learned."""
    config = BertConfig(
        hidden_size=d_model,
        num_hidden_layers=n_layers,
        num_attention_heads=n_heads,
        intermediate_size=d_mlp,
        vocab_size=6000,
        max_position_embeddings=128,
    )
    torch.manual_seed(0)
    return load(BertForSequenceClassification(config).eval())


def bars(size: tuple[int, int, int, int], repetitions: int) -> dict[str, float]:
    """Time of a row of leave-one-out and of a step of integrated gradients, over a single forward pass."""
    model = random_bert(*size)
    example = model.example(torch.randint(5, 6000, (N_TOKENS,), generator=torch.Generator().manual_seed(0)))
    target = model.resolve(example)

    def single() -> None:
        with torch.no_grad():
            model.forward([Row(example)])

    def captum_default() -> None:
        ids = example.inputs["input_ids"]
        ask = FeatureAblation(lambda given: target(model.module(given).logits))
        with torch.no_grad():
            ask.attribute(ids, baselines=0)

    steps = {"n_steps": N_STEPS, "max_steps": N_STEPS}
    before = best(single, 5 * repetitions)
    ablation = best(lambda: attribute(model, example, "leave_one_out", target), repetitions)
    by_captum = best(captum_default, repetitions)
    gradients = best(lambda: attribute(model, example, "integrated_gradients", target, **steps), repetitions)
    forward = min(before, best(single, 5 * repetitions))
    return {
        "forward pass, ms": 1000 * forward,
        "leave_one_out, a row": ablation / N_TOKENS / forward,
        "captum's default, a row": by_captum / N_TOKENS / forward,
        "integrated_gradients, a step": gradients / N_STEPS / forward,
    }


def sentences() -> list[str]:
    """20 sentences: the demo's, and pairs of them."""
    pairs = [f"{a} {b}" for a, b in zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True)]
    return [*TEXTS, *pairs, *TEXTS[:4]][:N_SENTENCES]


def main_job() -> tuple[pd.DataFrame, dict[str, Any]]:
    """compare() on the bundled model: costs by method, and the whole."""
    model = load("attnprobe/sentiment")
    compare(model, sentences()[:1], n_random=2, n_resamples=10, progress=False)
    with model_meter() as meter:
        started = time.perf_counter()
        comparison = compare(model, sentences(), progress=False)
        seconds = time.perf_counter() - started
    lengths = [study.example.n_tokens for study in comparison.studies]
    facts = {
        "wall time, s": round(seconds, 2),
        "forward passes": meter.forward,
        "backward passes": meter.backward,
        "rows that were known already": meter.reused,
        "tokens a text, mean": round(statistics.mean(lengths), 1),
    }
    return comparison.costs, facts


def model_meter() -> Any:
    """A meter of passes."""
    from attnprobe.models.evaluator import Meter

    return Meter()


def machine() -> str:
    """The machine, without its name."""
    cpu = next(
        (line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "unknown"
    )
    return f"{platform.system()} {platform.machine()}, {cpu}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def table(frame: pd.DataFrame) -> str:
    """A Markdown table."""
    head = "| " + " | ".join(map(str, frame.columns)) + " |\n|" + "---|" * len(frame.columns)
    rows = [
        "| " + " | ".join(f"{v:.2f}" if isinstance(v, float) else str(v) for v in row) + " |" for row in frame.values
    ]
    return "\n".join([head, *rows])


def main() -> None:
    """Measure and write RESULTS.md."""
    warnings.simplefilter("ignore")
    threads = torch.get_num_threads()
    costs, facts = main_job()
    torch.set_num_threads(1)
    ratios = {name: bars(size, 3 if size[0] == 12 else 7) for name, size in SIZES.items()}
    torch.set_num_threads(threads)
    costs["seconds"] = (1000 * costs.seconds).round(1)
    costs = costs.rename(columns={"seconds": "ms"})
    frame = pd.DataFrame(ratios).T.reset_index(names="model (random weights)")
    versions = ", ".join(
        f"{k} {v}" for k, v in provenance().items() if k in ("torch", "transformers", "captum", "python")
    )
    text = "\n".join(
        [
            "# Benchmark results\n",
            "Made by `.venv/bin/python benchmarks/compare.py`.\n",
            f"Machine: {machine()}; {threads} threads. {versions}.\n",
            f"## compare(): {N_SENTENCES} sentences x {len(costs)} methods, bundled model, 50 random orders a text\n",
            table(pd.DataFrame([facts])),
            "\nMean a text, by method. A row that another method had computed is not counted again.\n",
            table(costs),
            f"\n## Bars: {N_TOKENS} tokens, 1 thread, in forward passes of a single row\n",
            f"leave_one_out is to stay at or below 0.8 a row, integrated_gradients ({N_STEPS} steps, forward and "
            "backward) at or below 1.5 a step.\n",
            table(frame),
            "",
        ]
    )
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
