"""Pruning: the edits are the saved model, curves are what a plain loop measures, planted heads are found."""

import json

import numpy as np
import pytest
import torch

from attnprobe import Row, load, profile, silence_head
from attnprobe.errors import InputError
from attnprobe.heads.addresses import Head, heads_of_stack
from attnprobe.heads.measuring import head_effect
from attnprobe.models.planted import planted
from attnprobe.pruned_saving import RECORD, save_pruned
from attnprobe.pruning import head_order, prune, pruning_curve
from attnprobe.pruning_curves import PruningCurve
from attnprobe.pruning_figure import pruning_lines, sufficient_lines
from attnprobe.sufficient import sufficient_heads
from tests import tiny
from tests.report.conftest import tiny_bert

TEXTS = ["the actors are wonderful", "the plot is wasted", "a very good film", "not good"]


@pytest.fixture(scope="module")
def bert():
    return tiny_bert()


@pytest.fixture(scope="module")
def backup():
    """P11: y = h1 + relu(h2 - h1), with h1 = 1 and h2 = 0.9."""
    return planted("P11")


def of_planted(made):
    """The planted answer y, as a measure."""
    target = made.model.resolve(made.example, made.target)
    return lambda logits, example: target(logits)


# ---------------------------------------------------------------- the saved model


@pytest.mark.parametrize("name", ["bert", "distilbert", "modernbert", "gpt2", "llama", "gemma2", "t5", "bart", "vit"])
def test_the_saved_model_answers_as_the_edits_do_and_the_model_is_left_alone(name, tmp_path):
    model = load(tiny.build(name))
    example = tiny.example(model, name)
    heads = [head for stack in model.stacks for head in heads_of_stack(stack)][1::3]
    before = {key: value.clone() for key, value in model.module.state_dict().items()}
    config = model.module.config.to_dict()
    saved = load(save_pruned(model, heads, tmp_path / "pruned"))
    saved.module.set_attn_implementation("eager")  # as the model is; another kernel rounds in another way
    with torch.no_grad():
        found, whole = saved.forward([Row(example)]), model.forward([Row(example)])
    edited = model.capture(example, edits=prune(model, heads)).logits
    assert (whole - edited).abs().max() > 1e-3
    assert (found - edited).abs().max() <= 1e-5 * max(1.0, float(edited.abs().max()))
    assert all(torch.equal(value, before[key]) for key, value in model.module.state_dict().items())
    assert model.module.config.to_dict() == config
    assert json.loads((tmp_path / "pruned" / RECORD).read_text())["heads"] == list(map(str, heads))


def test_only_the_rows_of_the_heads_are_zero_and_biases_stay(tmp_path):
    module = tiny.build("bert")
    saved = load(save_pruned(load(module), ["1.2"], tmp_path / "pruned")).module
    mine, theirs = (m.bert.encoder.layer[1].attention.output.dense for m in (module, saved))
    expected = mine.weight.clone()
    expected[:, 16:24] = 0
    assert torch.equal(theirs.weight, expected) and torch.equal(theirs.bias, mine.bias)


def test_a_shared_layer_loses_a_head_everywhere_or_nowhere(tmp_path):
    model = tiny.loaded("albert")
    with pytest.raises(InputError, match=r"share their parameters.*0\.1, 1\.1, 2\.1"):
        save_pruned(model, ["1.1"], tmp_path / "one")
    assert not (tmp_path / "one").exists()
    everywhere = [(layer, 1) for layer in range(3)]
    saved, example = load(save_pruned(model, everywhere, tmp_path / "all")), tiny.example(model, "albert")
    edited = model.capture(example, edits=prune(model, everywhere)).logits
    assert torch.allclose(saved.forward([Row(example)]), edited, atol=1e-5)


def test_a_map_that_something_else_uses_as_well_is_not_changed(tmp_path):
    module = tiny.build("bert")
    module.bert.encoder.layer[0].attention.self.query.weight = module.bert.encoder.layer[
        1
    ].attention.output.dense.weight
    with pytest.raises(InputError, match="as well; what it does there would change too"):
        save_pruned(load(module), ["1.2"], tmp_path / "pruned")


