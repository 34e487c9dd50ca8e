"""swap(): the mechanism that is asked for runs at the seam, under the model's own mask, scale and bias."""

import math
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import entropy

from attnprobe import attribute, intervention, swap, swapped
from attnprobe.attention.mechanisms import Mechanism
from attnprobe.attention.seam import Keep
from attnprobe.errors import CaptureError, EditError, InputError
from attnprobe.metrics.ranks import kendall_tau
from attnprobe.models import load
from attnprobe.models.edited import EditedModel
from attnprobe.models.rows import Row
from attnprobe.site import Normalizer
from attnprobe.swap_figure import swap_heatmap, swap_panels
from attnprobe.swapping import distances
from tests import tiny
from tests.huggingface import sparse_models

ALL = Keep.of("query", "key", "value", "scores", "weights", "z")
CAUSAL = torch.ones(12, 12).tril().bool()
SHARP = ("raw_attention", "rollout", "input_x_gradient", "leave_one_out")


def loaded(name: str, implementation: str = "sdpa", **options):
    model = load(tiny.build(name, implementation, **options))
    return model, tiny.example(model, name)


def logits_of(model, example, *edits):
    with torch.no_grad():
        return model.capture(example, edits=edits).logits


@pytest.fixture(scope="module")
def bert():
    return loaded("bert")


@pytest.fixture(scope="module")
def llama():
    """Grouped heads: 4 query heads on 2 key and value heads; causal."""
    return loaded("llama")


# ---------------------------------------------------------------- the model's own mechanism changes nothing


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5", "gemma2", "bart", "mistral", "modernbert", "vit"])
@pytest.mark.parametrize("mechanism", ["scaled_dot", "online"])
def test_the_models_own_mechanism_gives_its_own_logits(name, mechanism):
    # Scores of T5 are not scaled: with smaller parameters their rounding stays as small as that of the others.
    implementation, scale = "eager" if name in tiny.EAGER_ONLY else "sdpa", 1.5 if name == "t5" else 4.0
    model, example = loaded(name, implementation, scale=scale)
    with torch.no_grad():
        expected = model.forward([Row(example)])
    found = logits_of(model, example, swapped(mechanism))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", tiny.NAMES)
def test_temperature_1_and_a_window_wider_than_the_text_change_nothing(name):
    model, example = loaded(name, "eager")
    with torch.no_grad():
        expected = model.forward([Row(example)])
    for edit in (swapped("temperature"), swapped("local_window", width=99, kind="self"), swapped("top_k", k=99)):
        torch.testing.assert_close(logits_of(model, example, edit), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("name", "scale"), [("bert", 8**-0.5), ("llama", 8**-0.5), ("t5", 1.0)])
def test_the_scale_that_the_model_puts_on_its_scores_is_found(name, scale):
    from attnprobe.attention_swap import own_scale

    model, example = loaded(name)
    for site in model.capture(example, keep=ALL).select(model.stacks[0].name, "self"):
        found, bias = own_scale(site)
        assert found == pytest.approx(scale, rel=1e-9)
        if name == "t5":
            table = model.module.encoder.block[0].layer[0].SelfAttention.compute_bias(12, 12)
            torch.testing.assert_close(bias, table.detach().expand_as(bias), atol=1e-4, rtol=1e-4)
        else:
            assert bias is None


