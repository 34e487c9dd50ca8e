"""Captures as TransformerLens names them: `blocks.0.attn.hook_pattern` and its kin, and from such a cache.

Axes are TransformerLens's: patterns and scores [batch head query key], q, k, v and z [batch position head size].
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attnprobe.capture import Capture
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.exchange.kinds import a_capture
from attnprobe.exchange.outside import capture_of, example_of, site_of
from attnprobe.site import Kind, Site

_HOOKS = {
    "weights": "hook_pattern",
    "scores": "hook_attn_scores",
    "query": "hook_q",
    "key": "hook_k",
    "value": "hook_v",
    "z": "hook_z",
}
_ROTATED = {"query": "hook_rot_q", "key": "hook_rot_k"}
# Tensors whose heads stand in front of the positions here, and behind them there.
_BY_POSITION = ("query", "key", "value", "z")
_SHARED = ("key", "value")
# The blocks of an encoder-decoder; of one stack they are "blocks" and "attn".
_OF_TWO = {
    ("encoder", "self"): ("encoder_blocks", "attn"),
    ("decoder", "self"): ("decoder_blocks", "self_attn"),
    ("decoder", "cross"): ("decoder_blocks", "cross_attn"),
}
_NAME = re.compile(r"(?:(encoder|decoder)(?:_blocks)?|blocks)\.(\d+)\.(attn|self_attn|cross_attn)\.(hook_\w+)")


def to_transformer_lens(capture: Any, *, rotary: bool = False, stack: str | None = None) -> dict[str, Tensor]:
    """What was kept of a capture by TransformerLens's names, such as `blocks.0.attn.hook_pattern`.

    Keep "weights", "scores", "query", "key", "value", "z" as needed. rotary: the model turns queries and keys by their
    position, so that what was kept are `hook_rot_q` and `hook_rot_k`. Keys and values that heads share are there once a
    group. Masked scores are -inf. stack: one stack alone; None for all, as of an encoder-decoder.
    Errors: `InputError` where layers keep parts (windows, images) or only some heads, which have no such names.
    """
    a_capture(capture, "to_transformer_lens")
    sites = capture.sites if stack is None else [site for site in capture.sites if site.place.stack == stack]
    if not sites:
        raise InputError("nothing was kept of this stack; TransformerLens names need weights, scores, value or z")
    known = {(site.place.stack, site.place.kind) for site in sites}
    if len(known) > 1 and not known <= set(_OF_TWO):
        raise InputError(f"say stack=…, one of {', '.join(sorted(stack for stack, _ in known))}")
    found: dict[str, Tensor] = {}
    for site in sites:
        if site.place.part or site.n_rows != 1:
            raise InputError(
                f"{site.place} keeps parts apart (windows, images), which TransformerLens has no names for"
            )
        if site.heads is not None:
            raise InputError(f"{site.place} kept heads {site.heads} alone; TransformerLens's tensors have all heads")
        blocks, attention = _OF_TWO[site.place.stack, site.place.kind] if len(known) > 1 else ("blocks", "attn")
        hooks = {**_HOOKS, **(_ROTATED if rotary else {})}
        for name, hook in hooks.items():
            if (tensor := _theirs(site, name)) is not None:
                found[f"{blocks}.{site.layer}.{attention}.{hook}"] = tensor
    return found


def _theirs(site: Site, name: str) -> Tensor | None:
    """A tensor of a site on TransformerLens's axes; None where it was not kept."""
    tensor: Tensor | None = getattr(site, name)
    if tensor is None:
        return None
    tensor = tensor.detach()
    if name in _SHARED and site.n_kv_heads and site.n_kv_heads < tensor.shape[1]:
        tensor = tensor[:, :: tensor.shape[1] // site.n_kv_heads]
    if name == "scores":
        return tensor.masked_fill(tensor <= torch.finfo(tensor.dtype).min / 2, -torch.inf)
    return tensor.transpose(1, 2) if name in _BY_POSITION else tensor


def from_transformer_lens(
    cache: Mapping[str, Tensor] | Any,
    tokens: Sequence[str] | Example,
    *,
    decoder_tokens: Sequence[str] = (),
    model: str = "recorded by TransformerLens",
) -> Capture:
    """A capture of an activation cache, or of any tensors under TransformerLens's names, for looking at.

    cache: of one text, with or without its batch axis. Rotated queries and keys stand before those that are not.
    tokens: what is attended to, names or the example. Where patterns, values and z are all there, `checks` says how far
    weights @ value is from z. Errors: `InputError` for no attention in it, or shapes that do not fit.
    """
    if not hasattr(cache, "items"):
        raise InputError(f"from_transformer_lens takes tensors by TransformerLens's names, got {type(cache).__name__}")
    named = dict(cache.items())
    layers: dict[tuple[str, str, int], dict[str, Tensor]] = {}
    for name, tensor in named.items():
        if match := _NAME.fullmatch(str(name)):
            stack, layer, attention, hook = match.groups()
            layers.setdefault((stack or "", attention, int(layer)), {})[hook] = tensor
    if not layers:
        raise InputError(
            f"there is no attention among the {len(named)} tensors; expected names such as blocks.0.attn.hook_pattern"
        )
    example = example_of(tokens, answer=decoder_tokens)
    order = [("encoder", "self"), ("decoder", "self"), ("decoder", "cross")]
    only = _only_stack([hooks["hook_pattern"] for hooks in layers.values() if "hook_pattern" in hooks])
    sites = [_site(stack or only, attention, layer, hooks) for (stack, attention, layer), hooks in layers.items()]
    sites.sort(key=lambda site: (order.index((site.place.stack, site.place.kind)), site.layer))
    return capture_of(example, sites, model)


def _site(stack: str, attention: str, layer: int, hooks: Mapping[str, Tensor]) -> Site:
    path = f"{stack}.{layer}.{attention}"
    kind: Kind = "cross" if attention == "cross_attn" else "self"
    found: dict[str, Tensor | None] = {}
    for name, hook in _HOOKS.items():
        tensor = hooks.get(_ROTATED.get(name, ""), hooks.get(hook))
        if tensor is None:
            continue
        tensor = tensor if tensor.ndim == 4 else tensor[None]
        found[name] = tensor.transpose(1, 2) if name in _BY_POSITION else tensor
    shared = {tensor.shape[1] for name, tensor in found.items() if name in _SHARED and tensor is not None}
    site = site_of(stack, kind, layer, path, **_all_heads(found))
    return replace(site, n_kv_heads=min(shared)) if shared else site


def _only_stack(patterns: Sequence[Tensor]) -> str:
    """The only stack of a model: a decoder where nobody looks ahead, else an encoder."""
    return "encoder" if any(bool(pattern.triu(1).abs().sum() > 0) for pattern in patterns) else "decoder"


def _all_heads(found: Mapping[str, Tensor | None]) -> dict[str, Tensor | None]:
    """Keys and values that heads share, once a head."""
    n_heads = max((tensor.shape[1] for tensor in found.values() if tensor is not None), default=0)
    return {
        name: tensor.repeat_interleave(n_heads // tensor.shape[1], 1)
        if tensor is not None and name in _SHARED and 0 < tensor.shape[1] < n_heads and n_heads % tensor.shape[1] == 0
        else tensor
        for name, tensor in found.items()
    }
