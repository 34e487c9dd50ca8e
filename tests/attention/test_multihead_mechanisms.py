"""MultiHeadAttention with every mechanism, mask, bias and position: what comes out is what the formula says by hand."""

import math

import pytest
import torch
from torch import Tensor

from attnprobe import attribute
from attnprobe.attention.encoder_decoder import EncoderDecoder
from attnprobe.attention.masks import causal_mask, padding_mask
from attnprobe.attention.mechanisms import Mechanism, mechanisms
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.positions.alibi import alibi, alibi_slopes
from attnprobe.attention.positions.buckets import bucket, t5
from attnprobe.attention.positions.learned import learned
from attnprobe.attention.positions.rotary import rotary
from attnprobe.attention.positions.sinusoidal import sinusoidal
from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.attention.sequence_to_sequence import located
from attnprobe.attention.transformer import TransformerClassifier, TransformerLanguageModel
from attnprobe.attention.vision import VisionTransformer
from attnprobe.errors import InputError
from attnprobe.intervention import replace_weights
from attnprobe.models.own import OwnModel, Vocabulary
from attnprobe.models.rows import Row

N_HEADS, D_MODEL, D_HEAD, N_TOKENS = 2, 8, 4, 6
NAMES = list(mechanisms)
# Weights of one row of scores, written down from the definitions; a hidden key has the score None.
ROWS = {
    "scaled_dot": lambda s: softmax_of(s),
    "online": lambda s: softmax_of(s),
    "hard": lambda s: [1.0 if j == best_of(s)[0] else 0.0 for j in range(len(s))],
    "top_k": lambda s: softmax_of([x if j in best_of(s)[:2] else None for j, x in enumerate(s)]),
}
TAKES_BOTH = {name: {"k": 2} if name == "top_k" else {} for name in ROWS}


def best_of(scores: list) -> list[int]:
    seen = [j for j, x in enumerate(scores) if x is not None]
    return sorted(seen, key=lambda j: -scores[j])


def softmax_of(scores: list) -> list[float]:
    raised = [0.0 if x is None else math.exp(x) for x in scores]
    return [x / sum(raised) for x in raised]


def made(**options) -> MultiHeadAttention:
    return MultiHeadAttention(D_MODEL, N_HEADS, **options).double()


def taped(attention: MultiHeadAttention, *args: Tensor, differentiable: bool = False, **given) -> tuple:
    tape = Tape(keep=Keep.of("weights", "value", "z", "scores"), differentiable=differentiable)
    with recording(tape):
        out = attention(*args, **given)
    return out, tape.sites[0]


def by_loops(attention: MultiHeadAttention, x: Tensor, visible: Tensor, bias: Tensor, row) -> Tensor:
    """Output [batch query d_model] token by token; visible, bias [batch head query key]."""
    out = torch.zeros_like(x)
    project = {n: getattr(attention, n) for n in ("query", "key", "value")}
    for b in range(x.shape[0]):
        for i in range(x.shape[1]):
            z = []
            for h in range(N_HEADS):
                part = slice(h * D_HEAD, (h + 1) * D_HEAD)
                q = (project["query"].weight @ x[b, i] + project["query"].bias)[part]
                k = [(project["key"].weight @ x[b, j] + project["key"].bias)[part] for j in range(x.shape[1])]
                v = [(project["value"].weight @ x[b, j] + project["value"].bias)[part] for j in range(x.shape[1])]
                s = [
                    float(q @ k[j]) / math.sqrt(D_HEAD) + float(bias[b, h, i, j]) if visible[b, h, i, j] else None
                    for j in range(x.shape[1])
                ]
                z.append(sum(w * v[j] for j, w in enumerate(row(s))))
            out[b, i] = attention.output.weight @ torch.cat(z) + attention.output.bias
    return out


@torch.no_grad()
@pytest.mark.parametrize("name", list(ROWS))
def test_a_mechanism_heeds_mask_and_bias_whether_somebody_looks_or_not(name: str):
    attention = made(mechanism=Mechanism.of(name, **TAKES_BOTH[name]))
    x, bias = torch.randn(2, N_TOKENS, D_MODEL).double(), torch.randn(2, N_HEADS, N_TOKENS, N_TOKENS).double()
    visible = torch.rand(2, N_HEADS, N_TOKENS, N_TOKENS) < 0.6
    visible[..., 0] = True
    expected = by_loops(attention, x, visible, bias, ROWS[name])
    assert (attention(x, visible=visible, score_bias=bias) - expected).abs().max() < 1e-12
    assert (taped(attention, x, visible=visible, score_bias=bias)[0] - expected).abs().max() < 1e-12
    with torch.enable_grad():
        _, site = taped(attention, x, differentiable=True, visible=visible, score_bias=bias)
    assert torch.equal(site.weights.masked_select(~visible), torch.zeros(int((~visible).sum())).double())


