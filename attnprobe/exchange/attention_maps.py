"""Attention maps to the inputs of bertviz and CircuitsVis, and from what transformers hands out.

>>> from bertviz import head_view                    # doctest: +SKIP
>>> head_view(**to_bertviz(model.capture(text)))     # doctest: +SKIP
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from attnprobe.capture import Capture, head_numbers
from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.exchange.kinds import a_capture
from attnprobe.exchange.outside import capture_of, example_of, site_of
from attnprobe.site import BESIDE_TEXT, Kind, Site

# (stack, kind) -> what bertviz calls it.
_OF_TWO = {
    ("encoder", "self"): "encoder_attention",
    ("decoder", "self"): "decoder_attention",
    ("decoder", "cross"): "cross_attention",
}


def to_bertviz(capture: Any, *, stack: str | None = None) -> dict[str, Any]:
    """The arguments of bertviz's `head_view` and `model_view`: maps [1 head query key] by layer, and tokens.

    Of an encoder-decoder the encoder's, decoder's and cross-attention that were kept, with the tokens of both sides; of
    a pair of texts also where the second begins. stack: one stack's self-attention alone. Errors: `InputError` where
    the layers of a stack differ in shape, or tokens do not fit.
    """
    known = a_capture(capture, "to_bertviz").stacks()
    if stack is None and ("decoder", "cross") in known:
        return _of_both_sides(capture)
    stack = capture.select(stack, "self")[0].place.stack
    maps = _maps(capture, stack, "self")
    found = {"attention": maps, "tokens": _tokens(capture, stack, maps[0].shape[-1])}
    in_pair = capture.example.in_pair
    return found | ({"sentence_b_start": in_pair.index(True)} if in_pair and True in in_pair else {})


def _of_both_sides(capture: Capture) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (stack, kind), name in _OF_TWO.items():
        if (stack, kind) in capture.stacks():
            found[name] = _maps(capture, stack, kind)  # type: ignore[arg-type]
    n_written, n_read = found["cross_attention"][0].shape[-2:]
    if "encoder_attention" in found or n_read == capture.example.n_tokens:
        found["encoder_tokens"] = _tokens(capture, "encoder", n_read)
    found["decoder_tokens"] = _tokens(capture, "decoder", n_written)
    return found


def to_circuitsvis(capture: Any, layer: int | None = None, *, stack: str | None = None) -> dict[str, Any]:
    """The arguments of CircuitsVis's `attention_heads` for a layer: tokens, attention [head destination source], names.

    `attention_patterns` takes the first two. Of self-attention: CircuitsVis draws one list of tokens on both sides.
    Errors: `InputError` without a layer, or for one that was not kept.
    """
    sites = a_capture(capture, "to_circuitsvis").select(stack, "self")
    stack = sites[0].place.stack
    maps = _maps(capture, stack, "self")
    layers = [site.layer for site in sites if not site.place.part]
    if layer not in layers:
        got = "to_circuitsvis draws one layer: say layer=…" if layer is None else f"layer {layer!r} was not kept"
        raise InputError(f"{got}; there are {', '.join(map(str, layers))}")
    heads = head_numbers(next(site for site in sites if site.layer == layer))
    weights = maps[layers.index(layer)][0]
    return {
        "tokens": _tokens(capture, stack, weights.shape[-1]),
        "attention": weights,
        "attention_head_names": [f"L{layer}H{head}" for head in heads],
    }


def from_attentions(
    attentions: Sequence[Tensor] | None = None,
    tokens: Sequence[str] | Example = (),
    *,
    encoder: Sequence[Tensor] | None = None,
    decoder: Sequence[Tensor] | None = None,
    cross: Sequence[Tensor] | None = None,
    decoder_tokens: Sequence[str] = (),
    stack: str = "encoder",
    model: str = "recorded elsewhere",
) -> Capture:
    """A capture of maps by layer, [1 head query key] each: the `attentions` of a transformers model, bertviz's inputs.

    attentions: of a model with one stack; or those of an encoder-decoder by name. tokens: what is attended to (of an
    encoder-decoder the encoder's), names or the example. The capture is for looking at: it has maps alone.
    Errors: `InputError` for shapes that do not fit the tokens, or no maps at all.
    """
    if attentions is not None and (encoder is not None or decoder is not None or cross is not None):
        raise InputError("give attentions, or those of an encoder-decoder by name, not both")
    example = example_of(tokens, answer=decoder_tokens)
    given: list[tuple[str, Kind, Sequence[Tensor] | None]] = [
        (stack, "self", attentions),
        ("encoder", "self", encoder),
        ("decoder", "self", decoder),
        ("decoder", "cross", cross),
    ]
    sites: list[Site] = []
    for where, kind, maps in given:
        for layer, weights in enumerate(maps if maps is not None else ()):
            whole = torch.as_tensor(weights)
            whole = whole[None] if whole.ndim == 3 else whole
            sites.append(site_of(where, kind, layer, f"{where} {kind} {layer}", weights=whole))
    return capture_of(example, sites, model)


def _maps(capture: Capture, stack: str | None, kind: Kind) -> tuple[Tensor, ...]:
    """Maps by layer, [1 head query key], on the CPU."""
    maps = tuple(layer[None].detach().float().cpu() for layer in capture.maps(stack, kind))
    if len({tuple(layer.shape) for layer in maps}) > 1:
        raise InputError(
            f"the layers differ in shape ({', '.join(str(tuple(m.shape[1:])) for m in maps[:3])}, …), which other "
            "tools do not draw together; keep those that are alike: keep=Keep.of('weights', layers=…, heads=…)"
        )
    return maps


def _tokens(capture: Capture, stack: str, n: int) -> list[str]:
    """The names of n positions of a stack, or numbers where they have no names."""
    example = capture.example
    answer = list(map(str, example.notes.get("decoder_tokens", ())))
    if stack == "decoder" and len(answer) == n:
        return answer
    beside = stack in BESIDE_TEXT and "input_ids" in example.inputs
    return list(example.tokens) if n == example.n_tokens and not beside else [str(at) for at in range(n)]
