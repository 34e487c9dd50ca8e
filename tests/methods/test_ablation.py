"""The ablation family: exact planted values, the model's own answers to changed inputs, slow re-implementations."""

from dataclasses import replace

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from attnprobe.attributing import attribute, passes
from attnprobe.errors import InputError
from attnprobe.heads.effects import heads_as_features
from attnprobe.intervention import zero_value
from attnprobe.methods.atman import _add, _as_published
from attnprobe.models import load
from attnprobe.models.planted import planted
from attnprobe.models.rows import Row
from attnprobe.site import Place, Site
from attnprobe.target import Target
from tests import tiny

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "good", "film", "bad", "plot", "dull", "very"]
SPECIAL = {"mask": 4, "pad": 0, "unk": 1}
NAN = float("nan")

# methods.md, section I: by name, leave-one-out with zero contents, and with the key masked (NaN: not given there).
EXACT = {
    "P1": ([0, 0, 1, 0], [-1 / 9, -7 / 3, 1, -1 / 9]),
    "P1c": ([-1.5, -1.5, 1, 0], None),
    "P2": ([2, 0, 0], [0, 0, 0]),
    "P3A": ([0, 1.3, 1.4], [-0.3, 0.46667, 0.38254]),
    "P3B": ([0, 1.3, 1.4], [-0.3, 0.26944, 0.34103]),
    "P5": ([0, 0.815, 0], [NAN, 0.815, 0.53868]),
    "P6": ([0, 0, 0], [NAN, 0, 0]),
    "P7": ([0, 1, 1], [NAN, 0.5, 0.5]),
    "P8": ([0, -1, -2], [NAN, 0, -1.5]),
    "P9": ([0, 1, 1], [NAN, 0.5, 0.5]),
    "P9_unequal": ([0, -1, -1], [NAN, -1.5, -1.5]),
    "P10": ([0, 1, 0], [NAN, 1, 0]),
}
MASKED = [(name, masked) for name, (_, masked) in EXACT.items() if masked is not None]


def score(made, method, **options):
    return attribute(made.model, made.example, method, **options).scores


def assert_near(found, expected, atol=1e-6):
    expected = torch.as_tensor(expected).float()
    torch.testing.assert_close(found.where(~expected.isnan(), NAN), expected, atol=atol, rtol=0, equal_nan=True)


@pytest.mark.parametrize(("name", "expected"), [(name, zero) for name, (zero, _) in EXACT.items()])
@pytest.mark.filterwarnings("ignore:leave_one_out gives 0")
def test_leave_one_out_with_zero_contents_is_exact(name, expected):
    assert_near(score(planted(name), "leave_one_out", operator="zero"), expected)


@pytest.mark.parametrize(("name", "expected"), MASKED)
@pytest.mark.filterwarnings("ignore:.* gives 0 to every token")
def test_a_masked_key_and_a_knock_out_of_all_edges_are_exact_and_the_same(name, expected):
    masked = score(planted(name), "leave_one_out", operator="attention_mask")
    assert_near(masked, expected, atol=6e-6)
    assert_near(score(planted(name), "knock_out"), masked)


def test_a_knock_out_acts_in_the_layers_and_from_the_queries_that_are_asked_for():
    made = planted("P5")
    # Layer 1, from [CLS] alone: without A nothing is moved to [CLS], which passes on 0.05 of its 0.05.
    assert_near(score(made, "knock_out", layers=(0, 0), queries="read")[1:2], [0.0025])
    # Layer 2, from [CLS] alone: without T, [CLS] and A pass on half of their 0.05 each.
    assert_near(score(made, "knock_out", layers=(1, 1), queries="read")[2:], [0.815 - 0.05])
    # Layer 2 from all queries is the same: nothing reads another one behind it.
    assert_near(score(made, "knock_out", layers=(1, 1)), score(made, "knock_out", layers=(1, 1), queries="read"))
    # Both layers, from [CLS] alone: without T it gets 0.05 / 0.95 of A in layer 1.
    assert_near(score(made, "knock_out", queries="read")[2:], [0.815 - (0.05 / 0.95 + 0.05) / 2])


# ------------------------------------------------------------------------------ operators