def test_the_tokenizer_is_saved_too(bert, tmp_path):
    saved = load(save_pruned(bert, [(0, 1)], tmp_path / "pruned"))
    assert saved.example(TEXTS[0]).tokens == bert.example(TEXTS[0]).tokens


def test_what_cannot_be_saved_says_so(bert, backup, tmp_path):
    with pytest.raises(InputError, match="no model of transformers"):
        save_pruned(backup.model, [(0, 0)], tmp_path / "own")
    folder = save_pruned(bert, [(0, 1)], tmp_path / "pruned")
    with pytest.raises(InputError, match="holds a model already"):
        save_pruned(bert, [(0, 0)], folder)
    with pytest.raises(InputError, match="heads 0 to 1; got head 7"):
        save_pruned(bert, [(0, 7)], tmp_path / "no")


# ---------------------------------------------------------------- orders


def test_an_order_goes_from_the_lowest_number_up_and_equal_ones_by_layer(bert):
    stack = bert.stacks[0]
    numbers = torch.tensor([[3.0, -5.0], [3.0, 1.0]])
    places = [(head.layer, head.head) for head in head_order(bert, numbers, stack=stack)]
    assert places == [(0, 1), (1, 1), (0, 0), (1, 0)]
    sizes = [(head.layer, head.head) for head in head_order(bert, numbers, stack=stack, absolute=True)]
    assert sizes == [(1, 1), (0, 0), (1, 0), (0, 1)]
    down = [(head.layer, head.head) for head in head_order(bert, numbers, stack=stack, highest_first=True)]
    assert down == [(0, 0), (1, 0), (1, 1), (0, 1)]


def test_orders_come_from_profiles_and_effects_alike(bert):
    effect = head_effect(bert, TEXTS[0], "gate_gradient")
    found = profile(bert, TEXTS[:1], ["entropy"], ["gate_gradient"], progress=False)
    expected = sorted((float(effect.values[h.layer, h.head]), h) for h in heads_of_stack(bert.stacks[0]))
    assert head_order(bert, effect) == head_order(bert, found, "gate_gradient") == tuple(h for _, h in expected)


def test_a_head_without_a_number_has_no_place(bert):
    with pytest.raises(InputError, match=r"1 heads have no number \(encoder.self.0.1\)"):
        head_order(bert, torch.tensor([[0.0, torch.nan], [1.0, 2.0]]), stack=bert.stacks[0])
    with pytest.raises(InputError, match="did you mean 'entropy'"):
        head_order(bert, profile(bert, TEXTS[:1], progress=False), "entrpy")


# ---------------------------------------------------------------- curves


def slow(model, text, heads, measured, answer=None):
    """The measure with heads silenced one edit at a time, in a pass of its own."""
    example = model.example(text, **({} if answer is None else {"answer": answer}))
    edits = [silence_head(h.layer, h.head, stack=h.stack, kind=h.kind) for h in heads]
    return measured(model.capture(example, edits=edits).logits[0].double(), example)


@pytest.mark.parametrize("measure", ["accuracy", "loss"])
def test_a_curve_of_a_classifier_is_what_a_plain_loop_measures(bert, measure):
    order, labels = [(1, 0), (0, 1), (0, 0), (1, 1)], ["positive", "negative", 1, 0]
    ids = [1, 0, 1, 0]
    curve = pruning_curve(bert, TEXTS, {"mine": order}, labels, measure=measure, progress=False)
    heads = head_order(bert, order)
    for step, n in enumerate(curve.removed):
        for at, (text, label) in enumerate(zip(TEXTS, ids, strict=True)):
            expected = slow(
                bert,
                text,
                heads[:n],
                lambda logits, _, label=label: (
                    float(logits.argmax() == label)
                    if measure == "accuracy"
                    else float(torch.nn.functional.cross_entropy(logits[None], torch.tensor([label])))
                ),
            )
            assert curve.values["mine"][0, step, at] == pytest.approx(expected, abs=1e-6)


