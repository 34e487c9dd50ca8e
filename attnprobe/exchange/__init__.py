"""To and from other tools: plain functions, each of which says what it makes and refuses what does not fit.

Attention: `to_bertviz`, `to_circuitsvis`, `to_transformer_lens`; `from_attentions`, `from_transformer_lens` give a
capture to look at. Scores of tokens: `to_captum`, `to_shap`, `to_inseq`; `from_scores` and its kin give a method that
`compare` and `attribute` take. shap is imported when it is asked for; all others need nothing but attnprobe.

>>> from attnprobe import compare
>>> from attnprobe.exchange import from_scores
>>> mine = from_scores("mine", {text: [("a", 0.1), ("film", 0.7)]})     # doctest: +SKIP
>>> compare(model, [text], ["raw_attention", mine])                     # doctest: +SKIP
"""

from attnprobe.exchange.attention_maps import from_attentions, to_bertviz, to_circuitsvis
from attnprobe.exchange.captum_records import from_captum, to_captum
from attnprobe.exchange.given_scores import from_scores
from attnprobe.exchange.inseq_files import from_inseq, to_inseq
from attnprobe.exchange.shap_explanations import from_shap, to_shap
from attnprobe.exchange.transformer_lens import from_transformer_lens, to_transformer_lens

__all__ = [
    "from_attentions",
    "from_captum",
    "from_inseq",
    "from_scores",
    "from_shap",
    "from_transformer_lens",
    "to_bertviz",
    "to_captum",
    "to_circuitsvis",
    "to_inseq",
    "to_shap",
    "to_transformer_lens",
]