def test_a_scale_of_the_models_own_is_kept_by_mechanisms_that_divide_by_the_root_of_the_width():
    module = tiny.build("bert", "sdpa")
    for layer in module.bert.encoder.layer:
        layer.attention.self.scaling = 0.7
    model = load(module)
    example = model.example(tiny.IDS)
    site = model.capture(example, keep=ALL, edits=[swapped("top_k", layers=0)]).sites[0]
    with torch.no_grad():
        expected = model.forward([Row(example)])
    torch.testing.assert_close(logits_of(model, example, swapped("scaled_dot")), expected, atol=1e-5, rtol=1e-5)
    by_hand = (0.7 * site.query @ site.key.mT).topk(4, -1)
    weights = torch.zeros(1, 4, 12, 12).scatter(-1, by_hand.indices, by_hand.values.softmax(-1))
    mechanism = model.capture(example, edits=[swapped(Mechanism.of("top_k"), layers=0)]).weights()[0]
    torch.testing.assert_close(mechanism, weights[0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(site.weights, weights, atol=1e-5, rtol=1e-4)


# ---------------------------------------------------------------- what each change does


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_a_window_cuts_what_a_four_dimensional_mask_cuts(name):
    module = tiny.build(name, "eager")
    model = load(module)
    example = model.example(tiny.IDS)
    near = (torch.arange(12)[:, None] - torch.arange(12)).abs() < 3
    near = near & CAUSAL if name == "llama" else near
    mask = torch.zeros(12, 12).masked_fill(~near, torch.finfo(torch.float32).min)
    with torch.no_grad():
        expected = module(torch.tensor([tiny.IDS]), attention_mask=mask[None, None]).logits
    found = logits_of(model, example, swapped("local_window", width=3))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_a_temperature_is_a_division_of_the_scores(name):
    model, example = loaded(name)
    plain = model.capture(example, keep=ALL).sites[0]
    edited = model.capture(example, keep=ALL, edits=[swapped("temperature", temperature=0.5, layers=0)]).sites[0]
    visible = CAUSAL if name == "llama" else torch.ones(12, 12).bool()
    scores = (plain.query @ plain.key.mT / math.sqrt(8)).masked_fill(~visible, -torch.inf)
    torch.testing.assert_close(edited.weights, (scores / 0.5).softmax(-1), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(edited.z, (scores / 0.5).softmax(-1) @ plain.value, atol=1e-5, rtol=1e-5)


def test_a_temperature_divides_the_sinks_too():
    model, example = loaded("gpt_oss", "eager")
    with torch.no_grad():
        for block in model.module.model.layers:
            block.self_attn.sinks.normal_()
    plain = model.capture(example, keep=ALL).sites[0]
    edited = model.capture(example, edits=[swapped("temperature", temperature=3.0, layers=0)]).weights()[0]
    offset = torch.arange(12)[:, None] - torch.arange(12)
    near = (offset >= 0) & (offset < 4)  # layer 0 slides a window
    scores = (plain.query @ plain.key.mT / math.sqrt(8)).masked_fill(~near, -torch.inf)
    sinks = model.module.model.layers[0].self_attn.sinks.detach()[None, :, None, None].expand(1, 4, 12, 1)
    expected = (torch.cat([scores, sinks], -1) / 3.0).softmax(-1)[..., :-1]
    torch.testing.assert_close(edited, expected[0], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
def test_hard_looks_at_the_largest_score_alone(name):
    model, example = loaded(name)
    plain = model.capture(example, keep=ALL).sites[0]
    edited = model.capture(example, edits=[swapped("hard", layers=0)], keep=ALL).sites[0]
    expected = torch.nn.functional.one_hot(plain.weights.argmax(-1), 12).float()
    assert torch.equal(edited.weights, expected)


def test_uniform_is_the_edit_of_that_name():
    for name in ("bert", "llama", "gpt_oss"):
        model, example = loaded(name, "eager")
        assert torch.equal(
            logits_of(model, example, swapped("uniform")), logits_of(model, example, intervention.uniform())
        )


def test_the_k_largest_weights_take_over_the_mass_of_the_others(llama):
    model, example = llama
    plain, edited = model.capture(example).weights()[0], model.capture(example, edits=[swapped("top_k", k=2)]).weights()
    best = plain.topk(2, -1)
    expected = torch.zeros_like(plain).scatter(-1, best.indices, best.values / best.values.sum(-1, keepdim=True))
    torch.testing.assert_close(edited[0], expected, atol=1e-6, rtol=1e-5)


def test_linear_attention_is_causal_by_itself_under_a_causal_mask(llama):
    model, example = llama
    edit = swapped("linear", layers=0)
    site = model.capture(example, keep=ALL, edits=[edit]).sites[0]
    features = [torch.nn.functional.elu(x.double()) + 1 for x in (site.query, site.key)]
    products = (features[0] @ features[1].mT).masked_fill(~CAUSAL, 0.0)
    torch.testing.assert_close(site.weights.double(), products / products.sum(-1, keepdim=True), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(site.z, site.weights @ site.value)


def test_hashed_attention_takes_the_queries_as_keys(bert):
    model, example = bert
    with pytest.warns(UserWarning, match="'lsh' keys are the queries"):
        site = model.capture(example, keep=ALL, edits=[swapped("lsh", n_buckets=1, chunk=12, layers=0)]).sites[0]
    unit = site.query / site.query.norm(dim=-1, keepdim=True)
    scores = (site.query @ unit.mT).masked_fill(torch.eye(12).bool(), -torch.inf)  # one bucket: all others, not itself
    torch.testing.assert_close(site.weights, scores.softmax(-1), atol=1e-6, rtol=1e-5)


def test_other_heads_and_layers_stay_as_they_were(bert):
    model, example = bert
    plain = model.capture(example).weights()
    edited = model.capture(example, edits=[swapped("hard", layers=[1], heads=[2])]).weights()
    assert torch.equal(edited[0], plain[0])
    assert torch.equal(edited[1, [0, 1, 3]], plain[1, [0, 1, 3]]) and not torch.equal(edited[1, 2], plain[1, 2])


def test_without_scores_the_weights_stand_for_them(bert):
    model, example = bert
    site = model.capture(example, keep=ALL).sites[0]
    blank = site.replace(weights=site.weights)
    assert blank.scores is None
    options = {"temperature": {"temperature": 2.0}, "top_k": {"k": 3}, "local_window": {"width": 2}}
    for name in ("temperature", "top_k", "local_window", "hard", "sparsemax", "entmax15", "uniform"):
        edit = swapped(name, **options.get(name, {}))
        torch.testing.assert_close(edit(blank).weights, edit(site).weights, atol=1e-5, rtol=1e-4, msg=name)
    with pytest.raises(EditError, match="no 'scores'"):
        swapped("sigmoid")(blank)


# ---------------------------------------------------------------- what is refused, and what is said


def test_a_mechanism_without_a_mask_is_refused_where_something_is_hidden(llama):
    with pytest.raises(EditError, match=r"'nystrom' takes no mask, and 66 of 144 pairs .* scaled_dot"):
        logits_of(*llama, swapped("nystrom"))
    model, example = loaded("mistral", "eager")  # a sliding window is no causal mask
    with pytest.raises(EditError, match="'memory_compressed' takes no mask but a causal one"):
        logits_of(model, example, swapped("memory_compressed"))


def test_a_site_without_query_says_which_tensor_is_missing(bert):
    site = replace(bert[0].capture(bert[1], keep=ALL).sites[0], query=None)
    with pytest.raises(EditError, match=r"'linear' needs query and key, and there is no query here.*temperature"):
        swapped("linear")(site)
    assert swapped("hard")(site).weights is not None


def test_a_bias_that_is_dropped_is_said():
    model, example = loaded("t5")
    with pytest.warns(UserWarning, match="'linear' takes no bias"):
        logits_of(model, example, swapped("linear", stack="encoder"))
    found = swap(model, "linear", [example], stack="encoder", methods=(), layers=0, progress=False)
    assert len(found.notes) == 2 and "encoder self-attention layer 0" in found.notes[1]
    assert "no one distribution, so kl, total_variation and kept are NaN" in found.notes[0]  # of a whole answer


@pytest.mark.parametrize(("mechanism", "options"), [("compressive", {}), ("nystrom", {}), ("temperature", {})])
def test_options_that_do_not_bind_at_this_length_are_said(bert, mechanism, options):
    model, example = bert
    found = swap(model, mechanism, [example], methods=(), progress=False, **options)
    (note,) = found.notes
    assert "the same as full attention at this length (12 to 12 tokens) everywhere: nothing moved" in note
    assert found.texts[found.texts.measure == "kl"].value.max() < 1e-9
    moved = swap(model, "top_k", [example], k=2, methods=(), progress=False)
    assert moved.notes == ()
    assert repr(moved).startswith("Swap(top_k (k=2) in BertForSequenceClassification: layers 0, 1, 2, all, 1 texts")


def test_hashed_attention_is_refused_where_keys_are_not_the_queries():
    model, example = loaded("bart")
    with pytest.raises(EditError, match="in 'lsh' keys are the queries, and here"):
        logits_of(model, example, swapped("lsh", stack="decoder", kind="cross"))


def test_a_knock_out_behind_a_swap_asks_the_mechanism_again(bert):
    model, example = bert
    one_hot = model.capture(example, edits=[swapped("hard", layers=0)]).weights()[0, 0, 3]
    edits = [swapped("hard", layers=0), intervention.knock_out(3, int(one_hot.argmax()), layers=0, heads=0)]
    site = model.capture(example, keep=ALL).sites[0]
    after = model.capture(example, edits=edits).weights()[0, 0, 3]
    second = site.scores[0, 0, 3].argsort(descending=True)[1]
    assert after.sum() == 1 and int(after.argmax()) == int(second)


@pytest.mark.parametrize(
    ("mechanism", "options", "message"),
    [
        ("temprature", {}, "did you mean 'temperature'"),
        ("linaer", {}, "did you mean 'linear'"),
        ("temperature", {"temperature": 0.0}, "above 0"),
        ("temperature", {"t": 2.0}, "no option 't'"),
        ("top_k", {"k": 0}, "at least 1 key"),
        ("top_k", {"k": "three"}, "a whole number"),
        ("hard", {"layers": 7}, "layers 0 to 2, got 7"),
        ("hard", {"layers": []}, "got no layer"),
        ("hard", {"layers": True}, "a layer is a whole number"),
        ("hard", {"heads": []}, "got no head"),
        ("performer", {}, "here it is 'favor'"),
        ("scaled_dot", {"visible": torch.ones(12, 12).bool()}, "visible is no option"),
        ("hard", {"stack": "decoder"}, "it has encoder self"),
        (Mechanism.of("top_k", k=2), {"k": 3}, "has its options already"),
    ],
)
def test_what_cannot_be_is_said(bert, mechanism, options, message):
    with pytest.raises(InputError, match=message):
        swap(bert[0], mechanism, [bert[1]], methods=(), progress=False, **options)


def test_a_window_wants_self_attention_and_a_head_that_is_there(bert):
    model, example = loaded("t5")
    with pytest.raises(EditError, match="say kind='self'"):
        logits_of(model, example, swapped("local_window", width=2))
    with pytest.raises(EditError, match="got head 4"):
        logits_of(*bert, swapped("hard", heads=4))


# ---------------------------------------------------------------- the table


@pytest.fixture(scope="module")
def found(bert):
    model, example = bert
    return swap(model, "hard", [example, model.example(tiny.IDS[3:])], progress=False)


def test_every_place_has_every_measure_of_every_text(found):
    assert list(dict.fromkeys(found.texts.layer)) == ["0", "1", "2", "all"]
    assert len(found.texts) == 2 * 4 * (4 + 4) and found.failures.empty
    table = found.to_frame()
    assert len(table) == 4 * (4 + 4) and (table.mechanism == "hard").all()
    assert (table[table.measure != "kendall_tau"].n == 2).all()


def test_predictions_are_measured_on_the_models_own_distribution(bert, found):
    model, example = bert
    edits = {"1": [swapped("hard", layers=1)], "all": [swapped("hard")]}
    before = model.capture(example).logits[0].double()
    for layer, edit in edits.items():
        after = model.capture(example, edits=edit).logits[0].double()
        rows = found.texts[(found.texts.example_index == 0) & (found.texts.layer == layer) & (found.texts.method == "")]
        rows = rows.set_index("measure").value
        p, q = before.softmax(-1).numpy(), after.softmax(-1).numpy()
        label = int(before.argmax())
        expected = {
            "change": float(after[label] - before[label]),
            "kl": float(np.sum(p * np.log(p / q))),
            "total_variation": float(np.abs(p - q).sum() / 2),
            "kept": float(p.argmax() == q.argmax()),
        }
        assert rows.to_dict() == pytest.approx(expected, abs=1e-5)


def test_explanations_are_those_of_the_swapped_model(bert, found):
    model, example = bert
    goal = model.resolve(example)
    rows = found.texts.query("example_index == 0 and layer == 'all'").set_index("method").value
    # Independent of the model with standing edits: the gradient and the removal, written out.
    edit = swapped("hard")
    with torch.enable_grad():
        vectors = model.embed(example)[None].clone().requires_grad_()
        with model.listening(tape_of(edit)):
            answer = model.module(inputs_embeds=vectors).logits[0, goal.label]
        (gradient,) = torch.autograd.grad(answer, vectors)
    scores = (vectors * gradient)[0].sum(-1).detach()
    before = attribute(model, example, "input_x_gradient", goal)
    assert rows["input_x_gradient"] == pytest.approx(kendall_tau(before.scores, scores), abs=0.05)

    gone = [Row(example, kept=torch.arange(12) != j, operator="mean", edits=(edit,)) for j in range(12)]
    answers = model.targets([Row(example, edits=(edit,)), *gone], goal)
    before = attribute(model, example, "leave_one_out", goal, operator="mean")
    tau = kendall_tau(before.scores[before.units], (answers[0] - answers[1:])[before.units])
    assert rows["leave_one_out"] == pytest.approx(tau, abs=1e-6)


def tape_of(*edits):
    from attnprobe.attention.seam import Tape

    return Tape(edits=edits, check=False)


def test_the_models_own_mechanism_moves_nothing(llama):
    model, example = llama
    table = swap(model, "scaled_dot", [example], methods=SHARP, progress=False).to_frame()
    means = table.groupby("measure")["mean"]
    assert means.min()["kendall_tau"] > 0.9 and (means.min()["kept"], means.max()["kept"]) == (1, 1)
    assert means.max()["kl"] < 1e-8 and means.max()["total_variation"] < 1e-5
    assert means.max()["change"] < 1e-4 > -means.min()["change"]


def test_attention_made_uniform_has_no_order_to_compare(bert):
    model, _ = bert
    # Rounding, of the mean over heads or the product of layers, makes some differ in the last digit.
    texts = [model.example(tiny.IDS[n:]) for n in range(6)]
    found = swap(model, "uniform", texts, methods=["raw_attention", "rollout"], each=False, progress=False)
    tau = found.texts[found.texts.measure == "kendall_tau"].set_index("method").value
    assert tau["raw_attention"].isna().all()
    # Rollout keeps the position that is read above the others, which are all alike: two ranks.
    edited = EditedModel(model, [swapped("uniform")])
    for text, value in zip(texts, tau["rollout"], strict=True):
        before = attribute(model, text, "rollout").scores
        assert attribute(edited, text, "rollout").scores.argmax() == 0
        ranks = torch.zeros(text.n_tokens).index_fill(0, torch.tensor([0]), 1.0)
        assert value == pytest.approx(kendall_tau(before, ranks), abs=1e-6)


def test_six_texts_have_an_interval(bert):
    model, _ = bert
    texts = [model.example(tiny.IDS[n:]) for n in range(6)]
    table = swap(model, "hard", texts, methods=(), layers=[0, 2], progress=False).to_frame()
    change = table[table.measure == "change"]
    assert list(change.layer) == ["0", "2", "all"] and (change.n == 6).all()
    assert ((change.low < change["mean"]) & (change["mean"] < change.high)).all()


def test_a_text_is_measured_the_same_alone_and_among_others(bert):
    model, example = bert
    alone = swap(model, "top_k", [example], k=2, methods=(), progress=False).texts
    among = swap(model, "top_k", [model.example(tiny.IDS[4:]), example], k=2, methods=(), progress=False).texts
    pd.testing.assert_series_equal(
        alone.value, among[among.example_index == 1].value, check_index=False, atol=1e-6, rtol=1e-5
    )
    assert set(alone.mechanism) == {"top_k (k=2)"}


def test_encoder_decoders_are_swapped_stack_by_stack():
    model, example = loaded("bart")
    table = swap(model, "hard", [example], methods=["raw_attention"], progress=False).to_frame()
    places = table[["stack", "kind", "layer"]].drop_duplicates().values.tolist()
    assert len(places) == 3 * 3 + 1 and places[-1] == ["all", "all", "all"]
    # The answer is a whole text: its log-probability changes, and there is no one distribution.
    assert table[table.measure == "change"]["mean"].notna().all() and table[table.measure == "kl"]["mean"].isna().all()


def test_a_method_that_fails_is_said_and_the_others_go_on(bert):
    model, example = bert
    found = swap(model, "hard", [example], methods=["value_zeroing", "leave_one_out"], layers=1, progress=False)
    assert list(found.failures.method) == ["value_zeroing"] and "does not know its number" in found.failures.error[0]
    assert "leave_one_out" in set(found.texts.method)


def test_outputs_that_are_no_distribution_have_no_distance(bert):
    goal = bert[0].resolve(bert[1])
    assert all(math.isnan(x) for x in distances(torch.tensor([1.0]), torch.tensor([2.0]), goal))
    either = replace(goal, exclusive=False)
    kl, variation, kept = distances(torch.tensor([1.0, 0.0]), torch.tensor([2.0, 3.0]), either)
    assert math.isnan(kl) and math.isnan(variation) and kept == 0


def test_nothing_of_the_model_is_changed(bert):
    model, example = bert
    state = {name: tensor.clone() for name, tensor in model.module.state_dict().items()}
    with torch.no_grad():
        before = model.forward([Row(example)])
    swap(model, "linear", [example], progress=False)
    with pytest.raises(EditError):
        swap(model, "hard", [example], heads=9, progress=False)
    with torch.no_grad():
        assert torch.equal(model.forward([Row(example)]), before)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.module.state_dict().items())
    assert not any(module._forward_hooks for module in model.module.modules())


# ---------------------------------------------------------------- the model with standing edits


def test_an_edited_model_answers_under_its_edits_and_those_of_the_question(bert):
    model, example = bert
    first, second = swapped("hard", layers=0), intervention.silence_head(1, 2)
    edited = EditedModel(model, [first])
    with torch.no_grad():
        assert torch.equal(edited.forward([Row(example)]), logits_of(model, example, first))
    both = logits_of(model, example, first, second)
    assert torch.equal(edited.capture(example, edits=[second]).logits, both)
    rows = [Row(example), Row(example, edits=(second,))]
    answers = edited.targets(rows, model.resolve(example))
    assert answers[1] == pytest.approx(float(both[0, model.resolve(example).label]), abs=1e-5)
    assert edited.describe()["edits"] == ["hard in layers 0"]


# ---------------------------------------------------------------- figures


def test_the_heatmap_shows_the_table(bert, found):
    model, example = bert
    other = swap(model, "top_k", [example, model.example(tiny.IDS[3:])], k=2, progress=False)
    axes = swap_heatmap([found, other], measure="kl")
    shown = axes.collections[0].get_array().reshape(4, 2)
    table = pd.concat([found.to_frame(), other.to_frame()])
    for column, name in enumerate(("hard", "top_k (k=2)")):
        kl = table[(table.mechanism == name) & (table.measure == "kl")]["mean"]
        np.testing.assert_allclose(shown[:, column], kl)
    assert [t.get_text() for t in axes.get_yticklabels()] == ["layer 0", "layer 1", "layer 2", "all layers"]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["hard", "top_k\n(k=2)"]
    assert "KL" in axes.collections[0].colorbar.ax.get_ylabel()
    titles = [axes.get_title(loc="left") for axes in swap_panels([found, other])]
    assert len(titles) == 6 and any("Rollout" in title for title in titles) and any("Leave" in t for t in titles)
    assert len({panel.figure for panel in swap_panels(found)}) == 1


def test_a_heatmap_of_what_is_not_there_says_so(found):
    with pytest.raises(InputError, match="did you mean 'kept'"):
        swap_heatmap(found, measure="keept")
    with pytest.raises(InputError, match="did you mean 'rollout'"):
        swap_heatmap(found, measure="kendall_tau", method="roll_out")
    with pytest.raises(InputError, match="twice"):
        swap_heatmap([found, found])
    with pytest.raises(InputError, match="missing"):
        swap_heatmap(found.to_frame().drop(columns="layer"))


def test_no_warning_comes_from_a_swap_of_a_plain_model(bert):
    model, example = bert
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert swap(model, "uniform", [example], progress=False).notes == ()


def test_all_at_once_alone_is_the_last_place_of_each(bert, found):
    model, example = bert
    whole = swap(model, "hard", [example], each=False, methods=(), progress=False).texts
    rows = found.texts.query("example_index == 0 and layer == 'all' and method == ''")
    assert list(whole.layer) == ["all"] * 4 and whole.value.to_list() == pytest.approx(rows.value.to_list(), abs=1e-6)


def test_the_divergence_is_of_the_prediction_before_from_the_one_after(bert):
    before, after = torch.tensor([2.0, 0.0, -1.0]).double(), torch.tensor([0.0, 3.0, -4.0]).double()
    p, q = before.softmax(-1).numpy(), after.softmax(-1).numpy()
    kl, variation, kept = distances(before, after, bert[0].resolve(bert[1]))
    assert kl == pytest.approx(float(entropy(p, q))) and abs(kl - float(entropy(q, p))) > 0.1
    assert variation == pytest.approx(float(np.abs(p - q).sum() / 2)) and kept == 0


@pytest.mark.parametrize("name", ["longformer", "big_bird", "reformer_rounds", "vits"])
def test_changes_of_the_weights_run_on_attention_without_a_matrix(name):
    tiny_model = sparse_models.tiny(name)
    model = load(tiny_model.module)

    def hidden(*edits):
        torch.manual_seed(0)  # some of them draw
        with torch.no_grad(), model.listening(tape_of(*edits)):
            return tiny_model.module(**tiny_model.inputs)[0]

    plain = hidden()
    torch.testing.assert_close(hidden(swapped("temperature")), plain, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(hidden(swapped("top_k", k=999)), plain, atol=1e-5, rtol=1e-5)
    for edit in (swapped("temperature", temperature=3.0), swapped("hard"), swapped("uniform")):
        assert float((hidden(edit) - plain).abs().max()) > 0.01


def test_weights_that_were_changed_behind_the_softmax_stand_for_themselves(bert):
    def refuse(scores):
        raise CaptureError("no scores lead to these weights")

    site = bert[0].capture(bert[1], keep=ALL).sites[0]
    halved = replace(site, weights=site.weights / 2, normalizer=Normalizer("unknown", refuse, "at_most_one"))
    for name, options in (("temperature", {"temperature": 2.0}), ("top_k", {"k": 2}), ("hard", {})):
        found, plain = (swapped(name, **options)(s).weights for s in (replace(halved, scores=None), site))
        torch.testing.assert_close(found, plain / 2, atol=1e-6, rtol=1e-5)
        if name != "hard":
            assert torch.equal(swapped(name, **options)(halved).weights, found)


def test_weights_below_zero_have_no_scores(bert):
    site = bert[0].capture(bert[1], keep=ALL).sites[0]
    with pytest.raises(EditError, match="weights below 0"):
        swapped("temperature", temperature=2.0)(site.replace(weights=site.weights - 0.5))
    assert swapped("uniform")(site.replace(weights=site.weights - 0.5)).weights is not None


def test_small_numbers_of_a_heatmap_are_told_from_none(found):
    table = found.to_frame()
    table.loc[table.measure == "kl", "mean"] = [0.003, 3e-16, 0.2, float("nan")]
    axes = swap_heatmap(table, measure="kl")
    assert [text.get_text() for text in axes.texts] == ["3e−3", "0.00", "0.20", "–"]
    nothing = table.assign(mean=table["mean"].where(table.measure != "kendall_tau"))
    assert len(swap_panels(nothing)) == 2  # what has no number at all is no panel
