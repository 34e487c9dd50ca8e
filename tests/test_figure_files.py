"""Every figure function gives PNG, SVG and PDF from a script, always the same bytes, with its text as text."""

import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnprobe import head_card, load, swap
from attnprobe.alignment_figure import alignment_picture
from attnprobe.attributing import attribute
from attnprobe.benchmark import benchmark_planted
from attnprobe.errors import InputError
from attnprobe.experiments.outcome import Outcome, values_frame
from attnprobe.figure_files import figure_of, lettered, save
from attnprobe.figures import attention_map, token_scores
from attnprobe.head_profile import HeadProfile, Told
from attnprobe.heads.edges import edge_attribution
from attnprobe.heads.information_flow import information_flow
from attnprobe.heads.patching import patch_heads
from attnprobe.models.declaration import stored_head
from attnprobe.models.declaration.seeds import CLAIMS
from attnprobe.models.planted import planted
from attnprobe.pruning import pruning_curve
from attnprobe.sufficient import sufficient_heads
from tests import tiny
from tests.architecture.source import PACKAGE
from tests.heads.made import capture_of, random_weights
from tests.heads.made_pairs import linear, tiny_pair

TOKENS = ["<script>alert(1)</script>", "<!--", "&", "$$"]
MODULES = sorted(path.stem for path in PACKAGE.glob("*figure*.py") if path.stem != "figure_files")


def figure_functions() -> dict[str, Callable[..., Any]]:
    """Every public function of a figure module that gives a figure or axes, by module and name."""
    found = {}
    for name in MODULES:
        module = importlib.import_module(f"attnprobe.{name}")
        for function_name, function in inspect.getmembers(module, inspect.isfunction):
            gives = str(inspect.signature(function).return_annotation)
            if function.__module__ == module.__name__ and function_name[0] != "_" and re.search("Axes|Figure", gives):
                found[f"{name}.{function_name}"] = function
    return found


FUNCTIONS = figure_functions()


def comparison_table(name):
    """A small table with the columns that the figures of a comparison read."""
    methods = ("raw_attention", "leave_one_out")
    if name == "agreement":
        rows = [("kendall_tau", "signed", *methods, 0.65, 0.37, 0.88)]
        return pd.DataFrame(rows, columns=["metric", "direction", "method_a", "method_b", "mean", "low", "high"])
    if name == "faithfulness":
        rows = [("comprehensiveness", "higher", m, 0.2, 0.1, 0.4, 0.1, 0.3) for m in methods]
        columns = ["metric", "better", "method", "mean", "low", "high", "random_low", "random_high"]
        return pd.DataFrame(rows, columns=columns)
    rows = [(m, "removed", s, 0.9 - s / 2, 0.1, 0.8) for m in ("random orders", *methods) for s in (0.0, 1.0)]
    return pd.DataFrame(rows, columns=["method", "kind", "share", "mean", "low", "high"])


def experiment(*measures, variants=("",), layers=("0", "1"), heads=("0", "1")):
    """An experiment's outcome of 8 examples."""
    rows = [
        (i, "encoder", "self", layer, head, variant, measure, 0.1 * i + 0.01 * n)
        for i in range(8)
        for layer in layers
        for head in heads
        for variant in variants
        for n, measure in enumerate(measures)
    ]
    return Outcome("trial", "model", ("logit of a",), values_frame(rows), dict.fromkeys(measures, ""))


@cache
def head_profile():
    places = [("encoder", "self", layer, head) for layer in range(3) for head in range(4)]
    heads = pd.DataFrame(places, columns=["stack", "kind", "layer", "head"])
    draw = np.random.default_rng(0)
    facts = {name: Told("score", "f", "s", "d.", name, 0, None, "number") for name in "ab"}
    return HeadProfile("model", heads, {name: draw.random((2, 12)) for name in "ab"}, facts, ("", ""))


@cache
def bert():
    model = load(tiny.build("bert"))
    return model, tiny.example(model, "bert")


@cache
def swapped():
    model, example = bert()
    return swap(model, "hard", [example], methods=["rollout"], progress=False)


@cache
def planted_cells():
    return benchmark_planted(["P1"], ["raw_attention", "leave_one_out"])


@cache
def card():
    model, example = bert()
    return head_card(model, "1.1", example, k=2)


@cache
def edges():
    return edge_attribution(*tiny_pair("gpt2"))


@cache
def flow():
    model, pair = tiny_pair("gpt2")
    return information_flow(model, pair.clean)


def measured(model, example, target):
    resolved = model.resolve(example, target)
    return lambda logits, example: resolved(logits)