def test_a_language_model_is_asked_for_its_own_next_tokens():
    model = tiny.loaded("gpt2")
    curve = pruning_curve(
        model, [tiny.IDS], {"random": "random"}, measure="loss", steps=[5], n_random=2, progress=False
    )
    ids = torch.tensor(tiny.IDS[1:])
    for draw in range(2):
        expected = slow(
            model,
            tiny.IDS,
            curve.orders["random"][draw][:5],
            lambda logits, _: float(torch.nn.functional.cross_entropy(logits[:-1], ids)),
        )
        assert curve.values["random"][draw, 1, 0] == pytest.approx(expected, abs=1e-5)


def test_an_encoder_decoder_is_asked_for_its_answer_and_heads_of_all_stacks_go():
    model, answer = tiny.loaded("t5"), [4, 5, 6]
    order = [head for stack in model.stacks for head in heads_of_stack(stack)]
    curve = pruning_curve(model, [tiny.IDS], {"down": order}, [answer], measure="loss", steps=[14], progress=False)
    assert curve.removed == (0, 14, 36)
    expected = slow(
        model,
        tiny.IDS,
        order[:14],
        lambda logits, _: float(torch.nn.functional.cross_entropy(logits, torch.tensor(answer))),
        answer,
    )
    assert curve.values["down"][0, 1, 0] == pytest.approx(expected, abs=1e-5)


def test_without_labels_a_classifier_keeps_to_what_it_predicts_whole(bert):
    curve = pruning_curve(bert, TEXTS, {"random": "random"}, n_random=3, progress=False)
    assert (curve.values["random"][:, 0] == 1).all()
    ends = curve.values["random"][:, -1]
    assert (ends == ends[0]).all()  # all heads are gone, whatever the order was


def test_random_orders_follow_from_the_seed_and_differ_from_each_other(bert):
    first, again, other = (
        pruning_curve(bert, TEXTS[:1], {"random": "random"}, n_random=5, seed=seed, progress=False).orders["random"]
        for seed in (0, 0, 1)
    )
    assert first == again and first != other and len(set(first)) > 1
    assert all(sorted(order) == list(heads_of_stack(bert.stacks[0])) for order in first)


def test_the_backup_head_of_p11_costs_nothing_first_and_everything_last(backup):
    orders = {"backup first": [(0, 1), (0, 0)], "backup last": [(0, 0), (0, 1)]}
    curve = pruning_curve(backup.model, [backup.example], orders, measure=of_planted(backup), progress=False)
    assert curve.values["backup first"][0, :, 0].tolist() == pytest.approx([1.0, 1.0, 0.0])
    assert curve.values["backup last"][0, :, 0].tolist() == pytest.approx([1.0, 0.9, 0.0])
    assert curve.removable("backup first", 0.05) == 1 and curve.removable("backup last", 0.05) == 0
    assert curve.removable("backup last", 0.1) == 1 and curve.removable("backup last", 1.0) == 2


def made_curve(**values):
    heads = tuple(Head("encoder", "self", 0, head) for head in range(2))
    arrays = {name: np.array(given, dtype=float) for name, given in values.items()}
    return PruningCurve("made", "loss", False, (0, 1, 2), arrays, dict.fromkeys(values, (heads,)))


def test_the_table_has_intervals_over_examples_and_the_spread_of_draws():
    same = [[[0.5] * 6, [0.6] * 6, [0.9] * 6]]
    frame = made_curve(one=same, two=[same[0], [[0.5] * 6, [0.8] * 6, [0.9] * 6]]).to_frame()
    one, two = (frame[frame.order == name].reset_index() for name in ("one", "two"))
    assert one["mean"].tolist() == pytest.approx([0.5, 0.6, 0.9]) and one.n.tolist() == [6] * 3
    assert one.low.tolist() == pytest.approx(one.high.tolist()) and one.draw_low.isna().all()
    assert two["mean"][1] == pytest.approx(0.7)
    assert (two.draw_low[1], two.draw_high[1]) == pytest.approx((0.605, 0.795))  # of 0.6 and 0.8
    curve = made_curve(one=same)
    assert curve.removable("one", 0.1) == 1 and curve.removable("one", 0.05) == 0  # a loss that grows is worse


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"orders": {"a": [(0, 0)], "b": [(0, 1)]}}, "the orders hold different heads; 'b'"),
        ({"orders": {}}, "orders are a mapping"),
        ({"labels": ["positive"]}, "labels are one an example: got 1 for 4"),
        ({"labels": ["positiv"] * 4}, "did you mean 'positive'"),
        ({"measure": "acuracy"}, "did you mean 'accuracy'"),
        ({"measure": lambda logits, _: logits}, "one number a row"),
        ({"steps": [9]}, "from 0 to 4, got 9"),
        ({"orders": {"a": [(0, 7)]}}, "heads 0 to 1; got head 7"),
        ({"examples": []}, "there is no example"),
        ({"n_resamples": 0}, "n_resamples is a whole number of at least 1"),
    ],
)
def test_what_cannot_be_is_one_message(bert, given, message):
    asked = {"examples": TEXTS, "orders": {"random": "random"}, **given}
    with pytest.raises(InputError, match=message):
        pruning_curve(bert, **asked, progress=False)


