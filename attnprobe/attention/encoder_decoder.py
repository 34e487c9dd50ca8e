"""The transformer encoder-decoder (Vaswani et al. 2017, figure 1), with the norm in front of each part (pre-norm).

encoder   x ← x + SelfAttention(LN x)            every input position looks at all of them
          x ← x + MLP(LN x)
decoder   y ← y + SelfAttention(LN y)            causal: a step looks at what is written so far
          y ← y + CrossAttention(LN y, x)        query: decoder step, key and value: encoder position
          y ← y + MLP(LN y)
logits    W LN(y)

x [batch position d_model], y [batch step d_model]. There are three attentions for a tape to see: encoder self, decoder
self, decoder cross; `located(network)` names their stacks. Row t of a cross-attention map is about output token t.
"""

from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.attention.masks import causal_mask, padding_mask
from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.positions import NONE, Positions
from attnprobe.attention.positions.named import as_positions
from attnprobe.attention.sequence_to_sequence import Encoded, SequenceToSequence
from attnprobe.attention.transformer import Transformer
from attnprobe.errors import InputError


class DecoderBlock(nn.Module):
    """Causal self-attention, cross-attention to the encoder's states, an MLP; each added to the residual stream."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_mlp: int,
        positions: Positions = NONE,
        mechanism: "str | Mechanism | None" = None,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads, positions=positions, mechanism=mechanism)
        self.attention_norm = nn.LayerNorm(d_model)
        self.cross_attention = MultiHeadAttention(d_model, n_heads, mechanism=mechanism, cross=True)
        self.cross_norm = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, d_mlp), nn.GELU(), nn.Linear(d_mlp, d_model))
        self.mlp_norm = nn.LayerNorm(d_model)

    def forward(
        self,
        y: Float[Tensor, "batch step d_model"],
        states: Float[Tensor, "batch position d_model"],
        visible: Tensor | None = None,
        visible_states: Tensor | None = None,
    ) -> Float[Tensor, "batch step d_model"]:
        """The stream after this block; visible: which steps a step may look at, visible_states: which states."""
        y = y + self.attention(self.attention_norm(y), visible=visible)
        y = y + self.cross_attention(self.cross_norm(y), states, visible=visible_states)
        return y + self.mlp(self.mlp_norm(y))


class Decoder(nn.Module):
    """Embeddings with positions, through decoder blocks, to logits."""

    def __init__(
        self,
        n_vocabulary: int,
        *,
        d_model: int,
        n_heads: int,
        n_layers: int,
        d_mlp: int,
        max_length: int,
        positions: "Positions | str | None" = None,
        mechanism: "str | Mechanism | None" = None,
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.token_embedding = nn.Embedding(n_vocabulary, d_model)
        self.positions = as_positions(positions, n_heads=n_heads, d_model=d_model, max_length=max_length)
        inside = self.positions.inside
        self.blocks = nn.ModuleList(DecoderBlock(d_model, n_heads, d_mlp, inside, mechanism) for _ in range(n_layers))
        self.final_norm = nn.LayerNorm(d_model)
        self.unembedding = nn.Linear(d_model, n_vocabulary, bias=False)

    def forward(
        self, written: Float[Tensor, "batch step d_model"], encoded: Encoded
    ) -> Float[Tensor, "batch step vocabulary"]:
        """Logits of the token at each step, given the embeddings of those before it."""
        n_steps = written.shape[1]
        if n_steps > self.max_length:
            raise InputError(f"{n_steps} steps are more than the {self.max_length} positions of this decoder; shorten")
        visible = causal_mask(n_steps, device=written.device)
        visible_states = None if encoded.is_token is None else padding_mask(encoded.is_token)
        y = self.positions.embed(written)
        for block in self.blocks:
            y = block(y, encoded.states, visible, visible_states)
        return self.unembedding(self.final_norm(y))


class EncoderDecoder(SequenceToSequence):
    """Reads a sequence with one transformer and writes another one with a second that looks at the first.

    n_source, n_target: sizes of the two vocabularies; d_mlp: default 4 d_model; max_length: of either sequence.
    positions, target_positions: the schemes of the two (default: a learned table each). Cross-attention has none of its
    own: a step of the output and a position of the input are no distance apart. mechanism: of all three attentions.
    """

    def __init__(
        self,
        n_source: int,
        n_target: int,
        *,
        d_model: int = 64,
        n_heads: int = 4,
        n_layers: int = 2,
        d_mlp: int | None = None,
        max_length: int = 64,
        positions: "Positions | str | None" = None,
        target_positions: "Positions | str | None" = None,
        mechanism: "str | Mechanism | None" = None,
    ) -> None:
        super().__init__()
        self.max_length, d_mlp = max_length, d_mlp or 4 * d_model
        sizes = {"d_model": d_model, "n_heads": n_heads, "n_layers": n_layers, "d_mlp": d_mlp, "max_length": max_length}
        self.encoder = Transformer(n_source, **sizes, positions=positions, mechanism=mechanism)  # type: ignore[arg-type]
        self.decoder = Decoder(n_target, **sizes, positions=target_positions, mechanism=mechanism)
        self.token_embedding, self.target_embedding = self.encoder.token_embedding, self.decoder.token_embedding

    def encode(
        self,
        embeddings: Float[Tensor, "batch position d_model"],
        is_token: Bool[Tensor, "batch position"] | None = None,
    ) -> Encoded:
        """The encoder's residual stream; is_token: False at padding, which nobody may look at."""
        visible = None if is_token is None else padding_mask(is_token)
        return Encoded(self.encoder.stream(embeddings, visible), is_token)

    def decode(
        self, encoded: Encoded, written: Float[Tensor, "batch step d_model"]
    ) -> Float[Tensor, "batch step vocabulary"]:
        """Logits of the token at each step; written: embeddings of the tokens before it, from [BOS] on."""
        return self.decoder(written, encoded)