@torch.no_grad()
@pytest.mark.parametrize("differentiable", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_every_mechanism_mixes_the_heads_that_the_projections_give(name: str, differentiable: bool):
    attention, x = made(mechanism=name), torch.randn(2, N_TOKENS, D_MODEL).double()
    expected = torch.zeros_like(x)
    for b in range(2):
        z = []
        for h in range(N_HEADS):
            part = slice(h * D_HEAD, (h + 1) * D_HEAD)
            query = attention.query(x[b])[:, part]
            key = query if attention.key is None else attention.key(x[b])[:, part]
            z.append(Mechanism.of(name).weights(query, key) @ attention.value(x[b])[:, part])
        expected[b] = attention.output(torch.cat(z, -1))
    assert (attention(x) - expected).abs().max() < 1e-10
    with torch.enable_grad():
        out, site = taped(attention, x, differentiable=differentiable)
    assert (out - expected).abs().max() < 1e-10
    assert (site.weights @ site.value - site.z).abs().max() < 1e-10


@torch.no_grad()
def test_a_normalizer_heeds_a_bias_when_nobody_looks():
    attention, x = made(normalizer="sigmoid"), torch.randn(1, N_TOKENS, D_MODEL).double()
    bias, visible = torch.randn(1, N_HEADS, N_TOKENS, N_TOKENS).double(), causal_mask(N_TOKENS)
    whole = visible.expand(1, N_HEADS, -1, -1)
    sigmoid = lambda s: [0.0 if a is None else 1 / (1 + math.exp(-a)) for a in s]  # noqa: E731
    expected = by_loops(attention, x, whole, bias, sigmoid)
    assert (attention(x, visible=visible, score_bias=bias) - expected).abs().max() < 1e-12
    plain = by_loops(attention, x, whole, torch.zeros_like(bias), sigmoid)
    assert (attention(x, visible=visible) - plain).abs().max() < 1e-12


@torch.no_grad()
@pytest.mark.parametrize("name", ["alibi", "t5"])
def test_the_bias_of_positions_comes_beside_that_of_the_caller(name: str):
    positions = alibi(N_HEADS) if name == "alibi" else t5(N_HEADS)
    attention, x = made(positions=positions), torch.randn(2, N_TOKENS, D_MODEL).double()
    given, own = torch.randn(2, N_HEADS, N_TOKENS, N_TOKENS).double(), torch.zeros(N_HEADS, N_TOKENS, N_TOKENS).double()
    for h in range(N_HEADS):
        for i in range(N_TOKENS):
            for j in range(N_TOKENS):
                if name == "alibi":
                    own[h, i, j] = -float(alibi_slopes(N_HEADS)[h]) * abs(i - j)
                else:
                    own[h, i, j] = float(positions.bias.weight[int(bucket(torch.tensor(j - i))), h])
    everywhere = torch.ones(2, N_HEADS, N_TOKENS, N_TOKENS, dtype=torch.bool)
    for bias in (given, torch.zeros_like(given)):
        expected = by_loops(attention, x, everywhere, bias + own, softmax_of)
        asked = {} if bias is not given else {"score_bias": given}
        assert (attention(x, **asked) - expected).abs().max() < 1e-7  # the table of T5 was made in float32
        assert (taped(attention, x, **asked)[0] - expected).abs().max() < 1e-7


@torch.no_grad()
def test_turned_queries_stand_at_the_end_of_the_keys():
    attention, x = made(positions="rotary"), torch.randn(2, N_TOKENS, D_MODEL).double()
    last = attention(x[:, -3:], x)  # the last three queries alone
    assert (last - attention(x)[:, -3:]).abs().max() < 1e-12
    shifted = made(positions="none")
    shifted.load_state_dict(attention.state_dict())
    assert (shifted(x) - attention(x)).abs().max() > 1e-3


@pytest.mark.parametrize("positions", [sinusoidal(D_MODEL), learned(9, D_MODEL), "sinusoidal"])
def test_positions_that_are_added_to_embeddings_are_no_part_of_attention(positions):
    with pytest.raises(InputError, match="are added to the embeddings"):
        MultiHeadAttention(D_MODEL, N_HEADS, positions=positions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": "rotery"}, "did you mean 'rotary'"),
        ({"positions": "learned"}, "a learned table has a length"),
        ({"normalizer": "sparsmax"}, "did you mean 'sparsemax'"),
        ({"mechanism": "reformer"}, "here it is 'lsh'"),
        ({"mechanism": "lsh", "d_context": 5}, "no cross-attention"),
        ({"mechanism": "linear", "normalizer": "sigmoid"}, "go with the softmax"),
    ],
)
def test_what_does_not_go_together_is_said_before_it_runs(options: dict, message: str):
    with pytest.raises(InputError, match=message):
        MultiHeadAttention(D_MODEL, N_HEADS, **options)


