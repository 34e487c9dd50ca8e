"""Activation patching: activations of one input of a pair in the run of the other, one place at a time.

    denoising   the corrupt input runs, a clean activation is put in:   (y − y_corrupt) / (y_clean − y_corrupt)
    noising     the clean input runs, a corrupt activation is put in:   (y − y_clean) / (y_corrupt − y_clean)

Denoising finds what is enough to bring the answer back, noising what it cannot do without (Heimersheim & Nanda 2024):
of two inputs that are both needed, noising finds each and denoising neither; of two that can replace one another it is
the other way round.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any, Literal

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from attnprobe.attention.seam import Edit
from attnprobe.errors import EditError, InputError
from attnprobe.heads.addresses import heads_named, stack_of
from attnprobe.heads.pairs import Baselines, Pair, baselines, refuse_parts
from attnprobe.heads.rows import Parts, places_of, z_of, z_put
from attnprobe.heads.spoken import said
from attnprobe.intervention import Intervention
from attnprobe.models import load
from attnprobe.models.evaluator import Meter, batch_size, halving, logits, targets
from attnprobe.models.layer_inputs import LayerInput, layer_input
from attnprobe.models.model import Model, Stack
from attnprobe.models.reading import explained_stack
from attnprobe.models.resumption import resumed
from attnprobe.models.rows import Row
from attnprobe.site import Kind, Site
from attnprobe.target import ResolvedTarget

Places = str | int | Iterable[Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class Patched:
    """What patching each place did: 0 nothing, 1 as much as the whole other input; NaN for heads that a layer lacks.

    answers: the target of each patched run, [layer head position]; the head axis has one entry where states were
    patched, the position axis one where all positions were patched at once. positions: numbers of the positions, None
    for all at once. tokens: what stands there, where positions are tokens of the input.
    """

    answers: Float[Tensor, "layer head position"]
    what: Literal["head", "state"]
    direction: str
    baselines: Baselines
    target: ResolvedTarget
    stack: str
    kind: Kind
    positions: tuple[int, ...] | None = None
    tokens: tuple[str, ...] | None = None
    model: str = ""
    forward_passes: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        """What was patched, on what, and the places that moved it most."""
        ends = said([self.baselines.clean, self.baselines.corrupt], signs=True)
        layers, heads, columns = self.answers.shape
        places = f"{layers} layers" + f" x {heads} heads" * (self.what == "head") + f" x {columns} positions" * (
            self.positions is not None)  # fmt: skip
        best = self.top(3).drop(columns=["stack", "kind", "answer"]).to_dict(orient="records")
        named = "; ".join(", ".join(f"{key} {_told(value)}" for key, value in one.items()) for one in best)
        return (
            f"Patched {self.what}s of {self.model}, {self.direction}, {self.stack} {self.kind}-attention: {places}, on "
            f"the {self.target.description} (clean {ends[0]}, corrupt {ends[1]})\nlargest: {named}"
        )

    @property
    def values(self) -> Float[Tensor, "layer head position"]:
        """The share of the way between the two inputs that each patch went."""
        return self.baselines.share(self.answers, self.direction)

    def to_frame(self) -> pd.DataFrame:
        """A row a place: stack, kind, layer, head (of heads), position, token (of positions), answer, share."""
        known = (~self.answers.isnan()).nonzero()
        at = tuple(known.T)
        frame = pd.DataFrame(known.tolist(), columns=["layer", "head", "position"])
        frame = frame.assign(answer=self.answers[at].tolist(), share=self.values[at].tolist())
        if self.positions is None:
            frame = frame.drop(columns="position")
        else:
            numbers = [self.positions[index] for index in frame.position]
            tokens = None if self.tokens is None else [self.tokens[number] for number in numbers]
            frame = frame.assign(position=numbers)
            frame.insert(3, "token", tokens)
        frame = frame.drop(columns="head") if self.what == "state" else frame
        frame.insert(0, "stack", self.stack)
        frame.insert(1, "kind", self.kind)
        return frame

    def top(self, n: int = 10) -> pd.DataFrame:
        """The n places that moved the answer most, whatever the direction."""
        frame = self.to_frame()
        return frame.loc[frame.share.abs().sort_values(ascending=False, kind="stable").index[:n]].reset_index(drop=True)


def _told(value: Any) -> str:
    return said([value], signs=True)[0] if isinstance(value, float) else str(value)


def patch_heads(
    model: Any,
    pair: Pair,
    direction: str = "denoising",
    positions: Places = None,
    *,
    stack: Stack | str | None = None,
) -> Patched:
    """What each head gives (z) from one input in the run of the other, one head at a time.

    positions: None, all at once; "each", or numbers: one at a time. stack: as in `head_effect`.
    Errors: `InputError` where the target is the same on both inputs, and for positions that are not there.
    """
    model = load(model)
    runs, donor = pair.ends(direction)
    chosen = stack_of(model, runs, stack)
    with Meter() as meter:
        ends = baselines(model, pair)
        given = z_of(model, donor, chosen)
        where = _positions(model, chosen, positions, given)
        places = [
            (layer, head, at) for layer, head in places_of(chosen) for at in (None,) * (not where) + (where or ())
        ]
        rows = [Row(runs, edits=(_edit(chosen, given, layer, head, at),)) for layer, head, at in places]
        with resumed(model, runs, pair.target):
            found = targets(model, rows, pair.target, progress="patching heads").double()
    answers = torch.full((chosen.n_layers, max(chosen.n_heads), len(where or (0,))), torch.nan, dtype=torch.float64)
    for (layer, head), row in zip(places_of(chosen), found.view(-1, answers.shape[2]), strict=True):
        answers[layer, head] = row
    tokens = pair.pieces if chosen == explained_stack(model, runs) and chosen.kind == "self" else None
    return Patched(
        answers, "head", direction, ends, pair.target, chosen.name, chosen.kind, where, tokens, model.name,
        meter.forward, meter.seconds,
    )  # fmt: skip


def patch_together(model: Any, pair: Pair, heads: Any, direction: str = "denoising") -> float:
    """The share of the way that several heads go when all are patched at once: 0 for none.

    heads: addresses (`attnprobe.heads.addresses`), of any stacks. Errors: as `patch_heads`.
    """
    model = load(model)
    runs, donor = pair.ends(direction)
    named = heads_named(model, heads)
    stacks = {(s.name, s.kind): s for s in model.stacks if any((h.stack, h.kind) == (s.name, s.kind) for h in named)}
    given = {key: z_of(model, donor, stack) for key, stack in stacks.items()}
    edits = tuple(
        _edit(stacks[head.stack, head.kind], given[head.stack, head.kind], head.layer, head.head, None)
        for head in named
    )
    answer = targets(model, [Row(runs, edits=edits)], pair.target).double()
    return float(baselines(model, pair).share(answer, direction)[0])


def _positions(model: Model, stack: Stack, positions: Places, given: Sequence[Parts]) -> tuple[int, ...] | None:
    """The queries that were asked for, by number; None for all at once."""
    if positions is None:
        return None
    refuse_parts(model, stack)
    n = given[0][0].shape[1]
    return _checked(n, positions)


def _checked(n: int, positions: str | int | Iterable[Any]) -> tuple[int, ...]:
    """Numbers of positions, 0 and more, of a sequence of n."""
    if isinstance(positions, str):
        if positions != "each":
            raise InputError(f"positions are None (all at once), 'each' or numbers, got '{positions}'")
        return tuple(range(n))
    given = list(positions) if isinstance(positions, Iterable) else [positions]
    if not given or any(not isinstance(number, Integral) or not -n <= int(number) < n for number in given):
        raise InputError(f"positions are numbers from 0 to {n - 1}, got {given}")
    return tuple(dict.fromkeys(int(number) % n for number in given))


def _edit(stack: Stack, given: Sequence[Parts], layer: int, head: int, position: int | None) -> Edit:
    """z of another run in the place of a head's own: at every position, or at one."""
    if position is None:
        return z_put(stack, layer, head, given[layer], "patched z")
    donor = given[layer][0][head, position]

    def change(site: Site) -> Site:
        z = site.need("z").clone()
        if position >= z.shape[2]:
            raise EditError(f"{site.place} has positions 0 to {z.shape[2] - 1}, got {position}")
        z[:, head, position] = donor.to(z)
        return site.replace(z=z)

    return Intervention(f"patched z of head {head} at {position}", change, (layer,), stack.name, stack.kind)


