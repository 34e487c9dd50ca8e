"""Copying heads: those that raise the logit of the word that they look at."""

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.attention.seam import Keep
from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.heads import probe_scores
from attnprobe.heads.circuits import way_out
from attnprobe.heads.induction import around, random_ids
from attnprobe.heads.sides import Scores, by_layer, sides
from attnprobe.heads.wiring import Wiring, wiring
from attnprobe.models.model import Model, Stack
from attnprobe.models.projections import Projection
from attnprobe.models.ways import Way
from attnprobe.models.word_tables import WordTable, word_table
from attnprobe.site import Site

# So few tokens cannot be told apart by their logits.
SHORTEST = 3
# Eigenvalues, or rises of logits, below this share of the largest are rounding.
NOTHING = 1e-12
WORDS_AT_ONCE = 8192


@probe_scores.add(
    family="parameters",
    source="Elhage et al. 2021 (copying by eigenvalues)",
    label="Copying, by OV eigenvalues",
    low=-1,
    high=1,
    unit="number",
)
def ov_copying(model: Model, stack: Stack, *, seed: int = 0) -> Scores:
    """Re Σλ / Σ|λ| of embedding, W_V W_O, unembedding: 1 where every word raises itself, -1 where it lowers itself.

    Nothing is drawn. Gain and centring of all norms on the way are folded in. A matrix may be far from symmetric, and
    its eigenvalues then say little of what it does to single words. NaN for a model without an unembedding, or where a
    map lies on the way to it (`why_no_copying`), and for a head that writes nothing into logits.
    """
    try:
        routes = _routes(model, stack)
    except (InputError, CaptureError):
        return _nowhere(stack)
    through, found = routes.through(), []
    for layer, one in enumerate(routes.wires.layers):
        reads = routes.ins[layer].folded(routes.wires.weight(layer, "value"))
        written = routes.outs[layer].forward(one.need("W_O").double())
        small = written @ (through.to(written) @ reads)
        found.append(torch.stack([_share(torch.linalg.eigvals(head)) for head in small]))
    return by_layer([share.cpu() for share in found])


def _share(eigenvalues: Tensor) -> Tensor:
    total = eigenvalues.abs().sum()
    return eigenvalues.real.sum() / total if float(total) > 0 else total * torch.nan


@dataclass(frozen=True, eq=False)
class _Routes:
    """The direct ways of words through the heads of a stack, by layer: into the values, and out to the logits."""

    wires: Wiring
    table: WordTable
    ins: tuple[Way, ...]
    outs: tuple[Way, ...]
    words_out: Float[Tensor, "d_model word"]

    def through(self) -> Float[Tensor, "d_model d_embedding"]:
        """Unembedding times embedding, summed over words; float64."""
        pairs = zip(self.words_out.split(WORDS_AT_ONCE, dim=1), self.table.weight.split(WORDS_AT_ONCE), strict=True)
        return torch.stack([out.double() @ given.to(out).double() for out, given in pairs]).sum(0)


def _routes(model: Model, stack: Stack) -> _Routes:
    table = word_table(model)
    wires = wiring(model, stack)
    outs = [way_out(model, wires, table, layer) for layer in range(stack.n_layers)]
    ins = tuple(table.way(wires.stream, wires.reader(layer, "value")) for layer in range(stack.n_layers))
    return _Routes(wires, table, ins, tuple(way for way, _ in outs), outs[0][1])


def why_no_copying(model: Model, stack: Stack) -> str | None:
    """The reason why `ov_copying` and `copying` have no number for a stack; None where they have."""
    try:
        _routes(model, stack)
    except (InputError, CaptureError) as error:
        return str(error)
    return None


