"""The text of benchmarks/DECLARATION.md; numbers and tables are filled in."""

PAGE = """# One head, 16 sentences

Made by `.venv/bin/python benchmarks/declaration.py` in {seconds} s of one core. Intervals are 95 % bootstrap intervals,
over runs or over the 16 sentences (mean of a sentence's words first, since they depend on one another).

![Attention of the stored head](declaration.png)

One head of width 24 learns to put each word of a sentence together from the *other* words: the diagonal of its map is
masked. The published figure of such a head reads three weights off the first sentence: "rights" → "beings" 1.0,
"beings" → "rights" 0.0, "all" → "are" 0.94. The head that comes with attnprobe (`attnprobe declaration`) shows them
too; its loss is {loss} nats a word and it names {right} of 206 words. It was **chosen** to show them, see below.

## What a weight of 1 carries

What each word's value names, where a query puts all its weight on it:

{alone}

The value of "beings" does not say "beings", nor anything about beings: it says "rights", because "rights" is the word
that looks there. The map is a look-up table. A word's query is made from the word that is to be guessed, which the
masked diagonal does not hide, so training can give each word an address (a key) and store the word under it (a value).
That is an associative memory at work, and it is why the head names all words; it is no evidence that "rights" and
"beings" belong together. Which word serves as an address is free, and other runs choose others.

The weights do carry the answer, though. Cut one edge, and let the softmax spread its mass over the rest:

{edges}

{needed} With all weights equal, {flat} of the 12 words are still named.

## Other methods on the same question

For each of the 206 words: on which words of its sentence does its log-probability rest? Shapley values from 10 orders;
removal puts the mean embedding in a word's place; comprehensiveness is the fall of the word's probability as the words
ranked first are taken away, less that of {n_random} random orders.

{methods}

![Six methods on the first sentence](declaration-methods.png)

- On the *other* words, methods of one pass agree with attention: with one layer, no residual stream and no MLP, the
  weight is all there is on the way from a word's value to the answer. This is the case in which a map can be read.
- On the *word itself* they part. Attention says 0, since the diagonal is masked. Taking the word's embedding away
  changes its query, and half of what leave-one-out finds is there: the head needs to be told what to guess. No
  attention map shows that path, and methods that only follow values (value zeroing) or weights do not either. Input ×
  gradient gives it no more than random scores do: a softmax near 0 and 1 lets hardly any gradient through to the query.
- Methods that take many words away at once (occlusion, Shapley values) or go a long way (integrated gradients) share
  the credit otherwise: half-removed sentences are unlike anything the head was trained on.

## Other runs

![Three weights over runs](declaration-runs.png)

"As published": above 0.9, below 0.1, above 0.9.

{summary}

- **Another seed gives another map.** All of these heads name nearly all words; what they agree on is the answer and
  not the weights. A map of one run shows one of many solutions. (That "beings" → "rights" is near 0 so often says
  little: most weights of a row are.)
- **The same seed need not give the same map.** At this rate Adam is chaotic: a relative change of 2⁻⁵² in some
  embeddings, or another order of summation, ends elsewhere after 4,000 steps. Where a start leads early on survives
  that ("rights" → "beings" under seed 0), where it goes later does not ("all" → "are" under seed 0, and the loss). A
  seed does not make such a figure reproducible on another machine; stored parameters do.
- **The loss hides a choice.** The loss a word is −log(p + 1e-12). Its gradient as it stands ("guarded") vanishes where
  p is far below 1e-12: a word that is lost stays lost, and each costs 0.134 of the loss a word. The gradient p − onehot
  ("cross_entropy", as one writes it by hand) pulls lost words back. Under the guarded gradient the last loss of one
  and the same seed lies anywhere between 0 and 1, by roundings: it is no property of the recipe.

What one head of one run shows: that one head can do this, and how it did it that time. What it does not show: that
these words belong together, that attention "found" a relation, or what the next run will do. Sixteen sentences, all of
them seen in training, show nothing about unseen text either.

### Seeds

{seeds}

### Seed 0, start moved by roundings

{roundings}

### The same starts, guarded gradient

{guarded}

The stored head is the first of the starts 0, 1, 2, … roundings away from that of seed 0 whose three weights are as
published (on the machine that it was trained on).
"""
