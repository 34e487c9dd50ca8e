"""How methods and numbers look, on the page and in the figures alike: names, order, shapes, colours, formats.

Hue means direction: blue argues for, orange against, grey has no direction. Each method has a shape and a
colour that never change; a close relative has its neighbour's colour and an open shape.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from attnprobe.wording import PROPER

FAMILIES = ("attention", "gradient", "ablation", "perturbation", "control")
FAMILY_WORDS = {
    "attention": "attention",
    "gradient": "gradient",
    "ablation": "removal",
    "perturbation": "removal in random orders",
    "control": "control: knows nothing",
}

# Poles of the diverging scale, the unsigned weight, and the two ends of an attention map (light theme).
PAPER, FOR, AGAINST, WEIGHT = "#ffffff", "#5aa5e6", "#f29a4a", "#a3a9b3"
MAP_FROM, MAP_TO = "#ffffff", "#20242c"
BAND, BAND_LINE, INK, MUTED = "#e3e0d9", "#8b8880", "#16191f", "#565c67"
# A share of the row at which colour is full; below it colour grows with the square root.
FULL_SHARE = 0.6

NARROW_SPACE = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Look:
    """A method as people see it. shape: a key of the page's glyphs; marker: the same in matplotlib."""

    label: str
    short: str
    shape: str
    marker: str
    light: str
    dark: str
    filled: bool = True


# Marks of the shapes in matplotlib, and the colours of close relatives, light and dark.
MARKERS = {
    **{"circle": "o", "diamond": "D", "up": "^", "square": "s", "down": "v"},
    **{"cross": "P", "hexagon": "h", "pentagon": "p", "star": "*"},
}
GREY, PURPLE, PLUM = ("#7c8089", "#e9e6f1"), ("#633b97", "#7a70f3"), ("#502347", "#c76181")
GREEN, OCHRE, TEAL = ("#002b00", "#78ef79"), ("#a87320", "#b29e30"), ("#196a5f", "#38b1e0")


def _drawn(label: str, short: str, shape: str, colours: tuple[str, str], filled: bool = True) -> Look:
    return Look(label, short, shape, MARKERS[shape], *colours, filled=filled)


LOOKS: Mapping[str, Look] = {
    "raw_attention": Look("Raw attention", "Attention", "circle", "o", "#7c8089", "#e9e6f1"),
    "rollout": Look("Rollout", "Rollout", "diamond", "D", "#633b97", "#7a70f3"),
    "value_zeroing": Look("Value zeroing", "Val. zeroing", "diamond", "D", "#633b97", "#7a70f3", filled=False),
    "attention_x_gradient": Look("Attention × gradient", "Attn × grad", "up", "^", "#502347", "#c76181"),
    "input_x_gradient": Look("Input × gradient", "Inp. × grad", "square", "s", "#002b00", "#78ef79", filled=False),
    "integrated_gradients": Look("Integrated gradients", "Int. grad.", "square", "s", "#002b00", "#78ef79"),
    "leave_one_out": Look("Leave-one-out", "Leave-1-out", "down", "v", "#a87320", "#b29e30"),
    "occlusion": Look("Occlusion", "Occlusion", "down", "v", "#a87320", "#b29e30", filled=False),
    "shapley_sampling": Look("Shapley sampling", "Shapley", "cross", "P", "#196a5f", "#38b1e0"),
    "value_norms": Look("Value norms", "Val. norms", "hexagon", "h", "#7c8089", "#e9e6f1", filled=False),
    "chefer_2021b": Look("Chefer 2021b", "Chefer b", "up", "^", "#502347", "#c76181", filled=False),
    "attn_lrp": Look("AttnLRP", "AttnLRP", "pentagon", "p", "#002b00", "#78ef79", filled=False),
    "attention_flow": _drawn("Attention flow", "Attn flow", "hexagon", PURPLE),
    "value_norms_residual": _drawn("Value norms residual", "Val. norms r", "hexagon", GREY),
    "effective_attention": _drawn("Effective attention", "Effective", "square", GREY, False),
    "globenc": _drawn("GlobEnc", "GlobEnc", "pentagon", PURPLE, False),
    "alti": _drawn("ALTI", "ALTI", "square", PURPLE, False),
    "decompx": _drawn("DecompX", "DecompX", "cross", PURPLE),
    "grad_sam": _drawn("Grad-SAM", "Grad-SAM", "down", PLUM),
    "attcat": _drawn("AttCAT", "AttCAT", "hexagon", PLUM),
    "attention_integrated_gradients": _drawn("Attention integrated gradients", "Attn int. gr", "square", PLUM),
    "chefer_2021a": _drawn("Chefer 2021a", "Chefer a", "pentagon", PLUM, False),
    "cp_lrp": _drawn("CP-LRP", "CP-LRP", "pentagon", GREEN),
    "saliency": _drawn("Saliency", "Saliency", "diamond", GREEN, False),
    "smooth_grad": _drawn("SmoothGrad", "SmoothGrad", "diamond", GREEN),
    "gradient_shap": _drawn("GradientSHAP", "GradientSHAP", "hexagon", GREEN),
    "deep_lift": _drawn("DeepLIFT", "DeepLIFT", "up", GREEN, False),
    "layer_conductance": _drawn("Layer conductance", "Conductance", "circle", GREEN, False),
    "knock_out": _drawn("Knock out", "Knock out", "diamond", OCHRE),
    "atman": _drawn("AtMan", "AtMan", "hexagon", OCHRE, False),
    "lime": _drawn("LIME", "LIME", "circle", TEAL),
    "kernel_shap": _drawn("KernelSHAP", "KernelSHAP", "diamond", TEAL),
    "shapley_exact": _drawn("Shapley values, exact", "Shapley ex.", "cross", TEAL, False),
    "owen": _drawn("Owen values", "Owen", "square", TEAL, False),
    "rise": _drawn("RISE", "RISE", "hexagon", TEAL),
    "sparse_surrogate": _drawn("Sparse surrogate", "Surrogate", "pentagon", TEAL, False),
    "random_scores": Look("Random scores", "Random", "circle", "o", "#565c67", "#a8afbb", filled=False),
}
# Which six are shown where more would be too many to tell apart.
MAIN = (
    "raw_attention",
    "rollout",
    "attention_x_gradient",
    "integrated_gradients",
    "leave_one_out",
    "shapley_sampling",
    "value_zeroing",
    "input_x_gradient",
    "occlusion",
)
AT_MOST = 6


