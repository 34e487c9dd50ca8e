"""Path patching: what one head passes to another directly, and so on to the answer.

After Wang et al. 2023 and Goldowsky-Dill et al. 2023, in two runs. In the first the sender gives what it gives on the
other input, every other head is held at what it gave, and the receiver's query, key or value is noted: it has changed
by what came from the sender alone. In the second that is put into a plain run, and everything behind it follows.
Feed-forward parts between the two pass on what reaches them, unless they are held as well.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_map, tree_map_only

from attnprobe.attention.seam import NOTHING, Edit, Tape
from attnprobe.errors import EditError, InputError
from attnprobe.example import Example
from attnprobe.heads.addresses import Head, head_of, heads_named, is_pair
from attnprobe.heads.pairs import Baselines, Pair, baselines, refuse_parts
from attnprobe.heads.rows import Parts, z_of
from attnprobe.heads.stream_nodes import Node
from attnprobe.intervention import Intervention
from attnprobe.models import load
from attnprobe.models.anatomy import replacing
from attnprobe.models.evaluator import Meter, count, targets
from attnprobe.models.model import Model
from attnprobe.models.projections import projections
from attnprobe.models.recorded import blocks_of
from attnprobe.models.rows import Row
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget

Key = tuple[str, str, int]
Given = dict[Key, Parts]

# Scores that are a straight function of q kᵀ differ from one by this share of the largest at most.
STRAIGHT = {torch.float64: 1e-9, torch.float32: 1e-4}


@dataclass(frozen=True, eq=False)
class Paths:
    """How much of the way to the other input each path goes: 0 nothing, 1 all; NaN where no path leads.

    answers: the target of each run. receivers: heads with what of them reads (none: all three), and the answer.
    frozen: whether feed-forward parts were held.
    """

    answers: Float[Tensor, "sender receiver"] = field(repr=False)
    senders: tuple[Head, ...]
    receivers: tuple[Node, ...]
    direction: str
    baselines: Baselines
    target: ResolvedTarget
    frozen: bool = False
    model: str = ""
    forward_passes: int = 0
    seconds: float = 0.0

    @property
    def values(self) -> Float[Tensor, "sender receiver"]:
        """Shares of the way between the two inputs."""
        return self.baselines.share(self.answers, self.direction)

    def to_frame(self) -> pd.DataFrame:
        """A row a path: sender, receiver, answer, share."""
        places = [(s.stack, s.kind) for s in self.senders] + [(r.stack, r.kind) for r in self.receivers if r.stack]
        several = len(set(places)) > 1
        rows = [
            (str(sender) if several else sender.short, str(receiver) if several else receiver.short, row, column)
            for row, sender in enumerate(self.senders)
            for column, receiver in enumerate(self.receivers)
        ]
        frame = pd.DataFrame(rows, columns=["sender", "receiver", "answer", "share"])
        at = (frame.answer.to_numpy(), frame.share.to_numpy())
        return frame.assign(answer=self.answers.numpy()[at], share=self.values.numpy()[at]).dropna(ignore_index=True)

    def top(self, n: int = 10) -> pd.DataFrame:
        """The n paths that moved the answer most, whatever the direction."""
        frame = self.to_frame()
        return frame.loc[frame.share.abs().sort_values(ascending=False, kind="stable").index[:n]].reset_index(drop=True)


def path_patching(
    model: Any,
    pair: Pair,
    senders: Any,
    receivers: Any = "answer",
    direction: str = "noising",
    *,
    freeze_mlps: bool = False,
) -> Paths:
    """The effect of each sender on each receiver by the direct path between the two, one path at a time.

    senders: addresses of heads. receivers: "5.1.q", "5.1.k", "5.1.v", "5.1" (all three), or "answer": what reaches the
    answer past all other heads. freeze_mlps: hold feed-forward parts too. direction: as in `patch_heads`.
    Errors: `InputError` for heads that are not there, windows or images kept apart, the same target on both inputs;
    `EditError` for queries or keys of scores that are more than their product.
    """
    model = load(model)
    sending, reading = heads_named(model, senders), _receivers(model, receivers)
    if not sending:
        raise InputError("senders is empty; name a head (0.1)")
    for stack in model.stacks:
        refuse_parts(model, stack)
    runs, donor = pair.ends(direction)
    with Meter() as meter:
        ends = baselines(model, pair)
        own, other = _z(model, runs), _z(model, donor)
        notes: list[dict[Node, Site]] = [{} for _ in sending]
        first = [_held(own, other, one, reading, seen) for one, seen in zip(sending, notes, strict=True)]
        with _mlps_held(model, runs) if freeze_mlps else nullcontext():
            rows = [Row(runs, edits=(edit,)) for edit in first]
            direct = targets(model, rows, pair.target, progress="holding heads").double()
        answers = torch.full((len(sending), len(reading)), torch.nan, dtype=torch.float64)
        places, rows = [], list[Row]()
        for row, sender in enumerate(sending):
            for column, node in enumerate(reading):
                if node.part == "answer":
                    answers[row, column] = direct[row]
                elif _leads(sender, node):
                    places.append((row, column))
                    rows.append(Row(runs, edits=(_put(node, notes[row][node]),)))
        found = targets(model, rows, pair.target, progress="patching paths").double()
        for (row, column), answer in zip(places, found, strict=True):
            answers[row, column] = answer
    return Paths(
        answers, sending, reading, direction, ends, pair.target, freeze_mlps, model.name, meter.forward, meter.seconds
    )


def _receivers(model: Model, given: Any) -> tuple[Node, ...]:
    """What reads, by name; one or several."""
    one = isinstance(given, str | Head | Node) or is_pair(given) or not isinstance(given, Iterable)
    found = tuple(dict.fromkeys(_receiver(model, name) for name in ([given] if one else given)))
    if not found:
        raise InputError("receivers is empty; name a head (5.1.k) or the answer")
    return found


def _receiver(model: Model, given: Any) -> Node:
    if isinstance(given, Node):
        return given
    if isinstance(given, str) and given.strip() == "answer":
        return Node("answer")
    reads = given.strip()[-1] if isinstance(given, str) and given.strip()[-2:] in (".q", ".k", ".v") else ""
    head = head_of(model, given.strip()[:-2] if reads else given)
    return Node("head", head.stack, head.kind, head.layer, head.head, reads)


def _leads(sender: Head, node: Node) -> bool:
    """Whether a path can lead there: a head of the same layer or of one before reads nothing of the sender."""
    return (sender.stack, sender.kind) != (node.stack, node.kind) or sender.layer < node.layer


def _z(model: Model, example: Example) -> Given:
    """z of every layer of every stack."""
    return {(s.name, s.kind, layer): z for s in model.stacks for layer, z in enumerate(z_of(model, example, s))}


def _held(own: Given, other: Given, sender: Head, receivers: Sequence[Node], seen: dict[Node, Site]) -> Edit:
    """The edit of the first run: the sender gives what it gave on the other input, every other head its own.

    What each receiver is asked with is put into `seen` as it comes by.
    """

    def change(site: Site) -> Site:
        key = (site.place.stack, site.place.kind, site.place.layer)
        for node in receivers:
            if (node.stack, node.kind, node.layer) == key:
                seen[node] = site.map(partial(_of_head, node.head))
        z = own[key][0][None].to(site.need("z")).expand_as(site.need("z")).clone()
        if (sender.stack, sender.kind, sender.layer) == key:
            z[:, sender.head] = other[key][0][sender.head].to(z)
        return site.replace(z=z)

    return Intervention(f"all heads held but {sender}", change)


def _of_head(head: int, tensor: Tensor) -> Tensor:
    """One head's part of a tensor of a site; a mask may be one for all heads."""
    return tensor[:, head : head + 1].clone() if tensor.shape[1] > 1 else tensor


