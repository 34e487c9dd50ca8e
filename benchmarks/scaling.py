"""What full attention costs and what its cheaper kin cost: time and memory against the number of tokens.

Run: .venv/bin/python benchmarks/scaling.py   (writes benchmarks/SCALING.md and benchmarks/scaling.png)

One head of width 64, float32, forward only, one thread. Each mechanism and length runs in a process of its own, twice,
the second time in the opposite order. Time: the shortest of the runs, in CPU seconds of the process, so that other
work on the machine counts little. Memory: by how much the peak resident size of the process grew during the first run
(Linux), inputs not counted. An exponent p is the slope of ln(time) over ln(n) from 1024 tokens on: 1 for n, about 1.13
for n ln n, 2 for n². Linear attention has to stay below 1.15; if it does not, the exit code is 1.
"""

import platform
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnprobe.attention.approximation import error_to_full
from attnprobe.attention.mechanisms import Mechanism
from benchmarks.covering.forking import forked

RESULTS, PICTURE = (Path(__file__).parent / name for name in ("SCALING.md", "scaling.png"))
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
D_HEAD, FIT_FROM, ERROR_AT = 64, 1024, 1024
BAR = 1.15
LONGEST, MOST_RUNS = 0.4, 40  # CPU seconds and runs that a process repeats for

MECHANISMS: dict[str, tuple[str, dict[str, Any]]] = {
    "full": ("scaled_dot", {}),
    "online": ("online", {}),
    "memory_compressed": ("memory_compressed", {"factor": 4}),
    "compressive": ("compressive", {"factor": 4, "n_recent": 256}),
    "lsh": ("lsh", {"n_buckets": 16, "n_rounds": 2, "chunk": 32}),
    "favor": ("favor", {"n_features": 256}),
    "linformer": ("linformer", {"n_slots": 64}),
    "nystrom": ("nystrom", {"n_landmarks": 64}),
    "linear, causal": ("linear", {"causal": True}),
    "linear": ("linear", {}),
}


