"""AtMan: what changes when the scores on a token are turned down, in all heads and layers."""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Edit
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.intervention import Intervention
from attnprobe.methods import Scores, methods
from attnprobe.methods.knock_out import check_keys, stacks_of_keys
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model, Stack
from attnprobe.models.removal import units as removable
from attnprobe.models.rows import Row
from attnprobe.site import Site
from attnprobe.target import ResolvedTarget

Factors = Float[Tensor, " token"]
Change = Callable[[Site, Tensor], Site]


@methods.add(
    family="ablation",
    source="Deiseroth et al. 2023 (AtMan); additive form ours",
    formula="y(x) − y(x; s^l_ij + ln f); published: log p(x) − log p(x; (s^l_ij − min_k s^l_ik) f)",
    cost="n F",
    signed=True,
    passes=lambda size, o: (size.n_units + 1, 0),
)
def atman(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    kept: float = 0.1,
    form: Literal["additive", "published"] = "additive",
    similar: float | None = None,
) -> Scores:
    """How much the target falls when attention to a token is turned down; signed; special tokens get 0.

    kept: f, the share that is left (the paper's f is the share taken away). form="additive" (default) adds ln f to the
    scores on the token in every head and layer: its odds against every other key become f times what they were, as in
    knock_out where f goes to 0; target units. form="published" does what the authors' code does: shift the scores of a
    row by their minimum over all keys, those behind a mask included, then multiply those on the token by f (the token
    of the minimum stays as it is); its scores are the rise of the target's cross-entropy, in nats.
    similar: turn down tokens whose embedding has at least this cosine with the token's as well, by 1 − (1 − f) cosine
    (the authors: 0.6); None: the token alone.
    """
    _check(kept, form, similar)
    explained = target if form == "additive" else _cross_entropy(target)
    unit = removable(example, target).tolist()
    factors = _factors(model, example, unit, kept, similar)
    change: Change = _add if form == "additive" else _as_published
    stacks = stacks_of_keys(model, example)
    rows = [Row(example, edits=_edits(stacks, change, factor, j)) for j, factor in zip(unit, factors, strict=True)]
    found = targets(model, [Row(example), *rows], explained, progress="atman")
    values = torch.zeros(example.n_tokens, dtype=found.dtype)
    values[unit] = found[0] - found[1:]
    return Scores(values, used={"explained": explained.description})


def _check(kept: float, form: str, similar: float | None) -> None:
    if form not in ("additive", "published"):
        raise InputError(f"form is 'additive' or 'published', got '{form}'")
    if not 0 < kept <= 1:
        raise InputError(f"kept is a share above 0, at most 1, got {kept}; to cut a token off use knock_out")
    if similar is not None and not -1 <= similar <= 1:
        raise InputError(f"similar is a cosine, -1 to 1, got {similar}")


def _cross_entropy(target: ResolvedTarget) -> ResolvedTarget:
    """The target as a log-probability, whose fall is the rise of the cross-entropy."""
    if target.function is not None:
        if target.scale != "log_probability":
            raise InputError(
                f"the published form explains a cross-entropy, which {target.description} has not got; use "
                "form='additive'"
            )
        return target
    if math.isnan(target.label_probability):
        raise InputError("the model gives one number, which has no cross-entropy; use form='additive'")
    return target.on("log_probability")


def _factors(
    model: Model, example: Example, unit: Sequence[int], kept: float, similar: float | None
) -> Float[Tensor, "unit token"]:
    """For each unit, what the scores on every token are turned down by: 1 leaves them."""
    cosine = torch.eye(example.n_tokens, dtype=torch.float64)
    if similar is not None:
        vectors = torch.nn.functional.normalize(model.embed(example).double().cpu(), dim=-1)
        near = vectors @ vectors.T
        cosine = torch.where(near >= similar, near, 0.0)
        cosine.fill_diagonal_(1)
    cosine = cosine.clamp(0, 1)
    return (kept * cosine + (1 - cosine))[list(unit)]  # `kept` itself where the cosine is 1, however small


def _edits(stacks: Sequence[Stack], change: Change, factors: Factors, token: int) -> tuple[Edit, ...]:
    return tuple(
        Intervention(f"turn down token {token}", lambda site: change(site, factors), None, stack.name, stack.kind)
        for stack in stacks
    )


def _add(site: Site, factors: Factors) -> Site:
    """The odds of a key against the others times its factor: ln f on its scores."""
    check_keys(site, len(factors))
    if site.scores is not None:
        return site.replace(scores=site.scores + factors.log().to(site.scores))
    # An edit before this one replaced the weights: the same odds, and the row keeps its mass.
    weights = site.need("weights")
    changed = weights * factors.to(weights)
    share = weights.sum(-1, keepdim=True) / changed.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)
    return site.replace(weights=changed * share)


def _as_published(site: Site, factors: Factors) -> Site:
    """Scores above the minimum of their row times the factor of their key; what is masked stays masked."""
    check_keys(site, len(factors))
    scores = site.need("scores")
    above = (scores - _unmasked(site).amin(-1, keepdim=True)) * factors.to(scores)
    return site.replace(scores=above if site.visible is None else torch.where(site.visible, above, scores))


def _unmasked(site: Site) -> Float[Tensor, "batch head query key"]:
    """Scores as they were before the mask; `InputError` where they are more than a multiple of query · key."""
    scores = site.need("scores")
    if site.visible is None or bool(site.visible.all()):
        return scores
    seen = site.visible.expand_as(scores)
    if site.query is not None and site.key is not None:
        product = (site.query @ site.key.mT).to(scores)
        scale = (product[seen] * scores[seen]).sum() / (product[seen] ** 2).sum().clamp(
            min=torch.finfo(scores.dtype).tiny
        )
        gap = (scores[seen] - scale * product[seen]).abs().max()
        eps = torch.finfo(site.query.dtype).eps
        if gap <= min(100 * eps, eps**0.5) * (1 + scores[seen].abs().max()):
            return scale * product
    raise InputError(
        f"{site.place}: the published form takes the minimum over masked keys too, whose scores are not known here "
        "(they are no multiple of query · key: a bias, a cap); use form='additive'"
    )
