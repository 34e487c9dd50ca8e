"""The fall of the label on the scale of logarithms, on which small probabilities still differ."""

import math

from attnprobe.attribution import Attribution
from attnprobe.metrics import faithfulness
from attnprobe.metrics.erasure import Bins, falls, measured
from attnprobe.models.model import Model


@faithfulness.add(
    family="faithfulness",
    source="Shrikumar et al. 2017; Chen et al. 2020 (hierarchical explanations)",
    low=-math.inf,
    high=math.inf,
    better="lower",
    default=False,
)
def log_odds(model: Model, attribution: Attribution, *, operator: str | None = None, bins: Bins = (0.2,)) -> float:
    """Log of the label's probability without the top tokens over that with them, no bounds; lower is better.

    What papers on text call log-odds: log p(without) − log p(whole), mean over the bins; no odds p / (1 − p) are taken.
    Of a target without a probability, the change of the target itself.
    """
    target = measured(attribution.target)
    target = target.on("log_probability") if target.scale == "probability" else target
    return -float(falls(model, attribution, bins, operator, alone=False, target=target).mean())
