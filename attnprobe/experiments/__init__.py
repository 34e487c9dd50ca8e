"""Experiments: what becomes of predictions when attention is changed, and of explanations when the model is.

On any captured model (model, examples, target): `permuted_attention`, `uniform_attention`, `frozen_attention`,
`counterfactual_attention`, `top_weight_removal`, `attention_identifiability`, `cascading_randomisation`, `other_seeds`.
On readers trained here on a small task (`cues`): `trained_twins`, `frozen_uniform_training`, `diagnostic_network`.
Each gives a small result: values by example, `to_frame()` with n and intervals, `measures` (what each number means),
seed and cost.
"""

from attnprobe.experiments.counterfactual import Counterfactual, counterfactual_attention
from attnprobe.experiments.diagnostic import diagnostic_network
from attnprobe.experiments.frozen import frozen_attention
from attnprobe.experiments.frozen_uniform import frozen_uniform_training
from attnprobe.experiments.identifiability import Identifiability, attention_identifiability
from attnprobe.experiments.outcome import Outcome
from attnprobe.experiments.permuted import permuted_attention
from attnprobe.experiments.randomised import cascading_randomisation
from attnprobe.experiments.searching import Search
from attnprobe.experiments.seeds import other_seeds
from attnprobe.experiments.top_weight import top_weight_removal
from attnprobe.experiments.twins import Twins, trained_twins
from attnprobe.experiments.uniform import uniform_attention

__all__ = [
    "Counterfactual",
    "Identifiability",
    "Outcome",
    "Search",
    "Twins",
    "attention_identifiability",
    "cascading_randomisation",
    "counterfactual_attention",
    "diagnostic_network",
    "frozen_attention",
    "frozen_uniform_training",
    "other_seeds",
    "permuted_attention",
    "top_weight_removal",
    "trained_twins",
    "uniform_attention",
]
