"""The recurrent encoder-decoder with alignment (Bahdanau, Cho and Bengio 2015, section 3 and appendix A.2).

encoder    h_j = [forward GRU ; backward GRU] at input position j          "annotations", [batch position 2 d_state]
start      s_0 = tanh(W_0 h←_1)                                            from the backward state of the first position
alignment  e_tj = u·tanh(W s_{t-1} + U h_j)
           α_t  = softmax over j of e_t                                    the alignment matrix, [batch step position]
           c_t  = Σ_j α_tj h_j
decoder    s_t  = GRU([y_{t-1} ; c_t], s_{t-1})
logits     W_o [s_t ; y_{t-1} ; c_t]                                       the paper has a maxout layer here

Step t looks before it writes, from s_{t-1}, and s_{t-1} holds what earlier steps saw: so each step is an attention of
its own. For a tape all steps are parts (`Place.part` = t, named "step") of one cross-attention, layer 0 of "decoder":
one head, query W s_{t-1}, key U h_j, value h_j. A part is the whole map [step position] with row t alone, the rows of
the other steps hidden: their sum is the alignment matrix. An edit at a step changes all steps after it.
"""

import dataclasses

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from attnprobe.attention.masks import padding_mask
from attnprobe.attention.scores import attend
from attnprobe.attention.seam import observe, running
from attnprobe.attention.sequence_to_sequence import Encoded, SequenceToSequence
from attnprobe.errors import InputError
from attnprobe.site import Place, Site


class AdditiveAlignment(nn.Module):
    """One look of a decoder state at the annotations, seen by the seam. W, U and u have no biases, as in the paper."""

    def __init__(self, d_query: int, d_key: int, d_hidden: int) -> None:
        super().__init__()
        self.query = nn.Linear(d_query, d_hidden, bias=False)
        self.key = nn.Linear(d_key, d_hidden, bias=False)
        self.direction = nn.Parameter(torch.randn(d_hidden) / d_hidden**0.5)

    def scores(
        self, query: Float[Tensor, "*batch query hidden"], key: Float[Tensor, "*batch key hidden"]
    ) -> Float[Tensor, "*batch query key"]:
        """u·tanh(query + key), of what W and U have projected."""
        return torch.tanh(query[..., :, None, :] + key[..., None, :, :]) @ self.direction

    def forward(
        self,
        state: Float[Tensor, "batch d_query"],
        annotations: Float[Tensor, "batch position d_key"],
        keys: Float[Tensor, "batch position hidden"] | None = None,
        visible: Tensor | None = None,
        *,
        step: int = 0,
        n_steps: int = 1,
    ) -> Float[Tensor, "batch d_key"]:
        """c, the annotations averaged by how well they fit the state; keys: U h, if it is known already.

        step, n_steps: which row of the map of the whole run this look is.
        """
        query = self.query(state)[:, None, None]
        key = (self.key(annotations) if keys is None else keys)[:, None]
        value = annotations[:, None]
        z = observe(
            self,
            lambda place: self._site(place, query, key, value, visible, (step, n_steps)),
            cross=True,
            name="step",
            fallback=lambda: attend(self.scores, query, key, value, visible=visible).z,
        )
        return z[:, 0, min(step, z.shape[2] - 1)]  # alone it is one row, seen it is that of its step

    def _site(
        self, place: Place, query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, where: tuple[int, int]
    ) -> Site:
        """The map of all steps with this one's row alone. z is that of the row by itself: looking changes nothing."""
        step, n_steps = where

        def whole(row: Tensor, elsewhere: float = 0.0) -> Tensor:
            return pad(row, (0, 0, step, n_steps - 1 - step), value=elsewhere)

        scores, weights, z = attend(self.scores, query, key, value, visible=visible)
        seen = torch.ones_like(scores, dtype=torch.bool) if visible is None else visible.expand_as(scores)
        tape, weights = running(), whole(weights)
        live = tape is not None and tape.differentiable  # gradients reach the weights where z is made of them
        z = weights @ value if live else whole(z)
        place = dataclasses.replace(place, route="layout")  # a part is rows of one map
        return Site(place, whole(query), key, value, whole(scores, -torch.inf), weights, z, whole(seen))