@cache
def sufficient():
    made = planted("P11")
    measure = measured(made.model, made.example, made.target)
    return sufficient_heads(made.model, [made.example], measure=measure, progress=False)


@cache
def curve():
    made = planted("P11")
    measure = measured(made.model, made.example, made.target)
    heads = ["0.0", "0.1"]
    return pruning_curve(made.model, [made.example], {"mine": heads}, measure=measure, progress=False)


def runs():
    return pd.DataFrame([{"runs": "seeds", **dict.fromkeys(CLAIMS, value)} for value in (0.2, 0.7)])


MAPS = {"raw_attention": torch.arange(16.0).reshape(4, 4), "leave_one_out": torch.arange(16.0).reshape(4, 4) - 8}
MASKS = {"causal": torch.ones(4, 4).tril().bool()}
PICTURES = (torch.arange(128.0) / 128).reshape(2, 1, 8, 8)

# What each function is called with.
CALLS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "alignment_figure.alignment_picture": lambda f: f(torch.eye(4), TOKENS, TOKENS, title="$$"),
    "benchmark_figure.benchmark_picture": lambda f: f(planted_cells()),
    "declaration_figure.attribution_panels": lambda f: f(MAPS, TOKENS, {"raw_attention": False, "leave_one_out": True}),
    "declaration_figure.declaration_picture": lambda f: f(stored_head()),
    "declaration_figure.runs_picture": lambda f: f(runs()),
    "experiment_figures.cascade_lines": lambda f: f(experiment("spearman", variants=("raw_attention",), heads=("0",))),
    "experiment_figures.counterfactual_distribution": lambda f: f(experiment("jsd")),
    "experiment_figures.identifiability_heatmap": lambda f: f(experiment("free_keeping_sum")),
    "experiment_figures.permuted_scatter": lambda f: f(experiment("median_change", "max_weight")),
    "experiment_figures.removal_boxes": lambda f: f(experiment("removed", variants=("attention",))),
    "experiment_figures.right_bars": lambda f: f(experiment("right", variants=("a", "b")).to_frame()),
    "experiment_figures.top_weight_scatter": lambda f: f(experiment("js_difference", "weight_difference")),
    "experiment_figures.twins_curve": lambda f: f(
        experiment("jsd", "total_variation", variants=("0.1", "another seed"), layers=("0",), heads=("0",))
    ),
    "experiment_figures.uniform_heatmap": lambda f: f(experiment("total_variation")),
    "figures.agreement_heatmap": lambda f: f(comparison_table("agreement")),
    "figures.attention_map": lambda f: f(torch.rand(4, 4), TOKENS),
    "figures.faithfulness_bars": lambda f: f(comparison_table("faithfulness")),
    "figures.removal_curves": lambda f: f(comparison_table("curves")),
    "figures.token_scores": lambda f: f(attribute(*bert(), "raw_attention")),
    "head_card_figure.card_figure": lambda f: f(card()),
    "head_cluster_figure.cluster_map": lambda f: f(head_profile()),
    "head_figures.head_maps": lambda f: f(head_profile()),
    "head_figures.top_heads": lambda f: f(head_profile(), "a", capture_of(random_weights(3, 4, 4, 4), TOKENS), k=2),
    "mask_figures.map_gallery": lambda f: f(["scaled_dot"], *torch.randn(2, 4, 8), tokens=TOKENS),
    "mask_figures.mask_and_reach": lambda f: f(MASKS["causal"], tokens=TOKENS),
    "mask_figures.mask_gallery": lambda f: f(MASKS),
    "mask_figures.mask_picture": lambda f: f(MASKS["causal"], tokens=TOKENS),
    "mask_figures.reach_picture": lambda f: f(MASKS["causal"], tokens=TOKENS),
    "patch_figure.patch_gallery": lambda f: f(PICTURES, {"layer 0": torch.rand(2, 4, 4)}, names=TOKENS[:2]),
    "patch_figure.patch_panel": lambda f: f(torch.rand(4, 4), Figure().add_subplot(), highest=1.0),
    "patch_figure.picture_panel": lambda f: f(PICTURES[0], Figure().add_subplot(), grid=(4, 4), marked=2),
    "patching_figures.edge_matrix": lambda f: f(edges(), n=4),
    "patching_figures.flow_curves": lambda f: f(flow()),
    "patching_figures.patching_map": lambda f: f(patch_heads(*linear())),
    "pruning_figure.pruning_lines": lambda f: f(curve()),
    "pruning_figure.sufficient_lines": lambda f: f(sufficient()),
    "swap_figure.swap_heatmap": lambda f: f(swapped(), measure="kl"),
    "swap_figure.swap_panels": lambda f: f(swapped()),
}