@pytest.mark.parametrize("name", ["P1", "P3A", "P5"])
def test_a_token_removed_by_its_values_is_an_edit_of_every_layer(name):
    made = planted(name)
    target = made.model.resolve(made.example, made.target)
    removed = score(made, "leave_one_out", operator="value_zero")
    for j in range(1, len(removed)):
        without = made.model.targets([Row(made.example, edits=(zero_value([j]),))], target)
        whole = made.model.targets([Row(made.example)], target)
        assert removed[j] == pytest.approx(float(whole - without), abs=1e-9)


@pytest.mark.filterwarnings("ignore:leave_one_out gives 0")
def test_what_passes_by_attention_stays_when_values_are_removed():
    """P2: the answer is read past the attention."""
    assert_near(score(planted("P2"), "leave_one_out", operator="value_zero"), [0, 0, 0])


def test_a_network_is_not_given_a_removal_of_values_as_inputs():
    made = planted("P1")
    kept = torch.tensor([True, True, False, True])
    with pytest.raises(InputError, match="acts on attention"):
        made.model.forward([Row(made.example, kept=kept, operator="value_zero")])


@pytest.fixture(scope="module")
def tokenizer():
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)


@pytest.fixture(scope="module")
def bert(tokenizer):
    return load((tiny.build("bert", "sdpa", scale=2.0).double(), tokenizer), name="classifier")


@pytest.fixture(scope="module")
def reader(tokenizer):
    torch.manual_seed(0)
    config = {**tiny._BERT, "vocab_size": len(WORDS)}
    module = transformers.BertForMaskedLM(transformers.BertConfig(**config)).eval().double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(3.0 if parameter.ndim > 1 else 1.0)
    return load((module, tokenizer), name="reader")


@pytest.fixture(scope="module")
def text(bert):
    return bert.example("a very good film")


def ask(model, ids, label, **inputs):
    with torch.no_grad():
        return model.module(torch.tensor([ids]), **inputs).logits[0, label].item()


def falls(model, example, answer):
    """y(x) − answer(j) for every token that is not special, 0 for the others."""
    ids = example.inputs["input_ids"][0].tolist()
    label = model.resolve(example).label
    whole = ask(model, ids, label)
    return [0.0 if s else whole - answer(ids, j, label) for j, s in enumerate(example.is_special)]


def put(ids, j, word):
    return [*ids[:j], word, *ids[j + 1 :]]


@pytest.mark.parametrize("operator", list(SPECIAL))
def test_a_filler_is_the_models_answer_to_that_token_in_its_place(bert, text, operator):
    expected = falls(bert, text, lambda ids, j, label: ask(bert, put(ids, j, SPECIAL[operator]), label))
    assert_near(attribute(bert, text, "leave_one_out", operator=operator).scores, expected)


def test_pad_mask_is_the_models_answer_to_a_pad_that_its_attention_mask_hides(bert, text):
    def padded(ids, j, label):
        mask = (torch.arange(len(ids)) != j).long()[None]
        return ask(bert, put(ids, j, 0), label, attention_mask=mask)

    found = attribute(bert, text, "leave_one_out", operator="pad_mask")
    assert_near(found.scores, falls(bert, text, padded))
    assert found.used == {"operator": "pad_mask"}


def test_delete_is_the_models_answer_to_the_shorter_text(bert, text):
    expected = falls(bert, text, lambda ids, j, label: ask(bert, ids[:j] + ids[j + 1 :], label))
    assert_near(attribute(bert, text, "leave_one_out", operator="delete").scores, expected)


def test_resample_from_texts_of_one_word_puts_that_word_in(bert, text):
    found = attribute(bert, text, "leave_one_out", operator="resample", data=["dull", "dull dull"])
    assert_near(found.scores, falls(bert, text, lambda ids, j, label: ask(bert, put(ids, j, 10), label)))
    assert found.used == {"operator": "resample", "data": "3 tokens of 2 texts"}
    assert_near(found.standard_error, [0] * text.n_tokens)


