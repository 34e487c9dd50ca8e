"""Captures made by hand: any weights on any tokens, so that every score has a known value."""

import torch

from attnprobe.capture import Capture
from attnprobe.example import Example
from attnprobe.site import Place, Site


def capture_of(
    weights,
    tokens=None,
    *,
    special=None,
    kind="self",
    stack="encoder",
    axis="source",
    ids=None,
    pair=None,
    answer=False,
):
    """A capture of layers of weights [layer head query key] (or a list of [head query key]) on tokens by name."""
    layers = [torch.as_tensor(layer).double() for layer in weights]
    n = layers[0].shape[-1]
    tokens = tuple(tokens or (f"w{i}" for i in range(n)))
    known = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
    ids = [known[token] for token in tokens] if ids is None else ids
    special = tuple(bool(s) for s in (special or [token.startswith("[") for token in tokens]))
    inputs = {"input_ids": torch.tensor([ids])} if axis == "source" else {"pixel_values": torch.zeros(1, 3, 4, 4)}
    if answer:
        inputs["decoder_input_ids"] = torch.tensor([[0] * layers[0].shape[-2]])
    example = Example(
        text=" ".join(tokens),
        inputs=inputs,
        tokens=tokens,
        spans=(None,) * n,
        is_special=special,
        words=tuple(None if s else i for i, s in enumerate(special)),
        axis=axis,
        pair=None if pair is None else "second",
        in_pair=pair,
    )
    sites = tuple(Site(Place(stack, kind, i, f"layer.{i}"), weights=w[None]) for i, w in enumerate(layers))
    return Capture(example, "made", sites, torch.zeros(1, 2), ())


def one_hot(keys, n):
    """Weights [query key] of one head: query i looks at keys[i] alone."""
    return torch.nn.functional.one_hot(torch.tensor(keys), n).double()


def random_weights(*shape, causal=False, seed=0):
    """Random weights whose rows sum to 1."""
    scores = 2 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if causal:
        ahead = torch.ones(shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, -torch.inf)
    return scores.softmax(-1)
