"""How many tokens have to go before the model decides otherwise."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.metrics import faithfulness
from attnprobe.metrics.erasure import answers, kept, shares_of
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget


class Decision(ResolvedTarget):
    """What the model decides, as a number: the likeliest output, or whether the label's own is above ½."""

    def __call__(self, logits: Float[Tensor, " row *rest"]) -> Float[Tensor, " row"]:
        """The number of the decision of each row."""
        found = self._answers(logits)
        return found.argmax(-1).double() if self.exclusive else (found[:, self.label] > 0).double()


@faithfulness.add(
    family="faithfulness",
    source="Serrano & Smith 2019, on the input's tokens instead of the last layer's weights",
    low=0,
    high=1,
    better="lower",
    default=False,
)
def decision_flip(model: Model, attribution: Attribution, *, operator: str | None = None) -> float:
    """Share of the tokens that go, top first, until the model decides otherwise, 0 to 1; lower is better.

    1 where the last token flips it, and also where nothing does. The decision is the likeliest output at the explained
    position; where outputs do not exclude one another, whether the label is true. NaN where a model does not decide:
    one number as the output, a function as the target.
    """
    target = attribution.target
    if target.function is not None or math.isnan(target.label_probability) or not bool(attribution.units.any()):
        return math.nan
    shares = shares_of(attribution, "all")
    staying = kept(attribution, shares, alone=False)
    whole, found = answers(model, attribution, staying, operator, Decision(**target.__dict__))
    flipped = torch.nonzero(found != whole)
    return shares[int(flipped[0])] if len(flipped) else 1.0