def _put(node: Node, noted: Site) -> Edit:
    """The edit of the second run: a receiver reads what was noted."""

    def change(site: Site) -> Site:
        if node.reads == "":
            return site.replace(z=_one(site.need("z"), node.head, noted.need("z")))
        if node.reads == "v":
            return site.replace(value=_one(site.need("value"), node.head, noted.need("value")))
        return site.replace(scores=_one(site.need("scores"), node.head, _scores(site, node, noted)))

    return Intervention(f"{node} read anew", change, (node.layer,), node.stack, node.kind)  # type: ignore[arg-type]


def _one(tensor: Tensor, head: int, given: Tensor) -> Tensor:
    new = tensor.clone()
    new[:, head] = given[:, 0].to(new)
    return new


def _scores(site: Site, node: Node, noted: Site) -> Float[Tensor, "row 1 query key"]:
    """Scores of one head with its queries, or its keys, as they were noted: scores + scale · Δ(q kᵀ).

    The scale is found from both changing at once, which was noted as well. A number that all scores of a query have in
    common says nothing (gpt-oss takes the largest score and sink from all).
    """
    at = slice(node.head, node.head + 1)
    query, key, scores = (site.need(name)[:, at].double() for name in ("query", "key", "scores"))
    new_query, new_key, new_scores = (noted.need(name).double() for name in ("query", "key", "scores"))
    was = query @ key.mT
    seen = (scores > torch.finfo(site.need("scores").dtype).min / 2) & torch.isfinite(new_scores)
    moved, both = (_apart(moves, seen) for moves in (new_scores - scores, new_query @ new_key.mT - was))
    scale = (moved * both).sum() / both.square().sum().clamp(min=torch.finfo(torch.float64).tiny)
    size = float(scores[seen].abs().max()) if bool(seen.any()) else 0.0
    if float((moved - scale * both).abs().max()) > STRAIGHT.get(site.need("scores").dtype, 2e-2) * max(size, 1e-6):
        raise EditError(
            f"{site.place}: scores are more than a scaled product of query and key (a cap, a distance), so what {node} "
            f"reads cannot be told apart; ask for the whole head: {node.layer}.{node.head}"
        )
    asked = new_query @ key.mT if node.reads == "q" else query @ new_key.mT
    return scores + scale * torch.where(seen, asked - was, 0.0)


