"""Another attention under which an answer stays, beside the model's own: one example's, and the table of many."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pandas as pd
from jaxtyping import Float
from torch import Tensor

# So much of the weight lies on other tokens in what is called another attention; the answer moves by at most `eps`.
ANOTHER = 0.5


@dataclass(frozen=True, eq=False)
class OtherAttention:
    """The attention farthest from the model's own that a search found with the answer kept; 0 apart: none was found.

    own, other: weight on each token, mean over heads and over the rows that the answer is read from, in one layer.
    attention_total_variation (0 to 1), attention_jsd (0 to ln 2): how far the two are apart, each divided by its sum.
    jsd_of_heads: mean over heads. answer_total_variation: at most `eps`; of all outputs where `of_outputs`, else
    |Δ target|, of a model with one number. value, value_after: the target in its own unit. probability,
    probability_after: of the label, NaN where there is none. found_by: "gradient", "same output" or "own" (nothing
    found).
    """

    own: Float[Tensor, " token"] = field(repr=False)
    other: Float[Tensor, " token"] = field(repr=False)
    stack: str
    kind: str
    layer: int
    attention_total_variation: float
    attention_jsd: float
    jsd_of_heads: float
    kendall_tau: float
    top_changed: bool
    answer_total_variation: float
    value: float
    value_after: float
    probability: float
    probability_after: float
    decision_kept: bool
    of_outputs: bool
    found_by: str
    eps: float
    n_starts: int
    n_steps: int
    seed: int
    forward_passes: int
    backward_passes: int
    seconds: float

    @property
    def another(self) -> bool:
        """Whether at least half of the weight lies on other tokens, and the decision is the same."""
        return self.attention_total_variation >= ANOTHER and self.decision_kept

    def facts(self) -> dict[str, Any]:
        """Everything but the weights, as JSON holds it."""
        return {name: getattr(self, name) for name in MEASURED}

    @classmethod
    def of(cls, facts: Mapping[str, Any], weights: Mapping[str, Tensor]) -> "OtherAttention":
        """What `facts` and the weights by name make again."""
        return cls(own=weights["own"], other=weights["other"], **facts)


WEIGHTS = ("own", "other")
MEASURED = [f.name for f in fields(OtherAttention) if f.name not in WEIGHTS]
COLUMNS = ["example_index", "text", "another", *MEASURED]
COLUMNS.insert(COLUMNS.index("probability"), "moved")


def counterfactuals(texts: Sequence[str], found: Sequence[OtherAttention | None]) -> pd.DataFrame:
    """A row an example for which another attention was looked for. moved: value_after − value."""
    rows = [
        {
            "example_index": index,
            "text": text,
            **one.facts(),
            "another": one.another,
            "moved": one.value_after - one.value,
        }
        for index, (text, one) in enumerate(zip(texts, found, strict=True))
        if one is not None
    ]
    return pd.DataFrame(rows, columns=COLUMNS)
