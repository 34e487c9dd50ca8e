"""The words of the page; numbers are put in by `page`."""

TEXT = """# Does a map of atoms explain what the model fills in?

1. Head (10, 5) of rxnmapper names the reactant atom that a product atom came from: {focus} of {n_atoms} product atoms
   in {n_reactions} reactions, against {chance} by chance, and rollout does no better than chance ({rollout}).
2. As an explanation of a masked product atom the same head is called "explains" in {focus_explains} predictions and
   "misleads" in {focus_misleads}; the rest is undecided, most often because no token is idle, and no other map is
   called "explains" in more than {most_explains} of them.
3. Over all tokens its order has nothing to do with the effects (Kendall's τ {tau_focus}; effect held by its first units
   above random orders {focus_above}), while the mean of the heads of the last layer follows them (τ {tau_mean};
   {mean_above}; the head against it {focus_against_mean}); among the reactant atoms alone both do about equally well
   (τ {tau_focus_reactants} and {tau_mean_reactants}).
4. The reason is what the model goes by: a masked carbon stays likely (p > 0.5) without any reactant in
   {carbon_reactants} of the predictions, and without the rest of the product in {carbon_product} only; another atom
   needs both (it stays likely in {other_reactants} and {other_product}); a source has {source_carbon_mean} (carbon) or
   {source_other_mean} (others) of the largest effect, an atom bonded to the masked one {bonded_carbon_mean} or
   {bonded_other_mean}, the arrow {arrow_carbon_mean} or {arrow_other_mean}, and on these the head puts next to nothing.
5. So the two claims come apart both ways: the head that names nearly all sources does not look at the product, which
   counts as much, and the means of heads, whose order holds more of the effect, give the source a few percent of their
   weight; to find sources use the head, and to see what a prediction rests on remove tokens.

Made by `.venv/bin/python benchmarks/atom_mapping.py`: {n_predictions} predictions, {passes} forward passes,
{minutes} minutes of one core ({versions}). All tables lie beside this page as CSV.

## What was asked

The model is an ALBERT of 12 layers of 8 heads (MIT licence, from the package registry), trained to fill in masked
tokens of reactions. The list ([reactions.csv](../../benchmarks/reactions.csv)) has {n_reactions} small reactions of
seven templates; RDKit ran the templates and knows where each atom came from, so the truth is not the package's own.
Atoms that symmetry makes the same count alike. A share is over atoms and has Wilson's interval; means and tests are
over reactions (bootstrap; Wilcoxon, corrected by Holm).

## The first claim: the map names the source

The reaction is whole; a map is right where its largest weight among the reactant atoms lies on a true source.

{maps}

By template, among atoms of the same element:

{templates}

Of all {n_heads} heads (head_accuracy.csv) head {best} is first with {best_share}; (10, 5) has place {focus_place}.
Layers share their parameters, and head 5 of the layers from 4 up has {upper}. What {best} names more than (10, 5), atom
for atom: {best_against} (negative: it is ahead; heads_paired.csv has all maps; the best head was chosen on these same
atoms). The best head of another number is {other} with {other_share}; the median head has {median}, chance is {chance}.

![Every head: how often it names the source, and what silencing it costs](heads.png)

What a head names and what the prediction needs of it are two things: of the {n_heads} heads (10, 5) has place
{silenced_place} by what the true token's log-probability loses when the head alone is silenced ({silenced}). The first
are {silenced_best}.

## The second claim: the map explains the prediction

One product atom is masked; asked is the log-probability of the true token there (the model is right in {right}). Of the
{n_judged} shortest reactions one atom each, of every other one a carbon, and of {n_second} of them a second one. [MASK]
asks the question and is no part of the input: it is never taken away. A map's row of the masked position is judged by
`attnprobe.judgement.judge` as it comes: effects over 16 to 64 random removal orders, under the mean embedding and under
tokens of other reactions at the same place ("resample"); all tokens count, signs too. The last lines are no attention.

{verdicts}

1 − M is the share of the best units' effect that the map's first units hold; random orders have {random_quality}, which
is high because effects are spread. "names the source": the same row, among all reactant atoms. Why the head's
verdicts are undecided: {reasons}.

![Both claims of every map](claims.png)

## Why

{contexts}

"Gone": the mean embedding in the place of these tokens, all at once. The mean effect of a token in random orders, as a
share of the largest effect in that prediction:

{parts}

Among the reactant atoms of its element, the source has the largest effect in {first_mean} of the predictions under the
mean embedding and in {first_resample} under resampling: the relation is real, and it is one among many.

![Effects and maps by part of the input](parts.png)

Kendall's τ between a map and the effects, over all tokens and within each side:

{sides}

Two predictions, token by token. In the first the atom is told without its source, in the second hardly:

![A prediction that context tells](told-by-context.png)

![A prediction that the source tells](told-by-source.png)

Causes that the judgement knows, sought in {n_causes} predictions: {causes}.

## Erasure

Probability of the true token as tokens are taken away in the order of a map (mean embedding, {n_erased} predictions).

{erasure}

![Erasure beside random orders and the best found](erasure.png)

Head (10, 5) against others: by how much it is better (negative: worse), with p by Holm over all pairs.

{pairs}

Comprehensiveness asks about the first tokens alone, and the source is among them; sufficiency and the whole area ask
about the rest too. So the answer depends on the question even within one family of metrics.

## What to keep in mind

- The judged reactions are the shortest of the list, and their atoms are few: longer ones may depend more on reactants.
- Inputs with many tokens gone are unlike anything that the model was trained on; that is why two operators decide. What
  attention_mask and [MASK] say, which do not decide, is in verdicts.csv (call_attention_mask, call_mask; 8 orders only)
  and effects_of_parts.csv.
- The rule was calibrated on planted models, where effects lie on a few units and others are idle; here they are spread,
  and "undecided" is what the rule is to say then. The paired tests say what can be said of the set.
- One target was asked, the log-probability; a logit may spread effects in another way.
- A trial on another list of templates had 98 % for (10, 5): the number depends on which atoms are asked.
- Leave-one-out removes tokens just as the judge does, and has that advantage over all others.
"""