def inputs(label: str, n_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Gaussian query, key and value; hashed attention shares the first two, of length sqrt(d_head)."""
    draw = torch.randn(3, n_tokens, D_HEAD, generator=torch.Generator().manual_seed(0))
    query, key, value = draw.unbind(0)
    if label == "lsh":
        query = key = query / query.norm(dim=-1, keepdim=True) * D_HEAD**0.5
    return query, key, value


def words(n_tokens: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens of 64 words in random order, each with some noise: attention is sharp, on the tokens of one's own word."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(64, (n_tokens,), generator=generator)
    noise = 0.3 * torch.randn(2, n_tokens, D_HEAD, generator=generator)
    query, value = torch.randn(2, 64, D_HEAD, generator=generator)[:, ids] + noise
    query = query / query.norm(dim=-1, keepdim=True) * D_HEAD**0.5
    return query, query, value


def error(label: str, tensors: tuple[Tensor, Tensor, Tensor]) -> str:
    """Mean |z - z_full| as a share of the mean |v|."""
    name, options = MECHANISMS[label]
    return f"{error_to_full(name, *tensors, **options)['z_mean'] / tensors[2].abs().mean().item():.3f}"


def measured(item: str) -> tuple[float, float]:
    """Seconds and MiB of one mechanism at one length; called in a process of its own."""
    label, n_tokens = item.rsplit(" ", 1)
    name, options = MECHANISMS[label]
    mechanism = Mechanism.of(name, **options)
    with torch.inference_mode():
        mechanism.z(*inputs(label, 128))  # what is loaded at the first use is not counted
        tensors = inputs(label, int(n_tokens))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        mechanism.z(*tensors)
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        times: list[float] = []
        while len(times) < 3 or (sum(times) < LONGEST and len(times) < MOST_RUNS):
            started = time.process_time()
            mechanism.z(*tensors)
            times.append(time.process_time() - started)
    return min(times), grown / 1024


def sweep() -> pd.DataFrame:
    """One row a mechanism and length: the shorter time and the smaller memory of two processes."""
    items = [f"{label} {n_tokens}" for label in MECHANISMS for n_tokens in LENGTHS]
    rows = []
    for order in (items, items[::-1]):
        for item, result, why in forked(measured, order, seconds=60):
            if result is None:
                print(f"{item}: {why}", file=sys.stderr)
                continue
            label, n_tokens = item.rsplit(" ", 1)
            rows.append({"mechanism": label, "n": int(n_tokens), "seconds": result[0], "MiB": result[1]})
    return pd.DataFrame(rows).groupby(["mechanism", "n"], as_index=False, sort=False).min()


def exponent(table: pd.DataFrame, label: str, what: str) -> float:
    """The slope of ln(what) over ln(n) from FIT_FROM tokens on."""
    rows = table[(table["mechanism"] == label) & (table["n"] >= FIT_FROM) & (table[what] > 0)]
    return float(np.polyfit(np.log(rows["n"]), np.log(rows[what]), 1)[0])


def summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row a mechanism: what it says it costs, exponents, the longest text, and how far it is from softmax."""
    rows = []
    for label, (name, options) in MECHANISMS.items():
        longest = table[table["mechanism"] == label].iloc[-1]
        rows.append(
            {
                "mechanism": label,
                "settings": ", ".join(f"{key} {value}" for key, value in options.items()) or "–",
                "cost as said": Mechanism.of(name).entry.facts["cost"],
                "time: p": f"{exponent(table, label, 'seconds'):.2f}",
                "memory: p": f"{exponent(table, label, 'MiB'):.2f}",
                f"ms at {longest['n']}": f"{1000 * longest['seconds']:.1f}",
                f"MiB at {longest['n']}": f"{longest['MiB']:.1f}",
                "error, words": error(label, words(ERROR_AT)),
                "error, noise": error(label, inputs(label, ERROR_AT)),
            }
        )
    return pd.DataFrame(rows)


def markdown(table: pd.DataFrame) -> str:
    """A table as people read it in a text file."""

    def line(cells: Sequence[Any]) -> str:
        return "| " + " | ".join(str(cell) for cell in cells) + " |"

    return "\n".join([line(table.columns), "|---" * len(table.columns) + "|", *map(line, table.to_numpy())])


def by_length(table: pd.DataFrame, what: str, digits: int) -> pd.DataFrame:
    """A mechanism a row, a length a column."""
    wide = table.pivot(index="mechanism", columns="n", values=what).loc[list(MECHANISMS)]
    return wide.map(lambda value: f"{value:.{digits}f}").reset_index()


def draw(table: pd.DataFrame) -> None:
    """Time and memory over the number of tokens, both axes logarithmic; grey lines: n and n²."""
    sns.set_theme(style="ticks", context="notebook")
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    for axis, (what, label) in zip(axes, (("seconds", "CPU time, s"), ("MiB", "peak memory, MiB")), strict=True):
        shown = table[table[what] > (0.05 if what == "MiB" else 0)]
        sns.lineplot(
            shown, x="n", y=what, hue="mechanism", style="mechanism", hue_order=MECHANISMS, style_order=MECHANISMS,
            markers=True, dashes=False, palette="husl", legend=what == "MiB", ax=axis,
        )  # fmt: skip
        axis.set(xscale="log", yscale="log", xlabel="tokens n", ylabel=label)
        axis.set_xticks(LENGTHS, [str(n) for n in LENGTHS])
        axis.minorticks_off()
        bottom, top = axis.get_ylim()
        ends = np.array([LENGTHS[0], LENGTHS[-1]])
        for power, name in ((1, "n"), (2, "n²")):
            guide = bottom * (ends / ends[0]) ** power
            axis.plot(ends, guide, color="0.6", linestyle=":", zorder=0)
            axis.annotate(
                name, (ends[1], guide[1]), xytext=(4, 0), textcoords="offset points", color="0.4", va="center"
            )
        axis.set_ylim(bottom, max(top, 1.5 * guide[1]))
    sns.move_legend(axes[1], "upper left", bbox_to_anchor=(1.08, 1), frameon=False, title=None)
    sns.despine(figure)
    figure.savefig(PICTURE, dpi=150)
    plt.close(figure)


def main() -> int:
    """Measure, write the page and the picture; 1 where linear attention is not linear."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    table = sweep()
    told = summary(table)
    slope = exponent(table, "linear", "seconds")
    page = f"""# Time and memory against length

Made by `.venv/bin/python benchmarks/scaling.py` in {time.perf_counter() - started:.0f} s.

Machine: {platform.system()} {platform.machine()}, one thread; torch {torch.__version__}, python \
{platform.python_version()}. One head, d_head {D_HEAD}, float32, forward; CPU time, the shortest run of two processes.

![Time and memory of the mechanisms against the number of tokens](scaling.png)

p: the slope of ln(time) over ln(n) from {FIT_FROM} tokens on; 1 for n, about 1.13 for n ln n, 2 for n². Error: mean
abs(z − z of softmax attention) as a share of the mean abs(v) at {ERROR_AT} tokens, for *words* (64 of them in random
order, with noise: attention is sharp, on the tokens of the same word) and for *noise* (Gaussian tokens: attention is
nearly flat and z small, so whatever is flat is near). Hashed attention leaves out the token itself.

{markdown(told)}

Linear attention: p = {slope:.2f}, the bar is {BAR}: {"held" if slope < BAR else "NOT HELD"}.

## Time, ms

{markdown(by_length(table.assign(ms=1000 * table["seconds"]), "ms", 2))}

## Peak memory beyond the inputs, MiB

Below about 1 MiB the allocator's own steps are what is seen.

{markdown(by_length(table, "MiB", 1))}
"""
    RESULTS.write_text(page, "utf-8")
    draw(table)
    print(told.to_string(index=False))
    print(f"\nlinear: p = {slope:.2f}, to stay below {BAR}; {RESULTS.name} and {PICTURE.name} are written")
    return int(slope >= BAR)


if __name__ == "__main__":
    sys.exit(main())