def test_every_figure_function_is_tried():
    assert set(FUNCTIONS) == set(CALLS)


def drawn_anew(name):
    torch.manual_seed(0)
    return CALLS[name](FUNCTIONS[name])


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_figure_is_saved_in_three_formats_always_the_same(name, tmp_path):
    drawn = drawn_anew(name)
    assert isinstance(drawn, Axes | Figure | list | tuple) and figure_of(drawn).axes
    paths = save(drawn, *(tmp_path / f"one.{kind}" for kind in ("png", "svg", "pdf")), dpi=50)
    begins = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}
    for path in paths:
        data = path.read_bytes()
        assert data.startswith(begins[path.suffix[1:]]) and len(data) > 500
    (again,) = save(drawn_anew(name), tmp_path / "two.svg", dpi=50)  # whatever else is asked for
    assert again.read_bytes() == paths[1].read_bytes()


def test_text_of_an_svg_is_text_and_tokens_are_escaped(tmp_path):
    (path,) = save(attention_map(torch.rand(4, 4), TOKENS), tmp_path / "map.svg")
    text = path.read_text("utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text and "<script" not in text
    assert "&lt;!--" in text and "$$" in text and "token looked at" in text
    assert "<dc:date>" not in text


def test_another_run_writes_the_same_bytes(tmp_path):
    script = (
        "import torch, sys\n"
        "from attnprobe.figures import attention_map\n"
        "from attnprobe.figure_files import save\n"
        "save(attention_map(torch.eye(3), list('abc')), *sys.argv[1:])\n"
    )
    there, here = ([tmp_path / f"{run}.{kind}" for kind in ("png", "svg", "pdf")] for run in ("there", "here"))
    subprocess.run([sys.executable, "-c", script, *map(str, there)], check=True, cwd=PACKAGE.parent)
    save(attention_map(torch.eye(3), list("abc")), *here)
    assert [path.read_bytes() for path in there] == [path.read_bytes() for path in here]


def test_letters_of_other_writings_come_from_a_font_that_has_them(tmp_path):
    tokens = ["中文", "مرحبا", "😀", "film"]
    frame = pd.DataFrame({"method": "leave_one_out", "signed": True, "token_index": range(4), "piece": tokens})
    said = token_scores(frame.assign(score=[1.0, -2.0, 3.0, 4.0]))
    for drawn in (attention_map(torch.rand(4, 4), tokens), alignment_picture(torch.eye(4), tokens, tokens), said):
        save(drawn, tmp_path / "drawn.png")  # a missing letter would be a warning, which is an error here
        (path,) = save(drawn, tmp_path / "drawn.svg")
        assert all(token in path.read_text("utf-8") for token in tokens)


def test_nothing_changes_for_letters_that_are_there():
    import matplotlib as mpl

    before = list(mpl.rcParams["font.family"])
    with lettered(["film", "é"]):
        assert mpl.rcParams["font.family"] == before


def test_folders_are_made_and_what_cannot_be_saved_is_told(tmp_path):
    axes = attention_map(torch.eye(3), list("abc"))
    assert save(axes, tmp_path / "new" / "map.PNG") == [tmp_path / "new" / "map.PNG"]
    with pytest.raises(InputError, match=r"saved as \.png, \.svg or \.pdf; did you mean 'png'"):
        save(axes, tmp_path / "map.pngg")
    with pytest.raises(InputError, match="at least one path"):
        save(axes)
    with pytest.raises(InputError, match="of 2 figures"):
        save([axes, attention_map(torch.eye(3), list("abc"))], tmp_path / "map.png")
    with pytest.raises(InputError, match="int of 0 figures"):
        save(3, tmp_path / "map.png")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        save(axes, tmp_path / "file" / "map.png")


def test_a_png_has_200_dots_an_inch(tmp_path):
    (fine,) = save(attention_map(torch.eye(3), list("abc")), tmp_path / "fine.png")
    width = int.from_bytes(fine.read_bytes()[16:20], "big")
    (coarse,) = save(attention_map(torch.eye(3), list("abc")), tmp_path / "coarse.png", dpi=100)
    assert width == pytest.approx(2 * int.from_bytes(coarse.read_bytes()[16:20], "big"), abs=2)


def test_saving_that_breaks_off_leaves_the_old_figure(tmp_path, monkeypatch):
    figure, place = Figure(), tmp_path / "figure.svg"
    place.write_text("old", "utf-8")

    def breaks(path, **_):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure, "savefig", breaks)
    with pytest.raises(InputError, match="No space left"):
        save(figure, place)
    assert place.read_bytes() == b"old" and list(tmp_path.iterdir()) == [place]
