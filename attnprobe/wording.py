"""Findings: a claim in words, whether the numbers support it, and the rows that it rests on."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pandas as pd

from attnprobe.comparison import Comparison

NARROW_SPACE = "\N{NARROW NO-BREAK SPACE}"
MINUS = "\N{MINUS SIGN}"

# Methods whose names people write otherwise than their words.
PROPER: Mapping[str, str] = {
    "atman": "AtMan",
    "alti": "ALTI",
    "attcat": "AttCAT",
    "attn_lrp": "AttnLRP",
    "chefer_2021a": "Chefer 2021a",
    "chefer_2021b": "Chefer 2021b",
    "cp_lrp": "CP-LRP",
    "decompx": "DecompX",
    "deep_lift": "DeepLIFT",
    "globenc": "GlobEnc",
    "grad_sam": "Grad-SAM",
    "gradient_shap": "GradientSHAP",
    "kernel_shap": "KernelSHAP",
    "leave_one_out": "leave-one-out",
    "lime": "LIME",
    "owen": "Owen values",
    "rise": "RISE",
    "shapley_exact": "Shapley values, exact",
    "shapley_sampling": "Shapley sampling",
    "smooth_grad": "SmoothGrad",
}

Verdict = Literal["yes", "no", "open", "explains", "misleads", "undecided"]


@dataclass(frozen=True, eq=False)
class Finding:
    """A claim, whether the numbers support it, and the numbers.

    topic: "explanation" (verdict: explains, misleads, undecided), else "attention", "removal", "agreement",
    "operators", "tests" (verdict: yes, no, open). against: what speaks against the verdict. causes: of a map that
    misleads, each with its measurement and what to look at instead.
    """

    topic: str
    claim: str
    verdict: Verdict
    evidence: pd.DataFrame = field(repr=False)
    against: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()


def named(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> named(["raw_attention", "rollout", "attn_lrp"])
    'raw attention, rollout and AttnLRP'
    """
    words = [PROPER.get(name) or name.replace("_x_", " × ").replace("_", " ") for name in names]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def of_tokens(said: str) -> str:
    """What a rule says of units, in the word that readers know; what stands in quotes stays.

    >>> of_tokens("'unit' is its first unit; its first units miss 5%")
    "'unit' is its first token; its first tokens miss 5%"
    """
    parts = re.split(r"((?<!\w)'[^']*'(?!\w))", said)
    return "".join(part if i % 2 else re.sub(r"\bunit(s?)\b", r"token\1", part) for i, part in enumerate(parts))


def spaced(text: str) -> str:
    """A narrow space before each %, as people set it.

    >>> spaced("17% [3%, 56%]").replace(NARROW_SPACE, "_")
    '17_% [3_%, 56_%]'
    """
    return re.sub(r"(?<=\d) ?%", f"{NARROW_SPACE}%", text)


def scope(comparison: Comparison) -> str:
    """What a claim is about."""
    n = len(comparison.studies)
    return "on this text" if n == 1 else f"on these {n} texts"


def signed(value: float) -> str:
    """A number with its sign and a true minus; zero has none.

    >>> signed(-0.123), signed(-0.001)
    ('\N{MINUS SIGN}0.12', '0.00')
    """
    text = f"{value:+.2f}"
    return "0.00" if float(text) == 0 else text.replace("-", MINUS)
