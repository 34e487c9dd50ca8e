"""Layers that mix positions without attention weights: nothing to show, and said by name."""

import re
from dataclasses import dataclass

from torch import nn

# Class name -> what such a layer is. The first that fits holds.
MAPLESS = (
    (r"Mamba\w*Mixer$|BambaMixer$|FalconH1Mixer$", "a state space: a recurrence over positions, no weights over keys"),
    (r"DeltaNet$|DeltaAttention$", "a gated delta rule: a recurrent memory, no softmax over keys"),
    (r"LightningAttention$|LinearAttention$|LinearSelfAttention$", "linear attention without a softmax over keys"),
    (r"Rwkv\w*Attention$", "a weighted recurrence (RWKV), no softmax over keys"),
    (r"Yoso\w*Attention$", "attention by hash collisions (YOSO): its weights are never formed"),
    (r"MraSelfAttention$", "attention at several resolutions (MRA) on sampled blocks, no softmax over all keys"),
    (r"FourierTransform$", "a Fourier transform over positions, with no parameters and no weights"),
    (r"Rglru$|RecurrentBlock$", "a gated linear recurrence (RG-LRU), no weights over keys"),
    (r"ShortConv\w*$", "a convolution over neighbouring positions"),
    (r"[mx]LSTM\w*(Layer|Block|Cell)$|LSTM$", "a recurrent network, no weights over keys"),
    (r"AutoCorrelation$|Autoformer\w*Attention$", "auto-correlation: weights over delays, not over keys"),
    (r"GatedAttention$", "a gate over features, no weights over positions"),
    (r"PatchMixerBlock$|FeatureMixerBlock$", "a mixing MLP over patches, no weights over keys"),
)


@dataclass(frozen=True)
class Mapless:
    """A layer without attention weights: its path, its class, and what it does instead."""

    path: str
    layer_class: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path or 'the model itself'} ({self.layer_class}): {self.reason}"


def mapless_layers(module: nn.Module) -> tuple[Mapless, ...]:
    """The layers of a model that mix positions without attention weights, in order, each once."""
    found: list[Mapless] = []
    for path, part in module.named_modules():
        if any(path.startswith(f"{known.path}.") for known in found):
            continue
        name = type(part).__name__
        reason = next((said for pattern, said in MAPLESS if re.search(pattern, name)), None)
        if reason is not None:
            found.append(Mapless(path, name, reason))
    return tuple(found)


def in_words(found: tuple[Mapless, ...]) -> str:
    """One sentence a kind, with how many layers of it there are."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for layer in found:
        kinds.setdefault((layer.layer_class, layer.reason), []).append(layer.path)
    return "; ".join(f"{len(paths)} x {name} ({reason})" for (name, reason), paths in kinds.items())