def _apart(moves: Tensor, seen: Tensor) -> Tensor:
    """Changes of the scores of each query without their mean over the keys that it sees; 0 for others."""
    moves = torch.where(seen, moves, 0.0)
    mean = moves.sum(-1, keepdim=True) / seen.sum(-1, keepdim=True).clamp(min=1)
    return torch.where(seen, moves - mean, 0.0)


def _mlps_held(model: Model, example: Example) -> AbstractContextManager[None]:
    """A block in which feed-forward parts read what they read on this example, row by row.

    They are what holds matrices in a layer and is no part of its attention.
    """
    given: dict[nn.Module, list[tuple[Any, ...]]] = {part: [] for part in _beside_attention(model)}
    calls: Counter[nn.Module] = Counter()

    def note(part: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
        given[part].append(tree_map_only(Tensor, torch.clone, (args, kwargs)))
        return forward(*args, **kwargs)

    def hold(part: nn.Module, forward: Any, *args: Any, **kwargs: Any) -> Any:
        known = given[part][calls[part] % len(given[part])]
        calls[part] += 1
        held_args, held = tree_map(_as_many, known, (args, kwargs))
        return forward(*held_args, **held)

    count(forward=1)
    with torch.no_grad(), replacing({part: partial(note, part) for part in given}):
        model.forward([Row(example)], Tape(keep=NOTHING, check=False, n_rows=1))
    return replacing({part: partial(hold, part) for part, known in given.items() if known})


def _beside_attention(model: Model) -> list[nn.Module]:
    """Modules of layers that hold matrices and are no part of attention; `CaptureError` where that cannot be told."""
    layers = projections(model)
    for projection in layers:
        projection.need("W_O")
    own = {path for p in layers for path in (p.query_map, p.key_map, p.value_map, p.output_map) if path}
    own |= {p.path for p in layers}
    paths = {id(part): path for path, part in model.module.named_modules()}
    found = (part for block in blocks_of(model) for part in block.modules())
    return [
        part
        for part in found
        if any(parameter.ndim > 1 for parameter in part.parameters(recurse=False))
        and not any(paths[id(part)] == path or paths[id(part)].startswith(path + ".") for path in own)
    ]


def _as_many(held: Any, given: Any) -> Any:
    """What was held, once for each row of what is given now; rows may be laid end to end."""
    if not isinstance(held, Tensor) or not held.ndim or held.shape == given.shape:
        return held
    return held.repeat(len(given) // len(held), *[1] * (held.ndim - 1))