# ---------------------------------------------------------------- which heads suffice


def test_one_of_the_two_heads_of_p11_suffices(backup):
    asked = {"measure": of_planted(backup), "progress": False}
    up = sufficient_heads(backup.model, [backup.example], 1, **asked)
    assert [head.short for head in up.kept] == ["0.0"]
    assert up.to_frame()["mean"].tolist() == pytest.approx([0.0, 1.0])
    down = sufficient_heads(backup.model, [backup.example], 1, start="all", **asked)
    assert [head.short for head in down.kept] == ["0.0"] and [head.short for head in down.steps] == ["0.1"]
    assert down.n_kept == (2, 1) and down.values[:, 0].tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize("start", ["none", "all"])
def test_each_step_takes_the_head_that_a_plain_search_takes(bert, start):
    pool = heads_of_stack(bert.stacks[0])
    found = sufficient_heads(bert, TEXTS, 2, ["positive", "negative"] * 2, start=start, progress=False)

    def loss(kept):
        silent = [head for head in pool if head not in kept]
        label = torch.tensor([1, 0] * 2)
        answers = torch.stack([slow(bert, text, silent, lambda logits, _: logits) for text in TEXTS])
        return float(torch.nn.functional.cross_entropy(answers, label))

    kept = set() if start == "none" else set(pool)
    for step in range(2):
        best = min((head for head in pool if (head in kept) != (start == "none")), key=lambda head: loss(kept ^ {head}))
        kept ^= {best}
        assert found.steps[step] == best
        assert found.to_frame()["mean"][step + 1] == pytest.approx(loss(kept), abs=1e-6)
    assert set(found.kept) == kept


def test_more_heads_than_there_are_cannot_suffice(bert):
    with pytest.raises(InputError, match="from 0 to 4, got 5"):
        sufficient_heads(bert, TEXTS, 5, progress=False)


# ---------------------------------------------------------------- figures


def test_the_figure_draws_the_means_of_each_order_and_a_band_of_the_draws():
    same = [[[0.5] * 6, [0.6] * 6, [0.9] * 6]]
    curve = made_curve(mine=same, chance=[same[0], [[0.5] * 6, [0.8] * 6, [0.9] * 6]])
    axes = pruning_lines(curve, level=0.95)
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["mine"].get_xdata().tolist() == [0, 1, 2]
    assert lines["mine"].get_ydata().tolist() == pytest.approx([0.5, 0.6, 0.9])
    assert lines["chance, 2 draws"].get_ydata().tolist() == pytest.approx([0.5, 0.7, 0.9])
    (band,) = [path for shape in axes.collections if shape.get_zorder() == 0 for path in shape.get_paths()]
    assert band.vertices[:, 1].max() == pytest.approx(0.9) and (axes.get_ylabel(), len(axes.lines)) == ("loss, nats", 3)
    axes.figure.canvas.draw()


def test_the_figure_of_sufficient_heads_names_the_head_of_each_step(backup):
    found = sufficient_heads(backup.model, [backup.example], measure=of_planted(backup), progress=False)
    axes = sufficient_lines(found)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["none", "+0.0", "+0.1"]
    assert axes.lines[0].get_ydata().tolist() == pytest.approx([0.0, 1.0, 1.0])
    axes.figure.canvas.draw()
