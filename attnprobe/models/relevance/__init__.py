"""Relevance handed back from the answer to the embeddings, layer by layer, through any network.

A pass of the model runs as always, and its numbers stay what they are; what changes is what goes back. Each function of
the states is told from what it does (`calls.py`): a map that is linear but for a constant, a product of two states, an
activation, a norm, a softmax. Rules say what each of them hands back: as a gradient (`gradient_rules.py`: AttnLRP,
CP-LRP), or in shares of what each input added (`share_rules.py`: the rules of Chefer et al. 2021a). `following.py` runs
the pass under the rules, `passing.py` asks for the relevance of one answer.
"""