@probe_scores.add(
    family="probe",
    source="Olsson et al. 2022 (copying score)",
    label="Copying, on random tokens",
    low=-1,
    high=1,
    unit="number",
)
def copying(model: Model, stack: Stack, *, length: int = 25, n_samples: int = 10, seed: int = 0) -> Scores:
    """How much of what a head raises is the word that it looks at, on random tokens: 1 for all, -1 for none.

    What the head writes for each key goes the direct way to the logits of the tokens of the sequence, their mean is
    subtracted, and of what is above 0 the key's own word has a share; mean over keys by their weight, scaled to -1 … 1.
    NaN as for `ov_copying`, and where keys are no tokens.
    """
    if length < SHORTEST or n_samples < 1:
        raise InputError(f"length is at least {SHORTEST} and n_samples at least 1, got {length} and {n_samples}")
    try:
        routes = _routes(model, stack)
    except (InputError, CaptureError):
        return _nowhere(stack)
    generator = torch.Generator().manual_seed(seed)
    keep = Keep.of("weights", "value", stack=stack.name, kind=stack.kind)
    shares = torch.zeros(stack.n_layers, max(stack.n_heads), dtype=torch.float64)
    masses = torch.zeros_like(shares)
    for _ in range(n_samples):
        drawn = _drawn(model, length, generator)
        if drawn is None:
            return _nowhere(stack)
        example, ids, first = drawn
        capture = model.capture(example, keep=keep).only(stack.name, stack.kind)
        if not sides(capture).keys:
            return _nowhere(stack)
        for site in capture.sites:
            share, weights = _of_site(site, routes, ids, first)
            shares[site.place.layer, : len(share)] += (weights * share.nan_to_num()).sum(-1)
            masses[site.place.layer, : len(share)] += (weights * ~share.isnan()).sum(-1)
    found = torch.where(masses > 0, 2 * shares / masses.clamp(min=1e-300) - 1, torch.nan)
    return by_layer([row[:n] for row, n in zip(found, stack.n_heads, strict=True)])


def _of_site(
    site: Site, routes: _Routes, ids: list[int], first: int
) -> tuple[Float[Tensor, "head key"], Float[Tensor, "head key"]]:
    """The share of each key's own word, and the weight on the key of all queries together."""
    layer, at = site.place.layer, slice(first, first + len(ids))
    words = list(dict.fromkeys(ids))
    words_out = routes.outs[layer].folded(routes.words_out[:, words].double())
    own = torch.tensor([words.index(index) for index in ids])
    share = _own_share(site.need("value")[0, :, at].double(), routes.wires.layers[layer], words_out, own)
    return share, site.need("weights")[0, :, :, at].double().sum(1).cpu()


def _own_share(
    value: Float[Tensor, "head key d_value"],
    one: Projection,
    words_out: Float[Tensor, "d_model word"],
    own: Int[Tensor, " key"],
) -> Float[Tensor, "head key"]:
    """Of what each key's value raises above the mean, the share of the key's own word; NaN where it raises nothing."""
    logits = (value @ one.need("W_O").double() @ words_out).cpu()
    raised = (logits - logits.mean(-1, keepdim=True)).relu()
    total = raised.sum(-1)
    known = total > NOTHING * logits.abs().amax(-1).clamp(min=1e-300)
    return torch.where(known, raised[:, torch.arange(len(own)), own] / total, torch.nan)


def _drawn(model: Model, length: int, generator: torch.Generator) -> tuple[Example, list[int], int] | None:
    """Random tokens as the model reads them, their ids, and where the first stands; None where it reads none.

    All different where there are enough; fewer where the model cannot read so many.
    """
    known = random_ids(model)
    if not known:
        return None
    before, behind = around(model)
    order = torch.randperm(len(known), generator=generator).tolist()
    drawn = [known[index] for index in order] * (length // len(known) + 1)
    refused: InputError | None = None
    for n in range(length, SHORTEST - 1, -1):
        try:
            return _read(model, [*before, *drawn[:n], *behind], drawn), drawn[:n], len(before)
        except InputError as error:
            refused = refused or error
    raise InputError(f"{model.name} reads no random tokens: {refused}") from refused


def _read(model: Model, ids: list[int], answer: list[int]) -> Example:
    """The ids as an example; an encoder-decoder gets any answer, so that it need not write one."""
    options: dict[str, Any] = {"answer": answer[:1]} if any(s.kind == "cross" for s in model.stacks) else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.example(ids, **options)


def _nowhere(stack: Stack) -> Scores:
    return by_layer([torch.full((n,), torch.nan, dtype=torch.float64) for n in stack.n_heads])