def test_resample_without_texts_draws_the_other_tokens_of_the_text(bert):
    example = bert.example("good film")
    found = attribute(bert, example, "leave_one_out", operator="resample", n_samples=3)
    expected = falls(bert, example, lambda ids, j, label: ask(bert, put(ids, j, ids[3 - j]), label))
    assert_near(found.scores, expected)
    assert found.used["data"] == "the other tokens of the text"


def test_the_mean_over_draws_nears_the_mean_over_what_is_drawn_from_by_its_standard_error(bert, text):
    def mean_of_others(ids, j, label):
        others = [ids[i] for i in range(1, 5) if i != j]
        return sum(ask(bert, put(ids, j, other), label) for other in others) / len(others)

    expected = torch.tensor(falls(bert, text, mean_of_others)).float()
    found = attribute(bert, text, "leave_one_out", operator="resample", n_samples=160)
    error = found.standard_error
    assert bool(((found.scores - expected).abs() <= 5 * error).all())
    few = attribute(bert, text, "leave_one_out", operator="resample", n_samples=40).standard_error
    assert bool((error[1:5] < few[1:5]).all()) and bool((error[1:5] > 0).all())
    assert attribute(bert, text, "leave_one_out", operator="resample", n_samples=1).standard_error is None


def test_draws_depend_on_the_seed_alone(bert, text):
    def drawn(seed, **more):
        options = {"operator": "resample", "n_samples": 3, "seed": seed, "data": ["bad plot", "a dull film"]}
        return attribute(bert, text, "leave_one_out", **options, **more).scores

    assert torch.equal(drawn(0), drawn(0)) and not torch.equal(drawn(0), drawn(1))
    torch.testing.assert_close(drawn(0), drawn(0, batch_size=1), atol=1e-6, rtol=0)


def predicted(reader, ids, j):
    """Probability of each word behind [MASK] at j, special tokens left out."""
    with torch.no_grad():
        scores = reader.module(torch.tensor([put(ids, j, 4)])).logits[0, j]
    scores[:5] = -torch.inf
    return scores.softmax(-1)


def test_infill_with_the_likeliest_puts_in_the_best_other_word_of_the_reader(bert, reader, text):
    def likeliest(ids, j, label):
        probability = predicted(reader, ids, j)
        probability[ids[j]] = 0
        return ask(bert, put(ids, j, int(probability.argmax())), label)

    options = {"operator": "infill", "infiller": reader, "replacement": "likeliest"}
    found = attribute(bert, text, "leave_one_out", **options)
    assert_near(found.scores, falls(bert, text, likeliest))
    assert found.used == {"operator": "infill", "infiller": "reader", "replacement": "likeliest"}
    assert (found.forward_passes, passes(bert, text, "leave_one_out", **options).forward) == (9, 9)


def test_infill_nears_the_mean_over_all_words_weighted_by_what_the_reader_thinks_of_them(bert, reader, text):
    def marginal(ids, j, label):
        probability = predicted(reader, ids, j)
        return sum(float(p) * ask(bert, put(ids, j, w), label) for w, p in enumerate(probability) if p > 0)

    expected = torch.tensor(falls(bert, text, marginal)).float()
    found = attribute(bert, text, "leave_one_out", operator="infill", infiller=reader, n_samples=150)
    assert bool(((found.scores - expected).abs() <= 5 * found.standard_error + 1e-6).all())
    assert float(found.standard_error.max()) > 0
    again = attribute(bert, text, "leave_one_out", operator="infill", infiller=reader, n_samples=150, batch_size=2)
    torch.testing.assert_close(again.scores, found.scores, atol=1e-6, rtol=0)


def test_a_masked_language_model_fills_in_for_itself(reader):
    example = reader.example("a very [MASK] film")
    found = attribute(reader, example, "leave_one_out", operator="infill", replacement="likeliest")
    given = attribute(
        reader, example, "leave_one_out", operator="infill", infiller=(reader.module, reader.tokenizer),
        replacement="likeliest",
    )  # fmt: skip
    assert torch.equal(found.scores, given.scores) and bool((found.scores[1:3] != 0).all())


