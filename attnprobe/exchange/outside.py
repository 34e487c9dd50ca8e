"""Attention that another tool recorded, as a capture: for looking at, since the model behind it is not here."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from attnprobe.capture import Capture, Check
from attnprobe.errors import CaptureError, InputError
from attnprobe.example import Example
from attnprobe.exchange.matching import stands_for_nothing
from attnprobe.site import Kind, Normalizer, Place, Site

# How far computations of one product in float32 may be apart, in shares of the largest number.
TOLERANCE = 1e-3
_CONTINUES = re.compile(r"^##(?=.)")
_BEGINS = re.compile(r"^[Ġ▁]")


def example_of(tokens: Sequence[str] | Example, *, answer: Sequence[str] = ()) -> Example:
    """An example of nothing but tokens; the text is what they spell. answer: tokens of a decoder.

    Spaces stand where the tokens mark the begin of a word (Ġ, ▁), else before each that is not marked as going on (##).
    """
    if isinstance(tokens, Example):
        return tokens
    names = tuple(map(str, tokens))
    if not names:
        raise InputError("there are no tokens; give the name of each position")
    marked = any(_BEGINS.match(name) for name in names)
    special = tuple(stands_for_nothing(name) for name in names)
    text = ""
    spans: list[tuple[int, int] | None] = []
    words: list[int | None] = []
    for name, nothing in zip(names, special, strict=True):
        begins = bool(_BEGINS.match(name)) if marked else not _CONTINUES.match(name)
        piece = _BEGINS.sub("", _CONTINUES.sub("", name))
        if nothing:
            spans.append(None)
            words.append(None)
            continue
        begins = begins or not text or words[-1] is None
        text += " " if begins and text else ""
        words.append(max((w for w in words if w is not None), default=-1) + 1 if begins else words[-1])
        spans.append((len(text), len(text) + len(piece)))
        text += piece
    notes = {"decoder_tokens": tuple(map(str, answer))} if len(answer) else {}
    return Example(text, {}, names, tuple(spans), special, tuple(words), notes=notes)


def site_of(stack: str, kind: Kind, layer: int, path: str, **tensors: Tensor | None) -> Site:
    """A site of given tensors, batch axis 1; what its normalizer is nobody said, so it refuses to be called."""
    kept = {name: None if tensor is None else tensor.detach() for name, tensor in tensors.items()}
    weights, heads = kept.get("weights"), None
    for name, tensor in kept.items():
        if tensor is not None and (tensor.ndim != 4 or tensor.shape[0] != 1):
            raise InputError(f"{path}: {name} is [1 head query key or size], one text; got {tuple(tensor.shape)}")
        heads = tensor.shape[1] if tensor is not None and heads is None else heads
        if tensor is not None and tensor.shape[1] != heads:
            raise InputError(f"{path}: {name} has {tensor.shape[1]} heads, where others have {heads}")
    if weights is not None and not torch.isfinite(weights).all():
        raise InputError(f"{path}: weights are finite numbers; some are NaN or infinite")
    return Site(Place(stack, kind, layer, path, route="elsewhere"), **kept, normalizer=_unknown())  # type: ignore[arg-type]


def capture_of(example: Example, sites: Sequence[Site], model: str, logits: Tensor | None = None) -> Capture:
    """A capture of these sites; the checks say how far weights @ value is from z, where all three are there."""
    if not sites:
        raise InputError("there is no attention in what was given; give at least one layer")
    answer = example.notes.get("decoder_tokens", ())
    for site in sites:
        if site.weights is not None:
            n_queries = len(answer) if site.place.stack == "decoder" and answer else example.n_tokens
            n_keys = n_queries if site.place.kind == "self" else example.n_tokens
            _check_shape(site, n_queries, n_keys)
    checks = tuple(check for site in sites if (check := _product(site)) is not None)
    nothing = torch.full((1, 0), float("nan"))
    return Capture(example, model, tuple(sites), nothing if logits is None else logits, checks)


def _check_shape(site: Site, n_queries: int, n_keys: int) -> None:
    shape = tuple(site.need("weights").shape[-2:])
    if shape != (n_queries, n_keys):
        raise InputError(
            f"{site.place}: weights of {shape[0]} queries and {shape[1]} keys do not fit {n_queries} and {n_keys} "
            "tokens; give the tokens that were attended to, in their order"
        )


def _product(site: Site) -> Check | None:
    if site.weights is None or site.value is None or site.z is None:
        return None
    size = max(float(site.z.abs().max()), 1e-30)
    apart = float((site.weights.to(site.value.dtype) @ site.value - site.z).abs().max()) / size
    return Check("|weights @ value - z|", str(site.place), apart, TOLERANCE)


def _unknown() -> Normalizer:
    def refuse(scores: Tensor) -> Tensor:
        raise CaptureError(
            "this attention was recorded by another tool, so the function from scores to weights is not known; "
            "to change scores, capture the example with attnprobe"
        )

    return Normalizer("recorded elsewhere", refuse, "any")