class RecurrentDecoder(nn.Module):
    """A GRU that looks at the annotations before each step."""

    def __init__(self, n_vocabulary: int, d_embedding: int, d_state: int, d_alignment: int) -> None:
        super().__init__()
        self.d_state = d_state
        self.token_embedding = nn.Embedding(n_vocabulary, d_embedding)
        self.start = nn.Linear(d_state, d_state)
        self.alignment = AdditiveAlignment(d_state, 2 * d_state, d_alignment)
        self.cell = nn.GRUCell(d_embedding + 2 * d_state, d_state)
        self.unembedding = nn.Linear(3 * d_state + d_embedding, n_vocabulary)

    def forward(
        self, written: Float[Tensor, "batch step d_embedding"], encoded: Encoded
    ) -> Float[Tensor, "batch step vocabulary"]:
        """Logits of the token at each step, given the embeddings of those before it."""
        annotations = encoded.states
        visible = None if encoded.is_token is None else padding_mask(encoded.is_token)
        keys = self.alignment.key(annotations)
        state = torch.tanh(self.start(annotations[:, 0, self.d_state :]))
        tape = running()
        if tape is not None:  # all steps of this run are parts of one layer
            tape.begin_run(self.alignment)
        read: list[Tensor] = []
        for before in written.unbind(1):
            where = {"step": len(read), "n_steps": written.shape[1]}
            context = self.alignment(state, annotations, keys, visible, **where)
            state = self.cell(torch.cat([before, context], dim=-1), state)
            read.append(torch.cat([state, before, context], dim=-1))
        return self.unembedding(torch.stack(read, dim=1))


class RecurrentEncoderDecoder(SequenceToSequence):
    """Reads a sequence with a GRU in both directions and writes another one with a GRU that looks at the first.

    n_source, n_target: sizes of the two vocabularies; d_state: of each GRU (the annotations are twice as wide);
    d_alignment: width of the small network that scores (default d_state).
    """

    def __init__(
        self, n_source: int, n_target: int, *, d_embedding: int = 32, d_state: int = 64, d_alignment: int | None = None
    ) -> None:
        super().__init__()
        self.encoder = nn.GRU(d_embedding, d_state, batch_first=True, bidirectional=True)
        self.decoder = RecurrentDecoder(n_target, d_embedding, d_state, d_alignment or d_state)
        self.token_embedding = nn.Embedding(n_source, d_embedding)
        self.target_embedding = self.decoder.token_embedding

    def encode(
        self,
        embeddings: Float[Tensor, "batch position d_model"],
        is_token: Bool[Tensor, "batch position"] | None = None,
    ) -> Encoded:
        """Annotations; is_token: False at padding, which stands behind the tokens and is not run over."""
        if is_token is None:
            return Encoded(self.encoder(embeddings)[0], None)
        lengths = is_token.sum(-1)
        if bool((lengths == 0).any()) or not bool(is_token.int().diff(dim=-1).le(0).all()):
            raise InputError(
                "a recurrent encoder reads tokens from the left: put padding behind at least one token; to take tokens "
                "away, put something in their place (mask, mean, zero) or delete them"
            )
        packed = pack_padded_sequence(embeddings, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True, total_length=embeddings.shape[1])
        return Encoded(states, is_token)

    def decode(
        self, encoded: Encoded, written: Float[Tensor, "batch step d_model"]
    ) -> Float[Tensor, "batch step vocabulary"]:
        """Logits of the token at each step; written: embeddings of the tokens before it, from [BOS] on."""
        return self.decoder(written, encoded)