def patch_states(model: Any, pair: Pair, direction: str = "denoising", positions: Places = "each") -> Patched:
    """The states that go into each layer from one input in the run of the other, one position at a time.

    positions: "each" or numbers: one at a time; None: all at once, which is the other run. Of an encoder-decoder the
    layers of the encoder. Errors: as `patch_heads`, and for layers whose states have no positions of the input.
    """
    model = load(model)
    runs, donor = pair.ends(direction)
    stack = explained_stack(model, runs, "self")
    where = None if positions is None else _checked(runs.n_tokens, positions)
    groups = [list(range(runs.n_tokens))] if where is None else [[number] for number in where]
    answers, bar = [], tqdm(total=stack.n_layers * len(groups), desc="patching states", delay=1.0, leave=False,
                            disable=None, unit="pass")  # fmt: skip
    with Meter() as meter, bar:
        ends = baselines(model, pair)
        for layer in range(stack.n_layers):
            at = layer_input(model, runs, layer)
            _, states = at.read(model, [Row(donor)])
            answers.append(_with_states(model, Row(runs), pair.target, at, states[0], groups, bar))
    return Patched(
        torch.stack(answers)[:, None], "state", direction, ends, pair.target, stack.name, stack.kind, where,
        pair.pieces, model.name, meter.forward, meter.seconds,
    )  # fmt: skip


def _with_states(
    model: Model,
    row: Row,
    target: ResolvedTarget,
    at: LayerInput,
    donor: Float[Tensor, "token d_model"],
    groups: Sequence[list[int]],
    bar: tqdm,
) -> Float[Tensor, " group"]:
    """The target of a row with the states of another run at each group of positions of one layer's input."""

    def run(part: Sequence[list[int]], n: int) -> Tensor:
        def change(states: Tensor) -> Tensor:
            new = states.clone()
            for number, places in enumerate(part[:n]):
                new[number, places] = donor[places].to(new)
            return new

        with torch.no_grad(), at.through(change, n):
            return target(logits(model, [row] * n)).double().cpu()

    answers = list[Tensor]()
    size = batch_size(row.length)
    while len(answers) < len(groups):
        part = groups[len(answers) : len(answers) + size]
        found = halving(partial(run, part), len(part), "rows")
        answers.extend(found)
        size = min(size, len(found))
        bar.update(len(found))
    return torch.stack(answers)