def test_occlusion_with_draws_is_the_mean_over_the_windows_of_a_token(bert, text):
    ids, label = text.inputs["input_ids"][0].tolist(), bert.resolve(text).label
    window = [
        ask(bert, ids, label) - ask(bert, [10 if i in (j, j + 1) else w for i, w in enumerate(ids)], label)
        for j in (1, 2, 3)
    ]
    expected = [0, window[0], (window[0] + window[1]) / 2, (window[1] + window[2]) / 2, window[2], 0]
    found = attribute(bert, text, "occlusion", window=2, operator="resample", data=["dull"])
    assert_near(found.scores, expected)


def test_the_tokens_of_a_word_go_together_and_share_its_fall_equally(bert, text):
    split = replace(text, words=(None, 0, 0, 1, 2, None))
    found = attribute(bert, split, "leave_one_out", operator="mask", units="word")
    ids, label = text.inputs["input_ids"][0].tolist(), bert.resolve(text).label
    both = ask(bert, ids, label) - ask(bert, put(put(ids, 1, 4), 2, 4), label)
    alone = attribute(bert, text, "leave_one_out", operator="mask").scores
    assert_near(found.scores, [0, both / 2, both / 2, *alone[3:].tolist()])
    assert found.used["shared"] == "the fall of a word equally among its tokens"
    one_word = replace(text, words=(None, 0, 0, 0, 0, None))
    with pytest.raises(InputError, match="no other token to draw from"):
        attribute(bert, one_word, "leave_one_out", operator="resample", units="word")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"operator": "resampel"}, "did you mean 'resample'"),
        ({"operator": "mask", "data": ["a film"]}, "data belongs to the operator 'resample'"),
        ({"operator": "resample", "infiller": "x"}, "infiller belongs to the operator 'infill'"),
        ({"replacement": "likeliest"}, "replacement belongs to the operator 'infill'"),
        ({"operator": "infill"}, "needs a masked language model, which classifier is not"),
        ({"operator": "resample", "data": "a film"}, "data is a list of at least one text"),
        ({"operator": "resample", "data": []}, "data is a list of at least one text"),
        ({"operator": "resample", "n_samples": 0}, "n_samples is at least 1"),
        ({"units": "sentence"}, "'token' or 'word'"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_anything_runs(bert, text, options, message):
    with pytest.raises(InputError, match=message):
        attribute(bert, text, "leave_one_out", **options)


def test_a_reader_of_other_words_or_of_the_next_word_is_refused(bert, reader, tokenizer, text):
    other = Tokenizer(models.WordLevel({w: i for i, w in enumerate([*WORDS[:5], *WORDS[5:][::-1]])}, unk_token="[UNK]"))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    backwards = transformers.PreTrainedTokenizerFast(tokenizer_object=other, **names)
    with pytest.raises(InputError, match="has other tokens than classifier"):
        attribute(bert, text, "leave_one_out", operator="infill", infiller=(reader.module, backwards))
    writer = load((tiny.build("gpt2"), tokenizer), name="writer")
    with pytest.raises(InputError, match="which writer is not"):
        attribute(bert, text, "leave_one_out", operator="infill", infiller=writer)


def test_a_model_without_a_pad_embedding_has_no_pad_mask():
    model = tiny.loaded("bert")
    with pytest.raises(InputError, match="no 'pad' embedding"):
        attribute(model, model.example(tiny.IDS), "leave_one_out", operator="pad_mask")


def test_patches_are_drawn_from_the_other_patches_of_the_picture():
    model = tiny.loaded("vit")
    example = model.example(tiny.given("vit"))
    patches = model.embed(example)
    found = attribute(model, example, "leave_one_out", operator="resample", n_samples=1)
    label, whole = model.resolve(example).label, model.forward([_row(example)])
    first = next(j for j, special in enumerate(example.is_special) if not special)
    changed = [patches.index_copy(0, torch.tensor([first]), patches[i : i + 1]) for i in range(first + 1, len(patches))]
    with torch.no_grad():
        falls = [float((whole - model.forward([_row(example, embeddings=e)]))[0, label]) for e in changed]
    assert min(abs(fall - float(found.scores[first])) for fall in falls) < 1e-5


def _row(example, **more):
    from attnprobe.models.rows import Row

    return Row(example, **more)


# ------------------------------------------------------------------------------ edges


@pytest.mark.parametrize("name", ["bert", "modernbert", "t5", "bart"])
def test_a_knock_out_of_all_edges_is_the_models_own_attention_mask(name):
    model = tiny.loaded(name, scale=2.0)
    example = tiny.example(model, name)
    found = attribute(model, example, "knock_out").scores
    torch.testing.assert_close(
        found, attribute(model, example, "leave_one_out", operator="attention_mask").scores, atol=2e-5, rtol=1e-4
    )
    assert float(found.abs().max()) > 1e-4


def causal(column, amount, n, rows=None):
    """An additive mask [1 1 query key] that also adds `amount` to a column (of some rows), token 0's own row spared."""
    mask = torch.full((n, n), torch.finfo(torch.float64).min, dtype=torch.float64).triu(1)
    for row in range(max(column, 1), n) if rows is None else rows:
        mask[row, column] = amount
    return mask[None, None]


@pytest.fixture(scope="module")
def llama():
    model = tiny.loaded("llama", scale=2.0, dtype=torch.float64)
    return model, model.example(tiny.IDS)


def falls_under(llama, mask_of):
    model, example = llama
    n, label = example.n_tokens, model.resolve(example).label
    ids = example.inputs["input_ids"]
    with torch.no_grad():
        answers = [model.module(ids, attention_mask=mask_of(j, n)).logits[0, -1, label] for j in range(n)]
        return float(model.module(ids).logits[0, -1, label]) - torch.stack(answers)


@pytest.mark.parametrize("queries", ["all", "read"])
def test_a_knock_out_in_a_causal_model_equals_a_mask_with_that_column_cut(llama, queries):
    low = torch.finfo(torch.float64).min
    expected = falls_under(llama, lambda j, n: causal(j, low, n, None if queries == "all" else [n - 1]))
    found = attribute(*llama, "knock_out", queries=queries)
    torch.testing.assert_close(found.scores, expected.float(), atol=1e-5, rtol=1e-4)
    assert found.used["spared"] == "a query that sees no other key keeps it"


@pytest.mark.filterwarnings("ignore:knock_out gives 0")
def test_the_only_key_that_is_visible_is_never_cut(llama):
    model, _ = llama
    assert attribute(model, model.example([7]), "knock_out").scores.tolist() == [0.0]


@pytest.mark.parametrize("layers", [(0, 3), (2, 1), (-1, 1)])
def test_layers_that_are_not_there_are_refused(llama, layers):
    with pytest.raises(InputError, match=r"\(first, last\), 0 to 2"):
        attribute(*llama, "knock_out", layers=layers)


# ------------------------------------------------------------------------------ AtMan


def test_atman_adds_the_logarithm_of_the_share_that_is_kept(llama):
    expected = falls_under(llama, lambda j, n: causal(j, torch.tensor(0.1).log(), n))
    torch.testing.assert_close(attribute(*llama, "atman").scores, expected.float(), atol=1e-5, rtol=1e-4)


def test_atman_becomes_a_knock_out_where_nothing_is_kept(llama):
    found = attribute(*llama, "atman", kept=1e-30).scores
    torch.testing.assert_close(found, attribute(*llama, "knock_out").scores, atol=1e-6, rtol=1e-5)
    with pytest.warns(UserWarning, match="gives 0 to every token"):
        assert not bool(attribute(*llama, "atman", kept=1.0).scores.any())


def site_of(scores, **more):
    """One query over keys with these scores; values that show the weights."""
    row = torch.tensor(scores)[None, None, None]
    n = row.shape[-1]
    weights = row.softmax(-1)
    values = torch.eye(n)[None, None]
    return Site(Place("s", "self", 0, ""), value=values, scores=row, weights=weights, z=weights @ values, **more)


def turned_down(change, scores, key, f=0.1):
    factors = torch.ones(len(scores)).index_fill(0, torch.tensor([key]), f)
    return change(site_of(scores), factors).weights[0, 0, 0]


def test_the_published_form_leaves_the_token_of_the_minimum_as_it_is():
    scores = [2.0, 1.0, 0.0, -1.0]
    plain = torch.tensor(scores).softmax(-1)
    torch.testing.assert_close(turned_down(_as_published, scores, 3), plain)
    above = torch.tensor([3.0, 0.2, 1.0, 0.0])
    torch.testing.assert_close(turned_down(_as_published, scores, 1), above.softmax(-1))
    # Without the shift a negative score would rise: 0.032 to 0.075.
    raised = torch.tensor([2.0, 1.0, 0.0, -0.1]).softmax(-1)
    assert float(plain[3]) < 0.0325 and float(raised[3]) > 0.075


def test_the_additive_form_takes_the_same_odds_from_every_token():
    scores = [2.0, 1.0, 0.0, -1.0]
    plain = torch.tensor(scores).softmax(-1)
    for key in range(4):
        found = turned_down(_add, scores, key)
        others = [i for i in range(4) if i != key]
        torch.testing.assert_close(found[key] / found[others], 0.1 * plain[key] / plain[others])
    without = site_of(scores)
    changed = _add(replace(without, scores=None), torch.tensor([1.0, 0.1, 1.0, 1.0])).weights[0, 0, 0]
    torch.testing.assert_close(changed, turned_down(_add, scores, 1))


def test_the_published_minimum_is_over_masked_keys_too():
    query, key = torch.tensor([[[[2.0]]]]), torch.tensor([2.0, 1.0, -5.0])[None, None, :, None]
    visible = torch.tensor([True, True, False])[None, None, None]
    site = site_of([2.0, 1.0, -torch.inf], query=query, key=key, visible=visible)
    found = _as_published(site, torch.tensor([1.0, 0.1, 1.0])).weights[0, 0, 0]
    torch.testing.assert_close(found, torch.tensor([7.0, 0.6, -torch.inf]).softmax(-1))


def test_the_published_form_is_refused_where_masked_scores_cannot_be_known():
    model = tiny.loaded("gemma2", scale=8.0)
    with pytest.raises(InputError, match="no multiple of query"):
        attribute(model, model.example(tiny.IDS), "atman", form="published")


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_the_published_form_equals_a_model_with_its_attention_rewritten(name, monkeypatch):
    model = load(tiny.build(name, "eager", scale=2.0))
    example = model.example(tiny.IDS)
    found = attribute(model, example, "atman", form="published", kept=0.3)
    code = getattr(transformers.models, name)
    code = getattr(code, f"modeling_{name}")
    chosen = []

    def rewritten(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **more):
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
        scores = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        scores = scores - scores.amin(-1, keepdim=True)
        scores[..., chosen] *= 0.3
        weights = (scores if attention_mask is None else scores + attention_mask[..., : key.shape[2]]).softmax(-1)
        return (weights @ value).transpose(1, 2), weights

    target = model.resolve(example).on("log_probability")
    with torch.no_grad():
        whole = target(model.forward([_row(example)]))
        monkeypatch.setattr(code, "eager_attention_forward", rewritten)
        answers = []
        for j in range(example.n_tokens):
            chosen[:] = [j]
            answers.append(target(model.module(example.inputs["input_ids"]).logits))
    expected = whole - torch.cat(answers)
    torch.testing.assert_close(found.scores, expected, atol=1e-5, rtol=1e-4)
    assert found.used["explained"].startswith("log-probability of")


def test_similar_tokens_are_turned_down_with_it(llama):
    model, _ = llama
    example = model.example([5, 6, 5, 7])
    found = attribute(model, example, "atman", similar=0.999).scores
    log = torch.tensor(0.1, dtype=torch.float64).log()
    masks = {0: causal(0, log, 4) + causal(2, log, 4).triu(1) * 0, 1: causal(1, log, 4)}
    masks[0][..., 2:, 2] += log
    falls = falls_under((model, example), lambda j, n: masks[{0: 0, 2: 0}.get(j, 1)])
    torch.testing.assert_close(found[:2], falls[:2].float(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found[2], found[0])


def test_the_factor_of_similar_tokens_is_the_published_one(llama):
    from attnprobe.methods.atman import _factors

    model, example = llama
    vectors = torch.nn.functional.normalize(model.embed(example).double(), dim=-1)
    cosine = vectors @ vectors.T
    expected = torch.where(cosine >= 0.05, 0.9 * (1 - cosine) + 0.1, 1.0)
    assert float((cosine >= 0.05).double().mean()) > 0.15
    torch.testing.assert_close(_factors(model, example, range(12), 0.1, 0.05), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kept": 0.0}, "use knock_out"),
        ({"kept": 1.5}, "at most 1"),
        ({"form": "paper"}, "'additive' or 'published'"),
        ({"similar": 2.0}, "a cosine"),
    ],
)
def test_atman_refuses_what_makes_no_sense(llama, options, message):
    with pytest.raises(InputError, match=message):
        attribute(*llama, "atman", **options)


def test_a_cross_entropy_needs_more_than_one_output():
    made = planted("P1")
    with pytest.raises(InputError, match="no cross-entropy"):
        score(made, "atman", form="published")


# ------------------------------------------------------------------------------ heads as features


def test_twins_have_the_same_heads_whatever_their_attention():
    for name in ("P3A", "P3B"):
        made = planted(name)
        for method in ("leave_one_out", "shapley"):
            found = heads_as_features(made.model, made.example, method=method)
            torch.testing.assert_close(found, torch.tensor([[0.9, 1.8]]).to(found), atol=1e-6, rtol=0)


def test_a_head_that_always_adds_the_same_counts_with_it():
    effects = []
    for first, second in ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0)):
        made = planted("P4", first=first, second=second)
        found = heads_as_features(made.model, made.example, made.target)[0]
        torch.testing.assert_close(found, torch.tensor([4.0, 0.6 * first + 0.2 * second]).to(found), atol=1e-6, rtol=0)
        effects.append(found.abs())
    torch.testing.assert_close(torch.stack(effects).mean(0), torch.tensor([4.0, 0.6]).to(found), atol=1e-6, rtol=0)