def look(method: str) -> Look:
    """How a method looks; one that nobody drew a shape for is a star under its own name.

    >>> look("leave_one_out").label, look("my_new_method").label, look("attcat").label
    ('Leave-one-out', 'My new method', 'AttCAT')
    """
    words = method.replace("_x_", " × ").replace("_", " ").strip() or method
    label = PROPER.get(method) or words[:1].upper() + words[1:]
    return LOOKS.get(method) or Look(
        label, label if len(label) <= 12 else label[:11] + "…", "star", "*", INK, "#eef0f4"
    )


def literal(text: str) -> str:
    """A text for a figure, with the sign that would begin a formula there as it is.

    >>> print(literal("$5 or $6"))
    \\$5 or \\$6
    """
    return text.replace("$", r"\$")


def inline(method: str) -> str:
    """A method's label within a sentence: small, unless it is a proper name.

    >>> inline("raw_attention"), inline("attn_lrp")
    ('raw attention', 'AttnLRP')
    """
    return PROPER.get(method) or look(method).label.lower()


def in_order(methods: Iterable[str], families: Mapping[str, str]) -> list[str]:
    """Methods by family (attention, gradient, ablation, perturbation, control), the known ones in their usual order."""
    usual = list(LOOKS)
    given = list(dict.fromkeys(methods))

    def place(name: str) -> tuple[int, int, int]:
        family = families.get(name, "")
        at = FAMILIES.index(family) if family in FAMILIES else len(FAMILIES) - 1
        return at, usual.index(name) if name in usual else len(usual), given.index(name)

    return sorted(given, key=place)


def main_six(methods: Iterable[str]) -> list[str]:
    """At most six of the methods, the usual ones first, in the order they are given in."""
    given = list(methods)
    chosen = [m for m in MAIN if m in given] + [m for m in given if m not in MAIN]
    return [m for m in given if m in chosen[:AT_MOST]]


def signed(value: float | int, digits: int) -> str:
    """A number with its sign, a true minus; zero is unsigned; NaN is a dash.

    >>> signed(0.304, 2), signed(-0.304, 2), signed(-0.001, 2)
    ('+0.30', '−0.30', '0.00')
    """
    if not math.isfinite(value):
        return "–"
    text = f"{abs(value):.{digits}f}"
    return text if float(text) == 0 else ("+" if value > 0 else MINUS) + text


def number(value: float | int, digits: int) -> str:
    """A number that has no direction, with a true minus where it is below 0; zero has none.

    >>> number(-1.25, 1), number(-0.001, 2), number(float("nan"), 1)
    ('−1.2', '0.00', '–')
    """
    if not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", MINUS)


def percent(share: float | int, digits: int = 1) -> str:
    """A share of 1 in percent, with a narrow space.

    >>> percent(0.1234).replace(NARROW_SPACE, "_")
    '12.3_%'
    """
    return number(100 * share, digits) + NARROW_SPACE + "%" if math.isfinite(share) else "–"


def interval(low: float | int, high: float | int, digits: int = 2) -> str:
    """An interval of signed numbers; empty where there is none.

    >>> interval(-0.2, 0.58), interval(float("nan"), 1.0)
    ('[−0.20, +0.58]', '')
    """
    return f"[{signed(low, digits)}, {signed(high, digits)}]" if math.isfinite(low) and math.isfinite(high) else ""


def scientific(value: float | int) -> str:
    """A small number in powers of ten.

    >>> scientific(1.2e-7), scientific(0.0), scientific(0.25)
    ('1.2 × 10⁻⁷', '0', '0.25')
    """
    if not math.isfinite(value):
        return "–"
    if value == 0 or 0.01 <= abs(value) < 1000:
        return number(value, 2).rstrip("0").rstrip(".") or "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa.replace('-', MINUS)} × 10{raised}"


def seconds(value: float | int) -> str:
    """A time in two digits.

    >>> seconds(0.0153), seconds(5.12), seconds(312.0)
    ('15 ms', '5.1 s', '5.2 min')
    """
    if not math.isfinite(value):
        return "–"
    if value < 0.000995:
        return "under 1 ms"
    if value < 0.995:
        return f"{float(f'{1000 * value:.2g}'):g} ms"
    return f"{float(f'{value:.2g}'):g} s" if value < 99.5 else f"{value / 60:.1f} min"


def names(labels: Iterable[str]) -> str:
    """Names in a sentence.

    >>> names(["a", "b", "c"])
    'a, b and c'
    """
    words = list(labels)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1] if words else ""
