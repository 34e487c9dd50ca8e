"""The words of benchmarks/TRENDS.md; what is in braces is filled in from the tables."""

PAGE = """# Published trends, on models trained here

Made by `.venv/bin/python benchmarks/trends.py` (`make bench-trends`): {n_seeds} seeds, {minutes} minutes of one core,
most of it training. What is trained and measured is kept in `.cache/trends` and read again; `--again` forgets it.

Four papers asked what attention says of a prediction. Their models and texts are not here; small ones that learned
synthetic tasks are. So the question is not whether a number comes out again but whether the **trend** does: of
{n_claims} trends {n_there} are there in every seed, {n_partly} in some, **{n_absent} in none**. Numbers are the mean of
the seeds, in brackets the lowest and the highest seed; a seed's number is a mean over held-out texts.

In no seed:

{absent}

In some seeds:

{partly}

Numbers of a paper stand beside ours only where they were read in the paper: those of Abnar & Zuidema. Of the others we
know numbers from third parties or from memory; they are at the end, as cited, and no figure shows them.

## Rollout and flow against blank-out (Abnar & Zuidema 2020)

![Spearman with blank-out by layer, ours and the paper's](trends-layers.png)

A transformer (6 layers, 8 heads, width 64; the paper's has width 128) learns whether the next verb is singular or
plural, with other nouns in between: `near the rivers , the old key that the boys hold` → singular. Share
right: {depth_accuracy} of 2000 held-out sentences, {depth_attractors} of those with a noun of the other number.
Blank-out: how far the probability of the predicted number falls where a word is [UNK]. Rank correlation over the words
of {depth_n} sentences a seed, of at least 6 words.

{depth_claims}

**What is there and what is not.** Raw attention loses touch with the words above the first layer, and rollout, which
follows it down to the input, ends well ahead of it: that is the paper's point, and it is here. What is not here is the
rise of the rank correlation with depth. Three things are to be said of that.

- In layer 1, rollout is half of the attention and half of the identity, so it orders the words exactly as raw attention
  does, and so does flow. The paper prints .69 and .32, so its comparison must count the first token or read raw
  attention otherwise. The table has two such readings: with [CLS], and the largest weight of any query (what a script
  of the authors takes, on another task). Neither puts raw attention ahead of rollout.
- On this grammar one word decides, the subject: it has the largest effect of all words in (nearly) every sentence, and
  most others move the probability by less than 0.001. The order of next to nothing is noise to every map. Ask instead
  for the *top* word (the lower row of the figure), and rollout does rise with depth, to {rollout_top} of the sentences
  in layer 6, where raw attention has {raw_top}.
- Flow loses the top word in the upper layers ({flow_top}). The more layers, the more ways around any narrow place: in
  layer 6 the flow of every word is exactly what fits into it from the first layer (the sum of its column there, 1 at
  most) in {flow_limited} of the sentences, whatever the layers above say. The paper's flow stays at .70.

{depth_table}

*blank-out*: `size` of the fall; the fall `signed`; `with [CLS]`: its size, [CLS] counted as a word. The upper row
and the claims are those of `size`. `top word`: share of the sentences in which map and blank-out have the same largest
word.

## Permuted and other attention (Jain & Wallace 2019)

![Permuted attention, agreement and counterfactual attention](trends-attention.png)

One attention over an encoder, as in their models: a recurrent one, or one that sees each word alone ("average"). Two
tasks. *counting*: 3 or 5 cues among 12 to 24 words, the label is what most of them say, so order is nothing. *order*:
the cue behind "however" decides and the one before it does not; without context nobody can be right in more than about
three of four. {attention_n} texts a seed, {searched_n} for the search. Gradients hold attention, removal deletes a
word; changes are of the probability.

{weights_claims}

{attention_table}

**How to read it.**

- That context lowers τ is here, clearly, and it is no surprise: without context a state *is* its word, and the gradient
  with attention held contains the weight as a factor; a recurrent state is about its neighbours as well, and taking out
  a word changes all states. Low τ says that the two rank otherwise, not which of them is right.
- That very other attention gives the same output is here too; without context the search finds as much (*counting*) or
  less (*order*). Two outputs ask little of a mean of ten or twenty states, so that such attention exists says little
  about one prediction. `attnprobe` shows it as evidence, and no verdict rests on it.
- What permuting shows depends on the run. The recurrent readers of *order* are right in all texts, and yet one
  cannot do without its weights while another hardly notices: see the range over seeds. Without
  context weights matter, though none is large.

## Decision flips (Serrano & Smith 2019)

![What flips decisions, and how much must go](trends-flips.png)

The top weight (or one drawn at random) is set to 0 and the rest renormalised; then keys go one after another until the
decision flips. Left: shares over all seeds; right: means of the seeds and their range.

{flips_claims}

{flips_table}

*out*: share of the keys that are out when the decision flips first; 1 where it never does.

These decisions are surer than those of the papers: of the readers with a recurrent encoder some never flip without
their top weight, so that "more often than at random" cannot be seen in every seed. A decision that stays does not say
that the weight was without influence: the neighbours' states may say the same.

## Uniform attention, twins, and the diagnostic network (Wiegreffe & Pinter 2019)

![Training with uniform attention, twins, diagnostic network](trends-training.png)

{training_claims}

Share right of 1000 held-out texts, trained with attention that is learned or held uniform:

{uniform_table}

Twins: trained to predict as the reader does and to look elsewhere, λ times as much; {training_n} held-out texts of
*order*. Beside them a reader of another seed that was told nothing:

{twins_table}

The diagnostic network sees each word alone and gets its weights from elsewhere:

{diagnostic_table}

**How to read it.**

- Uniform attention costs nothing on these tasks: by the paper's own test attention was not needed, and no experiment
  on its weights can find it indispensable. Without context *order* is out of reach for either.
- The twins are where this page parts from the paper. With a recurrent encoder one set of parameters keeps the
  predictions and looks as far away as can be (0.69 is the largest JSD there is), farther than a short search text by
  text: the states carry the deciding word to wherever the twin looks. On longer texts that may be harder. Without
  context the curve rises: there attention is tied to the predictions.
- The diagnostic network tells the two apart: trained weights lead a network without context to the word that decides,
  a twin's (λ {diagnosed}) do so less, better than uniform ones in one seed and worse in two.

## Counterfactual search at the seam: the bundled transformer

![JSD of other attention by layer](trends-bundled.png)

The same search as for the readers, on `attnprobe/sentiment` (3 layers, 4 heads): all rows and heads of a layer are
free, or of all layers; {bundled_n} sentences made of parts. Of layer 3 only the row of [CLS] reaches the output, and
the others may be anything; so that row is also searched alone. No paper's number belongs here.

{bundled_table}

The output of a transformer, too, can be kept within 0.01 while a layer looks mostly elsewhere (0.69 is the farthest
that two distributions can be apart). It does not say that the layer does nothing: uniform attention or removal ask
that.

## What these models are not

- The tasks are synthetic, short, and learned (nearly) perfectly; decisions are sure and flip late.
- Three seeds show what a run may do, not how often. A trend that holds in three of three may fail in the fourth.
- Two labels throughout; the papers have tasks with many.
- The search takes fewer starts and steps than the authors' code, so the JSD found is a lower bound of what there is.

## Numbers as cited

Not read in the papers by us, and not to be quoted from here.

{as_cited}
"""

AS_CITED = """\
- Jain & Wallace, τ of attention and gradient: BiLSTM between .08 and .47 by data set, average encoder between .48 and
  .84, as cited; other values are in circulation. Other attention with a JSD above .4 at a total variation up to .1
  on nearly all data sets, as cited.
- Serrano & Smith, recurrent: neither flips the decision in 84 to 90 % of the texts, only the top weight in 8 to 12 %,
  only a random one in 1 to 3 %, from memory.
- Wiegreffe & Pinter, F1 of uniform and trained attention: SST .822 and .831, IMDb .879 and .902, AG News .960 and .964,
  20 News .934 and .942, Diabetes .706 and .775, Anemia .899 and .938, from memory."""