def test_a_head_that_another_stands_in_for_gets_little_alone_and_its_share_by_shapley():
    made = planted("P11")
    alone = heads_as_features(made.model, made.example)
    torch.testing.assert_close(alone, torch.tensor([[0.1, 0.0]]).to(alone), atol=1e-6, rtol=0)
    shared = heads_as_features(made.model, made.example, method="shapley", n_samples=120)
    torch.testing.assert_close(shared, torch.tensor([[0.55, 0.45]]).to(shared), atol=0.15, rtol=0)
    assert abs(float(shared.sum()) - 1.0) < 1e-6


def test_a_head_taken_away_equals_its_columns_of_the_output_matrix_at_0():
    model = load(tiny.build("bert", "sdpa", scale=2.0))
    example = model.example(tiny.IDS)
    target = model.resolve(example, Target(label=0, against=1))
    found = heads_as_features(model, example, target)
    ids = example.inputs["input_ids"]
    with torch.no_grad():
        whole = target(model.module(ids).logits)
        for layer, head in ((0, 1), (1, 3), (2, 0)):
            weight = model.module.bert.encoder.layer[layer].attention.output.dense.weight
            before = weight.clone()
            weight[:, 8 * head : 8 * head + 8] = 0
            fall = whole - target(model.module(ids).logits)
            weight.copy_(before)
            torch.testing.assert_close(found[layer, head], fall[0], atol=1e-5, rtol=1e-4)


def test_heads_by_shapley_add_up_to_the_change_and_leave_the_generators_alone():
    model = tiny.loaded("t5", scale=2.0)
    example = tiny.example(model, "t5")
    before = torch.get_rng_state()
    found = heads_as_features(model, example, method="shapley", n_samples=2, seed=1)
    assert found.shape == (3, 4) and torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found, heads_as_features(model, example, method="shapley", n_samples=2, seed=1))
    from attnprobe.intervention import silence_head

    edits = tuple(silence_head(layer, range(4), stack="decoder", kind="cross") for layer in range(3))
    ends = model.targets([_row(example), _row(example, edits=edits)], model.resolve(example))
    torch.testing.assert_close(found.sum(), ends[0] - ends[1], atol=1e-4, rtol=1e-4)


def test_heads_as_features_refuses_another_method():
    made = planted("P1")
    with pytest.raises(InputError, match="'leave_one_out' or 'shapley'"):
        heads_as_features(made.model, made.example, method="gates")
