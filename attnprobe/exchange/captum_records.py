"""Attributions as captum's visualization records, and methods made of such records.

>>> from captum.attr import visualization                     # doctest: +SKIP
>>> visualization.visualize_text([to_captum(attribution)])    # doctest: +SKIP
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from attnprobe.errors import InputError
from attnprobe.exchange.given_scores import OWN, from_scores
from attnprobe.exchange.kinds import an_attribution
from attnprobe.registry import Entry


def to_captum(attribution: Any, *, scaled: bool = True, true_class: str = "") -> Any:
    """A captum `VisualizationDataRecord`: tokens as people read them, their scores, the answer and its probability.

    scaled: divide by the largest size, since captum paints from -1 to 1 (False: the scores as they are). The record's
    attr_score is the sum of the scores, convergence_score what they lack to add up (NaN where nobody knows).
    """
    from captum.attr._utils.visualization import VisualizationDataRecord

    an_attribution(attribution, "to_captum")
    scores, target = attribution.scores.clone(), attribution.target
    size = float(scores.abs().max())
    return VisualizationDataRecord(
        word_attributions=scores / size if scaled and size > 0 else scores,
        pred_prob=target.predicted_probability,
        pred_class=target.predicted_name,
        true_class=true_class,
        attr_class=target.label_name,
        attr_score=float(scores.sum()),
        raw_input_ids=list(attribution.example.pieces),
        convergence_score=float("nan") if attribution.residual is None else attribution.residual,
    )


def from_captum(
    name: str,
    records: Any,
    *,
    texts: Sequence[Any] | None = None,
    signed: bool = True,
    family: str = OWN,
) -> Entry:
    """A method made of captum's visualization records, one or many, for `compare(methods=[...])`.

    A record is found by its tokens, or by its number among `texts`; see `from_scores`. Errors: `InputError` for a
    record whose tokens and scores are not as many, or that has scores of several numbers a token.
    """
    listed = list(records) if isinstance(records, Iterable) else [records]
    found = [_pairs(record, f"'{name}', record {at}") for at, record in enumerate(listed)]
    return from_scores(name, found, texts=texts, signed=signed, family=family, source="captum's visualization records")


def _pairs(record: Any, where: str) -> list[tuple[str, float]]:
    tokens, given = getattr(record, "raw_input_ids", None), getattr(record, "word_attributions", None)
    if tokens is None or given is None:
        raise InputError(f"{where}: expected a captum VisualizationDataRecord, got {type(record).__name__}")
    scores = torch.as_tensor(given).detach().float().cpu()
    if tuple(scores.shape) != (len(tokens),):
        raise InputError(
            f"{where}: {len(tokens)} tokens need one score each, got scores of shape {tuple(scores.shape)}"
        )
    return list(zip(map(str, tokens), scores.tolist(), strict=True))
