"""The part on alignment: where an encoder-decoder looks in the text while it writes each token of its answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.answer_steps import AnswerSteps, StepAgreement, step_agreement, units_of
from attnprobe.appearance import inline, look, percent
from attnprobe.capture import Capture
from attnprobe.comparison import Comparison
from attnprobe.heads import head_scores
from attnprobe.report.alignment_agreement import BEST, Named, agreement
from attnprobe.report.nouns import nouns
from attnprobe.report.texts import is_control
from attnprobe.report.tokens import shown, visible
from attnprobe.site import Site
from attnprobe.study import Study

# How many heads, and how many layers, are offered; numbers of all maps that a page carries at most.
HEADS, LAYERS = 4, 6
MOST = 400_000
# What a page draws weights from: parts of a thousand.
PARTS = 1000
LAST = "(last)"


@dataclass(frozen=True, eq=False)
class Map:
    """One alignment: of a head, or the mean of a layer's heads (head None); how far forward it goes, what it covers."""

    layer: int
    head: int | None
    weights: Float[Tensor, "step token"]
    monotonicity: float
    coverage: float

    @property
    def score(self) -> float:
        """By which heads are ranked: both scores times the mean largest weight of a step; 1 for a plain diagonal."""
        found = self.monotonicity * self.coverage * float(self.weights.amax(-1).mean())
        return found if found == found else 0.0

    @property
    def name(self) -> str:
        """In words."""
        return f"layer {self.layer}, " + ("mean of heads" if self.head is None else f"head {self.head}")


def alignment(comparison: Comparison, methods: list[str]) -> dict[str, Any] | None:
    """What the part shows; None where no text has a cross-attention from an answer to its tokens."""
    left, texts, known = MOST, [], []
    for study in comparison.studies:
        maps = alignments(study.capture)
        left -= sum(one.weights.numel() for one in maps)
        left -= 0 if study.answer is None else sum(one.numel() for one in study.answer.maps.values())
        texts.append(_drawn(study, maps) if maps and left >= 0 else None)
        if maps:
            known.append((study, maps))
    if not any(texts):
        return None
    beside = agreement([(study, _named(maps)) for study, maps in known], comparison.settings)
    if beside is not None:
        beside["how"] = nouns(comparison).said(beside["how"])
    return {
        "heading": _heading([maps[0] for _, maps in known]) if beside is None else beside["heading"],
        "data": {"parts": PARTS, "texts": texts},
        "rows": _table(*known[0]),
        "owed": [inline(name) for _, name in _owed(known[0][0])],
        "beside": beside,
    }


def _named(maps: Sequence[Map]) -> list[Named]:
    """The best head, and the means of layers, under names that are the same on every text."""
    return [(BEST, maps[0].weights), *((one.name, one.weights) for one in maps if one.head is None)]


def alignments(capture: Capture) -> list[Map]:
    """The best heads, the best first, then the means of layers; none where there is no cross-attention to the text."""
    sites = _sites(capture)
    if not sites or capture.example.axis == "target":
        return []
    means = [replace(s, weights=s.need("weights").mean(1, keepdim=True)) for s in sites]
    heads, layers = _scored(capture, sites, False), _scored(capture, means, True)
    several = any(s.need("weights").shape[1] > 1 for s in sites)
    best = sorted(heads, key=lambda one: -one.score)[:HEADS]
    return best + (layers[-LAYERS:] if several else [])


def _sites(capture: Capture) -> list[Site]:
    """A site a layer of the cross-attention to the text, with nothing but its whole map: parts may be rows of one."""
    found = [s for s in capture.sites if s.place.kind == "cross" and s.weights is not None]
    found = [s for s in found if s.place.stack == found[0].place.stack and not s.place.part]
    if not found:
        return []
    maps = capture.maps(found[0].place.stack, "cross")
    return [
        replace(site, query=None, key=None, value=None, scores=None, z=None, weights=whole[None])
        for site, whole in zip(found, maps, strict=True)
        if whole.shape[-1] == capture.example.n_tokens
    ]


def _scored(capture: Capture, sites: Sequence[Site], means: bool) -> list[Map]:
    """Every map of some sites with its two scores."""
    plain = replace(capture, sites=tuple(sites))
    forward, covered = (head_scores[name].function(plain) for name in ("monotonicity", "coverage"))
    return [
        Map(
            site.place.layer,
            None if means else head,
            weights.double().cpu(),
            float(forward[row, head]),
            float(covered[row, head]),
        )
        for row, site in enumerate(sites)
        for head, weights in enumerate(site.need("weights")[0])
    ]


