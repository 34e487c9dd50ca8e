"""Frozen attention: each example under the attention of another input of the same length.

A prediction that stays was not made by where attention looked in *this* text: another text's attention does as well.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.capture import Capture
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.experiments.asking import MEASURES, Asked, asked, each
from attnprobe.experiments.outcome import Outcome, cost_of, values_frame
from attnprobe.intervention import patch
from attnprobe.models.evaluator import Meter
from attnprobe.models.rows import Row

OWN_MEASURES = {**MEASURES, "donors": "inputs of the same length that attention was taken from"}


def frozen_attention(
    model: Any,
    examples: Any,
    target: Any = None,
    *,
    donors: Any = None,
    n_donors: int = 5,
    layers: int | Sequence[int] | str = "all",
    kind: str = "any",
    seed: int = 0,
    n_resamples: int = 1000,
) -> Outcome:
    """Put the weights of other inputs in the place of an example's own: mean over up to `n_donors` of them, by seed.

    donors: inputs to take attention from (default: the other examples). Weights go over as they are, so a donor has as
    many tokens (and steps) as the example; nothing is stretched. Examples without a donor are left out, and counted in
    `notes`. layers: "all" (at once), "last", one or several.
    Errors: `InputError` where no example has a donor.
    """
    if n_donors < 1:
        raise InputError(f"n_donors is 1 or more, got {n_donors}")
    rows: list[tuple[Any, ...]] = []
    with Meter() as meter:
        given = asked(model, examples, target, kind)
        sources = _captures(given if donors is None else asked(model, donors, kind=kind))
        for one in each(given, "frozen attention"):
            found = _fitting(one, sources, donors is None)
            if found:
                rows += _measured(one, found, n_donors, layers, seed)
    values = values_frame(rows)
    lonely = len(given) - values.example_index.nunique()
    if lonely == len(given):
        lengths = sorted({one.example.n_tokens for one in given})
        raise InputError(
            f"no example has a donor of its length (lengths {lengths[:12]}); attention is not stretched: give donors "
            "of the same number of tokens"
        )
    return Outcome(
        "frozen_attention",
        given[0].model.name,
        tuple(one.goal.description for one in given),
        values,
        OWN_MEASURES,
        {"n_donors": n_donors, "layers": layers},
        seed,
        notes=(f"{lonely} of {len(given)} examples have no donor of their length and are left out",) if lonely else (),
        n_resamples=n_resamples,
        **cost_of(meter),
    )


def _captures(given: Sequence[Asked]) -> list[Capture]:
    """The weights of every possible donor."""
    return [one.model.capture(one.example, keep=Keep.of("weights", **one.where)) for one in given]


def _fitting(one: Asked, sources: Sequence[Capture], same: bool) -> list[Capture]:
    """Donors whose weights have the shapes of the example's own; the example itself is none, nor is the same input."""
    own = sources[one.index] if same else _captures([one])[0]
    return [
        source
        for number, source in enumerate(sources)
        if _shapes(source) == _shapes(own)
        and not (same and number == one.index)
        and not _same_input(source.example, one.example)
    ]


def _shapes(capture: Capture) -> list[tuple[int, ...]]:
    return [tuple(site.need("weights").shape) for site in capture.sites]


def _same_input(a: Example, b: Example) -> bool:
    """Whether two examples give the model the same tensors."""
    if set(a.inputs) != set(b.inputs):
        return False
    pairs = [(a.inputs[name], b.inputs[name]) for name in a.inputs]
    return all(torch.equal(x, y) if isinstance(x, Tensor) and isinstance(y, Tensor) else x is y for x, y in pairs)


def _measured(
    one: Asked, found: Sequence[Capture], n_donors: int, layers: int | Sequence[int] | str, seed: int
) -> list[tuple[Any, ...]]:
    """Rows of one example: each measure's mean over the donors drawn, and how many there were."""
    drawn = torch.randperm(len(found), generator=torch.Generator().manual_seed(seed + one.index))[:n_donors].tolist()
    edits = [patch(found[number], "weights", layers=one.layers(layers), **one.where) for number in drawn]
    batch = [Row(one.example), *(Row(one.example, edits=(edit,)) for edit in edits)]
    before, *after = one.answers(batch, "frozen attention")
    measured = [before.measured(answer) for answer in after]
    where = (one.index, one.stack.name, one.stack.kind, layers if isinstance(layers, str) else str(layers), "all", "")
    means = {name: sum(m[name] for m in measured) / len(measured) for name in MEASURES}
    return [(*where, name, value) for name, value in {**means, "donors": float(len(drawn))}.items()]