def test_what_does_not_fit_is_said_when_it_runs():
    with pytest.raises(InputError, match="were made for 1 heads, this attention has 2"):
        MultiHeadAttention(D_MODEL, N_HEADS, positions=alibi(1))(torch.randn(1, 3, D_MODEL))
    with pytest.raises(InputError, match="no cross-attention"):
        MultiHeadAttention(D_MODEL, N_HEADS, mechanism="lsh")(torch.randn(1, 3, D_MODEL), torch.randn(1, 3, D_MODEL))
    bias = torch.randn(2, 3, 3)
    with pytest.raises(InputError, match=r"may be of heads or of batch rows; say which"):
        MultiHeadAttention(D_MODEL, N_HEADS)(torch.randn(2, 3, D_MODEL), score_bias=bias)


# ------------------------------------------------------------------------------------------------ in networks

WORDS = Vocabulary.of(["a b c d e f g h"])
CAUSAL = [name for name in NAMES if {"causal", "visible"} & set(mechanisms[name].options) and name != "compressive"]


@torch.no_grad()
@pytest.mark.parametrize("name", CAUSAL)
def test_a_decoder_keeps_its_mask_with_every_mechanism_that_can(name: str):
    network = TransformerLanguageModel(len(WORDS.tokens), mechanism=name).double()
    ids = torch.tensor([[3, 4, 5, 6, 7, 3]])
    before = network(network.token_embedding(ids))
    ids[0, -2:] = 8
    after = network(network.token_embedding(ids))
    n_kept = 4 if name != "lsh" else 0  # which tokens share a chunk depends on all of them
    assert (before[:, :n_kept] - after[:, :n_kept]).abs().amax() < 1e-10 if n_kept else True
    with recording(Tape(keep=Keep.of("weights"))) as tape:
        network(network.token_embedding(ids))
    assert all(site.weights.masked_select(~causal_mask(6)).eq(0).all() for site in tape.sites)


@torch.no_grad()
@pytest.mark.parametrize("name", ["linear", "favor", "online", "top_k", "hard", "hopfield", "nearest", "uniform"])
@pytest.mark.parametrize("kind", ["classifier", "decoder"])
def test_padding_takes_keys_away_and_nothing_else(name: str, kind: str):
    network_type = TransformerClassifier if kind == "classifier" else TransformerLanguageModel
    network = network_type(len(WORDS.tokens), *([2] if kind == "classifier" else []), mechanism=name).double()
    long, short = torch.tensor([[3, 4, 5, 6, 7, 8]]), torch.tensor([[4, 5, 6, 7]])
    ids = torch.cat([long, torch.cat([short, torch.tensor([[0, 0]])], 1)])
    is_token = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])
    both = network(network.token_embedding(ids), is_token)
    assert (both[0] - network(network.token_embedding(long))[0]).abs().max() < 1e-12
    alone = network(network.token_embedding(short))[0]
    assert (both[1][: len(alone)] - alone).abs().max() < 1e-12


@torch.no_grad()
def test_a_mechanism_without_a_mask_is_refused_in_a_decoder():
    network = TransformerLanguageModel(len(WORDS.tokens), mechanism="linformer")
    with pytest.raises(InputError, match=r"'linformer' takes no mask \(visible\)"):
        network(network.token_embedding(torch.tensor([[3, 4, 5]])))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "nearest"])
def test_gradients_by_the_weights_are_slopes_with_every_mechanism(name: str):
    torch.manual_seed(1)
    network = TransformerClassifier(len(WORDS.tokens), 2, mechanism=name).double().eval()
    model = OwnModel(network, WORDS, labels=["no", "yes"])
    example = model.example("a b c d")
    goal, weights = model.resolve(example), model.capture(example).weights()
    tape = Tape(keep=Keep.of("weights"), differentiable=True)
    with torch.enable_grad():
        (value,) = goal(model.forward([Row(example)], tape))
        slopes = torch.autograd.grad(value, [site.weights for site in tape.sites])
    for layer, head, i, j in ((1, 0, 0, 2), (1, 3, 0, 0)):
        ends = []
        for step in (1e-6, -1e-6):
            moved = weights[layer].clone()
            moved[head, i, j] += step
            ends.append(float(goal(model.capture(example, edits=[replace_weights(layer, moved)]).logits)[0]))
        assert abs((ends[0] - ends[1]) / 2e-6 - float(slopes[layer][0, head, i, j])) < 1e-7
    assert attribute(model, example, "attention_x_gradient").scores.isfinite().all()


