"""What changes when nobody may look at a token: its edges are cut before the softmax, in some or all layers."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch

from attnprobe import intervention
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model, Stack
from attnprobe.models.reading import explained_stack, read_rows
from attnprobe.models.removal import units as removable
from attnprobe.models.rows import Row
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget

Layers = Literal["all"] | tuple[int, int]
SPARED = "a query that sees no other key keeps it"


@methods.add(
    family="ablation",
    source="Geva et al. 2023, sec. 4 (attention knockout)",
    formula="y(x) − y(x; s^l_ij = −∞ for i in queries, l in layers)",
    cost="n F",
    signed=True,
    passes=lambda size, o: (size.n_units + 1, 0),
)
def knock_out(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    layers: Layers = "all",
    queries: Literal["all", "read"] = "all",
) -> Scores:
    """How much the target falls when nobody may look at a token; target units, signed; special tokens get 0.

    Its scores are −inf in all heads and the softmax gives its share to the others, so that a token without influence
    of its own counts as well. layers: "all", or the first and the last of a window. queries: "all", or "read", the
    edges from the position that the answer is read from alone. Of an encoder-decoder "all" cuts a source token off in
    the encoder (where it has those layers) and the cross-attention, "read" in the cross-attention. A query that sees
    no other key keeps it: the first token of a causal model goes on looking at itself.
    """
    if queries not in ("all", "read"):
        raise InputError(f"queries is 'all' or 'read', got '{queries}'")
    stack = explained_stack(model, example)
    stacks = stacks_of_keys(model, example) if queries == "all" else [stack]
    read = None if queries == "all" else read_rows(model, example, target, stack.kind).tolist()
    windows = [(one, _window(layers, one, stack)) for one in stacks]
    unit = removable(example, target).tolist()
    rows = [
        Row(example, edits=tuple(_cut(j, example.n_tokens, read, one, within) for one, within in windows if within))
        for j in unit
    ]
    found = targets(model, [Row(example), *rows], target, progress="knock-out")
    values = torch.zeros(example.n_tokens, dtype=found.dtype)
    values[unit] = found[0] - found[1:]
    where = ", ".join(f"{one.name} {one.kind}-attention" for one, within in windows if within)
    return Scores(values, used={"cut": where, "spared": SPARED})


def stacks_of_keys(model: Model, example: Example) -> list[Stack]:
    """The stacks whose keys are the explained tokens: of an encoder-decoder its encoder, then the cross-attention."""
    stack = explained_stack(model, example)
    below = [s for s in model.stacks if s.kind == "self" and s.name != stack.name] if stack.kind == "cross" else []
    return [*below[:1], stack]


def _window(layers: Layers, stack: Stack, explained: Stack) -> range:
    """Layers of a stack within the window; `InputError` where the explained one has not got them."""
    if layers == "all":
        return range(stack.n_layers)
    ends = tuple(layers)
    whole = len(ends) == 2 and all(isinstance(end, int) for end in ends)
    if not whole or not 0 <= ends[0] <= ends[1] < explained.n_layers:
        raise InputError(
            f"layers is 'all' or (first, last), 0 to {explained.n_layers - 1} in {explained.name} "
            f"{explained.kind}-attention, got {layers!r}"
        )
    return range(ends[0], min(ends[1] + 1, stack.n_layers))


def _cut(
    key: int, n_tokens: int, queries: Sequence[int] | None, stack: Stack, layers: Sequence[int]
) -> intervention.Intervention:
    """The edit that cuts a key off from queries (None: all), but from none that sees nothing else."""

    def change(site: Site) -> Site:
        check_keys(site, n_tokens)
        weights = site.need("weights")
        seen = torch.ones_like(weights[:1], dtype=torch.bool) if site.visible is None else site.visible
        others = seen.expand_as(weights[: len(seen)]).clone()
        others[..., key] = False
        free = others.any(-1).all(0).all(0)
        wanted = [q for q in free.nonzero()[:, 0].tolist() if queries is None or q in queries]
        if not wanted:
            return dataclasses.replace(site)
        return intervention.knock_out(wanted, key).change(site)

    return intervention.Intervention(f"knock out token {key}", change, tuple(layers), stack.name, stack.kind)


def check_keys(site: Site, n_tokens: int) -> None:
    """`InputError` where the keys of a place are not the explained tokens, one for one."""
    known = site.weights if site.weights is not None else site.need("scores")
    if known.shape[-1] != n_tokens or site.n_parts > 1:
        parts = f", {site.n_parts} parts apart" if site.n_parts > 1 else ""
        raise InputError(
            f"{site.place}: {known.shape[-1]} keys{parts} for {n_tokens} tokens, so there is no edge to each token to "
            "change; use leave_one_out"
        )
