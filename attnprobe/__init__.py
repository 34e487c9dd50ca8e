"""attnprobe: does this attention map explain this prediction?

Public names are imported when they are first used, so that `import attnprobe` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "AttnprobeError": "errors",
    "Attribution": "attribution",
    "Capture": "capture",
    "Comparison": "comparison",
    "Example": "example",
    "Finding": "finding",
    "Head": "heads.addresses",
    "HeadProfile": "head_profile",
    "Keep": "attention.seam",
    "Mechanism": "attention.mechanisms",
    "Model": "models.model",
    "MultiHeadAttention": "attention.multihead",
    "Row": "models.rows",
    "Scores": "methods",
    "Site": "site",
    "Target": "target",
    "View": "viewer.viewing",
    "agreement": "metrics",
    "attribute": "attributing",
    "compare": "comparison",
    "faithfulness": "metrics",
    "find_causes": "judgement.causes",
    "findings": "finding",
    "from_scores": "exchange",
    "gate": "intervention",
    "head_card": "card",
    "head_effect": "heads.measuring",
    "head_of": "heads.addresses",
    "head_pairs_of": "heads.pair_scores",
    "information_flow": "heads.information_flow",
    "inspect": "models.inspecting",
    "judge": "judgement.verdicts",
    "knock_out": "intervention",
    "load": "models",
    "mean_head": "intervention",
    "ov_top_tokens": "heads.circuits",
    "pair": "heads.pairs",
    "passes": "attributing",
    "patch": "intervention",
    "patch_heads": "heads.patching",
    "permute": "intervention",
    "plausibility": "metrics",
    "profile": "profiling",
    "projections": "models.projections",
    "prune": "pruning",
    "pruning_curve": "pruning",
    "replace_weights": "intervention",
    "robustness": "metrics",
    "save_pruned": "pruned_saving",
    "silence_head": "intervention",
    "sufficient_heads": "sufficient",
    "swap": "swapping",
    "swapped": "attention_swap",
    "uniform": "intervention",
    "view": "viewer.viewing",
    "zero_value": "intervention",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from attnprobe.attention.mechanisms import Mechanism as Mechanism
    from attnprobe.attention.multihead import MultiHeadAttention as MultiHeadAttention
    from attnprobe.attention.seam import Keep as Keep
    from attnprobe.attention_swap import swapped as swapped
    from attnprobe.attributing import attribute as attribute
    from attnprobe.attributing import passes as passes
    from attnprobe.attribution import Attribution as Attribution
    from attnprobe.capture import Capture as Capture
    from attnprobe.card import head_card as head_card
    from attnprobe.comparison import Comparison as Comparison
    from attnprobe.comparison import compare as compare
    from attnprobe.errors import AttnprobeError as AttnprobeError
    from attnprobe.example import Example as Example
    from attnprobe.exchange import from_scores as from_scores
    from attnprobe.finding import Finding as Finding
    from attnprobe.finding import findings as findings
    from attnprobe.head_profile import HeadProfile as HeadProfile
    from attnprobe.heads.addresses import Head as Head
    from attnprobe.heads.addresses import head_of as head_of
    from attnprobe.heads.circuits import ov_top_tokens as ov_top_tokens
    from attnprobe.heads.information_flow import information_flow as information_flow
    from attnprobe.heads.measuring import head_effect as head_effect
    from attnprobe.heads.pair_scores import head_pairs_of as head_pairs_of
    from attnprobe.heads.pairs import pair as pair
    from attnprobe.heads.patching import patch_heads as patch_heads
    from attnprobe.intervention import gate as gate
    from attnprobe.intervention import knock_out as knock_out
    from attnprobe.intervention import mean_head as mean_head
    from attnprobe.intervention import patch as patch
    from attnprobe.intervention import permute as permute
    from attnprobe.intervention import replace_weights as replace_weights
    from attnprobe.intervention import silence_head as silence_head
    from attnprobe.intervention import uniform as uniform
    from attnprobe.intervention import zero_value as zero_value
    from attnprobe.judgement.causes import find_causes as find_causes
    from attnprobe.judgement.verdicts import judge as judge
    from attnprobe.methods import Scores as Scores
    from attnprobe.metrics import agreement as agreement
    from attnprobe.metrics import faithfulness as faithfulness
    from attnprobe.metrics import plausibility as plausibility
    from attnprobe.metrics import robustness as robustness
    from attnprobe.models import load as load
    from attnprobe.models.inspecting import inspect as inspect
    from attnprobe.models.model import Model as Model
    from attnprobe.models.projections import projections as projections
    from attnprobe.models.rows import Row as Row
    from attnprobe.profiling import profile as profile
    from attnprobe.pruned_saving import save_pruned as save_pruned
    from attnprobe.pruning import prune as prune
    from attnprobe.pruning import pruning_curve as pruning_curve
    from attnprobe.site import Site as Site
    from attnprobe.sufficient import sufficient_heads as sufficient_heads
    from attnprobe.swapping import swap as swap
    from attnprobe.target import Target as Target
    from attnprobe.viewer.viewing import View as View
    from attnprobe.viewer.viewing import view as view


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'attnprobe' has no attribute '{name}'")
    return getattr(import_module(f"attnprobe.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