def steps(study: Study, n: int) -> tuple[list[str], bool]:
    """Names of the answer's tokens, one a row of a map, and whether they are what is written (else what is read)."""
    notes = study.example.notes
    read = [visible(str(token)) for token in notes.get("decoder_tokens", ())]
    written = [visible(str(token)) for token in notes.get("answer_tokens", ())]
    if len(written) == n:
        return written, True
    if "answer_ids" in notes and len(read) == n:
        return [*read[1:], LAST], True
    return (read, False) if len(read) == n else ([f"step {i}" for i in range(n)], False)


def _drawn(study: Study, maps: Sequence[Map]) -> dict[str, Any]:
    """What the script draws of one text."""
    names, written = steps(study, maps[0].weights.shape[0])
    units = units_of(study.example)
    owed = _owed(study)
    return {
        "inputs": shown(study.example),
        "outputs": names,
        "written": int(written),
        "position": study.target.position,
        "maps": [
            {
                "name": one.name,
                "head": int(one.head is not None),
                "monotonicity": _known(one.monotonicity),
                "coverage": _known(one.coverage),
                "cells": _cells(one.weights),
                "beside": [_counted(step_agreement(one.weights, answer, name, units)) for answer, name in owed],
            }
            for one in maps
        ],
        "owes": [
            {
                "name": look(name).label,
                "inline": inline(name),
                "cells": _cells(_shares(answer.maps[name])),
                "tops": (tops := _tops(answer, name, units)),
                "most": [float(f"{float(row[at]):.3g}") for at, row in zip(tops, answer.maps[name], strict=True)],
            }
            for answer, name in owed
        ],
        "beneath": next((m for m in BENEATH if study.attribution(m) is not None and not is_control(study, m)), None),
    }


def _owed(study: Study) -> list[tuple[AnswerSteps, str]]:
    """The attributions of the steps of a text's answer, by method; none where there are none."""
    return [] if study.answer is None else [(study.answer, name) for name in study.answer.maps]


def _cells(shares: Tensor) -> list[int]:
    """A map in whole parts, row by row."""
    found: list[int] = (shares * PARTS).round().to(torch.int32).flatten().tolist()
    return found


def _shares(scores: Float[Tensor, "step token"]) -> Float[Tensor, "step token"]:
    """Each score over the sum of all sizes of its step, the sign kept."""
    return scores.double() / scores.double().abs().sum(-1, keepdim=True).clamp(min=torch.finfo(torch.double).tiny)


def _tops(answer: AnswerSteps, method: str, units: Bool[Tensor, " token"]) -> list[int]:
    """The token that each step owes most to, of those that are compared; -1 where it depends on none."""
    sizes = torch.where(units, answer.maps[method].abs(), torch.tensor(-1.0))
    counts = answer.dependent & (sizes.amax(-1) > 0)
    return torch.where(counts, sizes.argmax(-1), torch.tensor(-1)).tolist()


def _counted(found: StepAgreement) -> tuple[int, int, float | None]:
    """At how many steps both are largest at the same token, of how many, and the mean of Kendall's tau."""
    taus = [tau for tau in found.kendall_tau if tau == tau]
    same = sum(int(one) for one in found.same_top if one == one)
    return same, len(taus), _known(sum(taus) / len(taus)) if taus else None


# What is drawn beneath the map: what each token does to the answer, the first of these that was run.
BENEATH = ("leave_one_out", "shapley_sampling", "occlusion", "integrated_gradients", "input_x_gradient")


def _heading(tops: Sequence[Map]) -> str:
    """The finding: how far the best head of each text goes forward, and how much of the text it covers."""
    forward = [one.monotonicity for one in tops if one.monotonicity == one.monotonicity]
    covered = [one.coverage for one in tops]
    if not forward:
        return "Where the answer looks in the text"
    mean, of = sum(forward) / len(forward), sum(covered) / len(covered)
    if len(tops) == 1:
        name = tops[0].name
        return f"{name[0].upper()}{name[1:]} goes forward in {percent(mean, 0)} of the steps and covers " + (
            f"{percent(of, 0)} of the text"
        )
    return f"The best head of each text goes forward in {percent(mean, 0)} of the steps"


def _table(study: Study, maps: Sequence[Map]) -> list[dict[str, Any]]:
    """A row a step of the first text: where the best map looks most, and what the step owes most to by each method."""
    best, tokens, units = maps[0], shown(study.example), units_of(study.example)
    names, _ = steps(study, best.weights.shape[0])
    tops = [zip(_tops(a, name, units), _shares(a.maps[name]).tolist(), strict=True) for a, name in _owed(study)]
    owed = [[(tokens[at], percent(row[at])) if at >= 0 else ("–", "–") for at, row in found] for found in tops]
    return [
        {
            "token": name,
            "at": tokens[int(row.argmax())],
            "weight": percent(float(row.max())),
            "owes": [found[step] for found in owed],
        }
        for step, (name, row) in enumerate(zip(names, best.weights, strict=True))
    ]


def _known(value: float) -> float | None:
    return round(value, 4) if value == value else None
