"""States as sums of vectors, one for each token that they come from: followed through any network by what it computes.

A pass of the model runs as always. Beside each tensor that depends on the states that went into the layers, its parts
are kept (`parts.py`): one for every token, and one for constants. What becomes of parts in a function is told from the
function itself, by numbers (`rules.py`), so nothing is looked up by name: affine maps act on every part; what is not
linear (a σ, a softmax, a gate that is not 0 at 0) is a factor held fast; an activation is its slope; a product of two
states is shared half and half. `following.py` runs a pass under these rules, `whole.py` takes them from the first layer
to the answer (DecompX), `layers.py` through one layer at a time (Kobayashi 2021, GlobEnc, ALTI).
"""
