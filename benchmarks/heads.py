"""All heads of a model silenced one by one: what it costs beside single-row forward passes.

Run: .venv/bin/python benchmarks/heads.py   (writes benchmarks/HEADS.md)

Zero ablation of 12 x 12 heads, d 768, 64 tokens, the target at one position, one thread. The bar is a ratio within one
run: CPU time of the whole question, recorded pass and proof included, over 144 times that of a forward pass of a single
row by the model's own code on sdpa. Single rows are timed before and behind each question, and medians are compared:
of times so different in length the shortest would favour the short ones, which catch a machine's quiet moments.
Parameters are random: the time does not depend on what a model learned.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pandas as pd
import torch
import transformers as t

from attnprobe import load
from attnprobe.heads.rows import z_put
from attnprobe.models.evaluator import Meter, targets
from attnprobe.models.model import Model
from attnprobe.models.resumption import resumed
from attnprobe.models.rows import Row
from benchmarks.compare import machine, table

RESULTS = Path(__file__).parent / "HEADS.md"
N_TOKENS, BAR = 64, 0.35
# Single rows timed before a question, and as many behind it.
AROUND = 12
_SIZE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}

MODELS: dict[str, Callable[[], Any]] = {
    "BERT (base), classifier": lambda: t.BertForSequenceClassification(t.BertConfig(num_labels=2)),
    "GPT-2, 50,257 words": lambda: t.GPT2LMHeadModel(t.GPT2Config()),
    "Llama, 4 of 12 heads for keys, 32,000 words": lambda: t.LlamaForCausalLM(
        t.LlamaConfig(**_SIZE, num_key_value_heads=4, intermediate_size=2048, max_position_embeddings=128)
    ),
}


def cpu_time(run: Callable[[], Any]) -> float:
    """CPU time of one run, in seconds."""
    started = time.process_time()
    run()
    return time.process_time() - started


def rows_of(model: Model, example: Any) -> list[Row]:
    """A row a head, in which it gives 0."""
    stack, nothing = model.stacks[0], torch.zeros(1)
    places = [(layer, head) for layer, n in enumerate(stack.n_heads) for head in range(n)]
    return [Row(example, edits=(z_put(stack, layer, head, nothing),)) for layer, head in places]


def measure(name: str, repetitions: int) -> dict[str, Any]:
    """One model: the ratio, and how far the answers are from those of plain rows, one at a time."""
    torch.manual_seed(0)
    module = MODELS[name]().eval()
    module.set_attn_implementation("sdpa")
    model = load(module)
    example = model.example(torch.randint(1000, 20000, (N_TOKENS,)))
    target, used = model.resolve(example), ""
    rows = rows_of(model, example)

    def single() -> None:
        with torch.no_grad():
            module(**example.inputs)

    def question() -> torch.Tensor:
        nonlocal used
        with resumed(model, example, target) as shortcut:
            answers = targets(model, rows, target)
        used = shortcut.used
        return answers

    single()
    question()
    rows_alone, questions = [], []
    for _ in range(repetitions):
        rows_alone += [cpu_time(single) for _ in range(AROUND)]
        questions.append(cpu_time(question))
        rows_alone += [cpu_time(single) for _ in range(AROUND)]
    row, seconds = median(rows_alone), median(questions)
    with Meter() as meter:
        found = question()
    some = range(0, len(rows), 5)
    plain = torch.stack([targets(model, [rows[number]], target)[0] for number in some])
    off = float((found[list(some)] - plain).abs().max() / plain.abs().max())
    return {
        "model": name,
        "ms a single row": round(1000 * row),
        "s all heads": round(seconds, 2),
        "of 144 single rows": round(seconds / (len(rows) * row), 3),
        "passes counted": meter.forward,
        "largest error": f"{off:.0e}",
        "spared": used,
    }


def main() -> None:
    """Measure and write HEADS.md."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    measured = pd.DataFrame([measure(name, given.repetitions) for name in MODELS])
    text = "\n".join(
        [
            "# What silencing every head costs\n",
            "Made by `.venv/bin/python benchmarks/heads.py`.\n",
            f"Machine: {machine()}; one thread. 12 x 12 heads, d 768, {N_TOKENS} tokens, float32, the target at one "
            f"position. The bar is {BAR} of 144 single-row passes, medians of CPU times within one run; the error is "
            "the largest difference to plain rows run one at a time (every fifth), of the largest answer.\n",
            table(measured),
            "",
            "Rows begin at the layer that they edit: what lies below was recorded once, and in the edited layer the "
            "queries, keys and values too. Behind the last attention only the read position runs. Recording and proof "
            "take about three of the 144 rows.\n",
        ]
    )
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
