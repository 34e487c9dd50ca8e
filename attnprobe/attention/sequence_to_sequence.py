"""From one sequence to another: what the transformer and the recurrent encoder-decoder have in common.

encode: embeddings of the input [batch position d_model]        -> Encoded(states [batch position d_state], is_token)
decode: Encoded, embeddings of the output so far [batch step d]  -> logits [batch step vocabulary]

Row t of the logits, and of every map from output to input, belongs to the token that is written at step t:
what the decoder is given at step t is the token written before it ([BOS] at step 0).
Both parts take embeddings, so that a question may change them.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnprobe.attention.seam import Keep, Locate, Tape, recording, running
from attnprobe.site import Kind


class Encoded(NamedTuple):
    """What the decoder looks at: a state at each input position, and which positions are tokens (None: all)."""

    states: Float[Tensor, "batch position d_state"]
    is_token: Bool[Tensor, "batch position"] | None = None


class SequenceToSequence(ABC, nn.Module):
    """An encoder and a decoder; `token_embedding` embeds the input, `target_embedding` the output."""

    token_embedding: nn.Embedding
    target_embedding: nn.Embedding

    @abstractmethod
    def encode(
        self,
        embeddings: Float[Tensor, "batch position d_model"],
        is_token: Bool[Tensor, "batch position"] | None = None,
    ) -> Encoded:
        """States of the input; is_token: False at padding, which nobody may look at."""

    @abstractmethod
    def decode(
        self, encoded: Encoded, written: Float[Tensor, "batch step d_model"]
    ) -> Float[Tensor, "batch step vocabulary"]:
        """Logits of the token at each step; written: embeddings of the tokens before it, from [BOS] on."""

    def forward(
        self,
        embeddings: Float[Tensor, "batch position d_model"],
        written: Float[Tensor, "batch step d_model"],
        is_token: Bool[Tensor, "batch position"] | None = None,
    ) -> Float[Tensor, "batch step vocabulary"]:
        """Both parts in one pass: the decoder is told the right tokens so far (teacher forcing)."""
        return self.decode(self.encode(embeddings, is_token), written)


def translation_loss(
    network: SequenceToSequence,
    ids: Int[Tensor, "batch position"],
    is_token: Bool[Tensor, "batch position"] | None,
    target_ids: Int[Tensor, "batch written"],
) -> Float[Tensor, ""]:
    """Mean negative log-probability (nats) of each output token given those before it; target_ids begin with [BOS]."""
    logits = network(network.token_embedding(ids), network.target_embedding(target_ids[:, :-1]), is_token)
    return nn.functional.cross_entropy(logits.flatten(0, 1), target_ids[:, 1:].flatten())


@torch.no_grad()
def greedy(
    network: SequenceToSequence,
    ids: Int[Tensor, "batch position"],
    is_token: Bool[Tensor, "batch position"] | None = None,
    *,
    begin: int,
    n_steps: int,
) -> Int[Tensor, "batch written"]:
    """The likeliest token at each of n_steps steps, behind `begin`: [batch 1 + n_steps].

    The decoder runs again over all that is written at each step: each is a pass of its own for whoever listens.
    """
    tape = running()
    if tape is not None:
        tape.start_pass()
    encoded = network.encode(network.token_embedding(ids), is_token)
    written = torch.full((len(ids), 1), begin, dtype=torch.long, device=ids.device)
    for step in range(n_steps):
        if tape is not None and step > 0:
            tape.start_pass()
        logits = network.decode(encoded, network.target_embedding(written))
        written = torch.cat([written, logits[:, -1:].argmax(-1)], dim=1)
    return written


def located(network: nn.Module) -> Locate:
    """Where an attention module of a network is: its stack is the network's part ("encoder", "decoder") that holds it.

    To be given to a tape: Tape(keep=Keep.of("weights", kind="cross"), locate=located(network)).
    """
    paths = {id(module): path for path, module in network.named_modules()}

    def locate(module: nn.Module, cross: bool) -> tuple[str, Kind, str]:
        path = paths[id(module)]
        return path.split(".")[0], "cross" if cross else "self", path

    return locate


@torch.no_grad()
def cross_maps(
    network: SequenceToSequence, ids: Tensor, is_token: Tensor | None, written_ids: Int[Tensor, "batch step"]
) -> Float[Tensor, "batch layer head step position"]:
    """Where each step of the decoder looks in the input; written_ids: the token before each step, from [BOS] on."""
    tape = Tape(keep=Keep.of("weights", kind="cross"), locate=located(network))
    with recording(tape):
        network(network.token_embedding(ids), network.target_embedding(written_ids), is_token)
    layers: dict[int, list[Tensor]] = {}
    for site in tape.sites:  # parts (recurrent: a step each) hold different rows of one map, and 0 elsewhere
        layers.setdefault(site.layer, []).append(site.need("weights"))
    return torch.stack([torch.stack(parts).sum(0) for parts in layers.values()], dim=1)