def test_hashed_attention_shares_queries_and_keys_in_a_network():
    mechanism = Mechanism.of("lsh", n_buckets=1, chunk=N_TOKENS)
    attention, x = made(mechanism=mechanism), torch.randn(1, N_TOKENS, D_MODEL).double()
    assert attention.key is None and not [name for name, _ in attention.named_parameters() if name.startswith("key")]
    _, site = taped(attention, x)
    query = attention.query(x)[0].unflatten(-1, (N_HEADS, D_HEAD)).transpose(0, 1)
    scores = query @ (query / query.norm(dim=-1, keepdim=True)).mT
    expected = scores.masked_fill(torch.eye(N_TOKENS).bool(), -torch.inf).softmax(-1)
    assert (site.weights[0] - expected).abs().max() < 1e-12


@pytest.mark.parametrize("learned_by", ["given", "trained"])
def test_tensors_of_a_mechanism_are_the_modules_own(learned_by: str):
    E = torch.randn(3, 9)
    E = torch.nn.Parameter(E) if learned_by == "trained" else E
    network = TransformerClassifier(len(WORDS.tokens), 2, mechanism=Mechanism.of("linformer", E=E)).double().eval()
    assert network.state_dict()["blocks.0.attention.mechanism_E"].dtype == torch.float64
    model = OwnModel(network, WORDS, labels=["no", "yes"])
    assert [stack.n_layers for stack in model.stacks] == [2]  # asked with a single token
    capture = model.capture(model.example("a b c d"))
    assert capture.weights().shape == (2, 4, 5, 5) and capture.logits.dtype == torch.float64
    assert ("blocks.0.attention.mechanism_E" in dict(network.named_parameters())) == (learned_by == "trained")


@pytest.mark.parametrize("seed", range(6))
def test_an_untrained_network_on_landmarks_can_be_captured_in_float32(seed: int):
    torch.manual_seed(seed)
    network = TransformerClassifier(len(WORDS.tokens), 2, mechanism="nystrom", max_length=128).eval()
    model = OwnModel(network, WORDS, labels=["no", "yes"])
    for text in ("a b c d e f g", "a " * 100, "a b c d " * 25):
        assert model.capture(model.example(text)).weights().isfinite().all()


@torch.no_grad()
def test_cross_attention_has_no_positions_and_encoder_decoders_and_pictures_take_a_mechanism():
    network = EncoderDecoder(7, 5, d_model=8, n_heads=2, positions="rotary", target_positions="rotary").double()
    ids, written = torch.tensor([[1, 2, 3]]), torch.tensor([[0, 1, 2, 3, 4]])
    tape = Tape(keep=Keep.of("query", "key", "weights", kind="cross"), locate=located(network))
    seen: list[tuple[Tensor, Tensor]] = []
    cross = network.decoder.blocks[0].cross_attention
    hook = cross.register_forward_hook(lambda module, args, _: seen.append(args))
    with recording(tape):  # five steps look at three positions: no distance is defined
        network(network.token_embedding(ids), network.target_embedding(written))
    hook.remove()
    y, states = seen[0]
    query, key = (p(t)[0].unflatten(-1, (2, 4)).transpose(0, 1) for p, t in ((cross.query, y), (cross.key, states)))
    assert (tape.sites[0].weights[0] - (query @ key.mT / 2).softmax(-1)).abs().max() < 1e-12
    uniform = EncoderDecoder(7, 5, d_model=8, n_heads=2, mechanism="uniform")
    tape = Tape(keep=Keep.of("weights"), locate=located(uniform))
    with recording(tape):
        uniform(uniform.token_embedding(ids), uniform.target_embedding(written))
    assert all(len(row[row > 0].unique()) == 1 for site in tape.sites for row in site.weights.flatten(0, 2))
    with pytest.raises(InputError, match="no cross-attention"):
        EncoderDecoder(7, 5, d_model=8, n_heads=2, mechanism="lsh")
    seeing = VisionTransformer((4, 4), 2, 3, d_model=8, n_heads=2, mechanism="uniform")
    with recording(Tape(keep=Keep.of("weights"))) as tape:
        seeing(seeing.embed(torch.rand(1, 1, 4, 4)))
    assert torch.allclose(tape.sites[0].weights, torch.full((1, 2, 5, 5), 0.2))


def test_a_network_says_what_its_attention_is():
    shown = repr(MultiHeadAttention(D_MODEL, N_HEADS, mechanism=Mechanism.of("top_k", k=2), positions="rotary"))
    assert "n_heads=2, d_head=4, d_value=4, mechanism=Mechanism.of('top_k', k=2), positions='rotary'" in shown
    assert padding_mask(torch.ones(1, 2)).all() and rotary().inside.name == "rotary"
