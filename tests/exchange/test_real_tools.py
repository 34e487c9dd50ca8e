"""The tools themselves read what we write, and we what they write; each test skips where its tool is not installed."""

import numpy as np
import pytest
import torch
import transformers as t

import attnprobe
from attnprobe.errors import InputError
from attnprobe.exchange import (
    from_inseq,
    from_shap,
    from_transformer_lens,
    to_bertviz,
    to_circuitsvis,
    to_inseq,
    to_shap,
    to_transformer_lens,
)
from tests.tiny import IDS, build, example

pytestmark = pytest.mark.filterwarnings("ignore")  # theirs
TEXTS = ("An unpredictable, warm film.", "Not good at all.")
WORDS = ["<pad>", "<unk>", "</s>", "the", "film", "is", "good", "bad", "not", "very", "warm", "clever", "a", "plot"]
WORDS += ["and"]


@pytest.fixture(scope="module")
def sentiment():
    return attnprobe.load("attnprobe/sentiment")


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """The folder of a small language model with a vocabulary of words."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = t.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", eos_token="</s>"
    )
    torch.manual_seed(0)
    model = t.GPT2LMHeadModel(
        t.GPT2Config(
            n_embd=32, n_layer=2, n_head=4, vocab_size=len(WORDS), n_positions=64, bos_token_id=2, eos_token_id=2
        )
    )
    folder = tmp_path_factory.mktemp("model")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_tool_that_is_not_there_is_named(sentiment):
    try:
        import shap  # noqa: F401
    except ImportError:
        a = attnprobe.attribute(sentiment, TEXTS[0], "input_x_gradient")
        with pytest.raises(InputError, match="to_shap needs shap, which is not installed: pip install shap"):
            to_shap(a)
    else:
        pytest.skip("shap is there")


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5"])
def test_bertviz_draws_a_capture(name):
    bertviz = pytest.importorskip("bertviz")
    model = attnprobe.load(build(name))
    found = to_bertviz(model.capture(example(model, name)))
    for view in (bertviz.head_view, bertviz.model_view):
        page = view(**found, html_action="return").data
        assert '"15"' in page and str(round(float(found[next(iter(found))][0][0, 0, 0, 0]), 4))[:5] in page


def test_circuitsvis_draws_a_capture():
    circuitsvis = pytest.importorskip("circuitsvis")
    model = attnprobe.load(build("gpt2"))
    found = to_circuitsvis(model.capture(example(model, "gpt2")), 1)
    assert "L1H3" in str(circuitsvis.attention.attention_heads(**found))
    assert "15" in str(circuitsvis.attention.attention_patterns(found["tokens"], found["attention"]))


def test_shap_holds_and_plots_our_scores(sentiment):
    shap = pytest.importorskip("shap")
    found = [attnprobe.attribute(sentiment, text, "shapley_sampling", seed=0) for text in TEXTS]
    one = to_shap(found[0], model=sentiment)
    assert "".join(one.data) == TEXTS[0]
    explained = float(sentiment.resolve(found[0].example)(sentiment.capture(found[0].example).logits)[0])
    assert float(one.base_values) + float(one.values.sum()) == pytest.approx(explained, abs=1e-5)
    assert "film" in shap.plots.text(one, display=False)
    several = to_shap(found, model=sentiment)
    assert several.shape[0] == 2 and "".join(several[1].data) == TEXTS[1]
    assert "film" in shap.plots.text(several, display=False)
    method = from_shap("elsewhere", several)
    for a in found:
        assert torch.equal(attnprobe.attribute(sentiment, a.example, method).scores, a.scores)


def test_an_explanation_by_shap_itself_joins_a_comparison(sentiment):
    shap = pytest.importorskip("shap")

    def logits(texts):
        examples = [sentiment.example(str(text).strip() or ".") for text in texts]
        return np.array([sentiment.capture(example).logits[0].tolist() for example in examples])

    explainer = shap.Explainer(logits, shap.maskers.Text(r"\W+"), output_names=["negative", "positive"])
    explanation = explainer(["A warm film"], silent=True)
    method = from_shap("by_shap", explanation, output="positive")
    a = attnprobe.attribute(sentiment, "A warm film", method)
    assert float(a.scores.sum()) == pytest.approx(float(explanation.values[0][:, 1].sum()), abs=1e-4)


def test_inseq_reads_our_file(sentiment, language_model, tmp_path):
    inseq = pytest.importorskip("inseq")
    found = [attnprobe.attribute(sentiment, text, "input_x_gradient") for text in TEXTS]
    to_inseq(found, tmp_path / "scores.json")
    output = inseq.FeatureAttributionOutput.load(tmp_path / "scores.json")
    for a, one in zip(found, output.sequence_attributions, strict=True):
        assert torch.equal(one.source_attributions[:, 0], a.scores)
        assert [token.token for token in one.source] == list(a.example.tokens)
    assert "film" in output.show(display=False, return_html=True)
    model = attnprobe.load(language_model)
    a = attnprobe.attribute(model, "the film is not", "input_x_gradient")
    to_inseq(a, tmp_path / "causal.json")
    (one,) = inseq.FeatureAttributionOutput.load(tmp_path / "causal.json").sequence_attributions
    assert torch.equal(one.target_attributions[:4, 0], a.scores)


def test_what_inseq_computes_joins_a_comparison(language_model, tmp_path):
    inseq = pytest.importorskip("inseq")
    output = inseq.load_model(str(language_model), "saliency").attribute(
        "the film is", "the film is good and", show_progress=False
    )
    with pytest.raises(InputError, match="aggregate"):
        from_inseq("by_inseq", output, step="good")
    output = output.aggregate()
    output.save(tmp_path / "theirs.json")
    output.save(tmp_path / "lists.json", use_primitives=True)
    expected = output.sequence_attributions[0].target_attributions[:3, 0]
    model = attnprobe.load(language_model)
    for given in (output, tmp_path / "theirs.json", tmp_path / "lists.json"):
        method = from_inseq("by_inseq", given, step="good", signed=False)
        a = attnprobe.attribute(model, "the film is", method, "good")
        assert torch.allclose(a.scores, expected)


@pytest.mark.parametrize("which", ["gpt2", "llama"])
def test_transformer_lens_records_the_same_attention(which, language_model, tmp_path):
    bridges = pytest.importorskip("transformer_lens.model_bridge")
    folder = language_model
    if which == "llama":
        folder = tmp_path / "llama"
        build("llama").save_pretrained(folder)
        t.AutoTokenizer.from_pretrained(language_model).save_pretrained(folder)
    bridge = bridges.TransformerBridge.boot_transformers(str(folder), device="cpu")
    ids = [index for index in IDS if index < len(WORDS)]
    _, cache = bridge.run_with_cache(torch.tensor([ids]))
    model = attnprobe.load(t.AutoModelForCausalLM.from_pretrained(folder))
    capture = model.capture(
        model.example(ids), keep=attnprobe.Keep.of("weights", "scores", "query", "key", "value", "z")
    )
    ours = to_transformer_lens(capture, rotary=which == "llama")
    assert len(ours) == 6 * len(capture.sites)
    for name, tensor in ours.items():
        theirs = cache[name]
        assert theirs.shape == tensor.shape, name
        seen = torch.isfinite(tensor) & torch.isfinite(theirs)
        assert torch.allclose(theirs[seen], tensor[seen], atol=1e-4), name
    back = from_transformer_lens(cache, capture.example)
    assert torch.allclose(back.weights(), capture.weights(), atol=1e-5)
    assert all(check.passed for check in back.checks) and back.stacks() == capture.stacks()
