"""A head's card: its numbers are those of the parts that it is put together from, its neighbours are near."""

import json
import math

import pytest
import torch

from attnprobe import load, profile
from attnprobe.card import head_card
from attnprobe.cli.head import show
from attnprobe.errors import InputError
from attnprobe.head_card_figure import card_figure
from attnprobe.head_neighbours import js_distance, like_by_maps, like_by_scores
from attnprobe.heads.addresses import Head
from attnprobe.heads.circuits import ov_top_tokens
from attnprobe.heads.measuring import head_effect
from attnprobe.heads.pair_scores import head_pairs_of
from tests import tiny
from tests.heads.made import capture_of, one_hot, random_weights

ADDRESSES = {"bert": "2.1", "gpt2": "L2H1", "llama": (2, 1), "t5": "decoder.cross.2.1", "vit": "2.1"}


@pytest.fixture(scope="module")
def cards():
    made = {}
    for name, address in ADDRESSES.items():
        model = tiny.loaded(name)
        made[name] = (model, head_card(model, address, tiny.example(model, name), k=3))
    return made


@pytest.mark.parametrize("name", list(ADDRESSES))
def test_the_map_is_the_models_own(cards, name):
    model, card = cards[name]
    maps, _ = tiny.reference(model.module, card.example.inputs)
    key = (card.head.stack, card.head.kind) if name == "t5" else ("", "self")
    assert torch.allclose(card.weights, maps[key][2, 1], atol=1e-6)
    looks = card.looks()
    assert looks.key_index.tolist() == maps[key][2, 1].argmax(-1).tolist()
    assert (len(card.queries), len(card.keys)) == tuple(card.weights.shape)


@pytest.mark.parametrize("name", list(ADDRESSES))
def test_values_and_ranks_are_those_of_all_heads_of_its_stack(cards, name):
    model, card = cards[name]
    effect = head_effect(model, card.example, "gate_gradient", stack=f"{card.head.stack}.{card.head.kind}")
    row = card.scores.set_index("score").loc["gate_gradient"]
    assert row.value == pytest.approx(float(effect.values[2, 1]), rel=1e-5)
    assert row["rank"] == 1 + int((effect.values.abs() > effect.values[2, 1].abs() + 1e-9).sum()) and row.n_heads == 12
    found = profile(model, [card.example], ["entropy"], stack=card.head.stack, kind=card.head.kind, progress=False)
    entropy = found.to_frame().set_index(["layer", "head"]).entropy
    row = card.scores.set_index("score").loc["entropy"]
    assert row.value == pytest.approx(entropy[2, 1]) and row["mean"] == pytest.approx(entropy.mean())
    assert row["rank"] == 1 + int((entropy > entropy[2, 1] + 1e-9).sum())


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_words_are_the_ov_words_of_the_tokens_it_looks_at_most(cards, name):
    model, card = cards[name]
    most = card.weights.sum(0).argsort(descending=True)[:4].tolist()
    assert list(dict.fromkeys(card.words.token)) == [str(tiny.IDS[at]) for at in most]
    expected = ov_top_tokens(model, card.head, tiny.IDS[most[0]], 3)
    mine = card.words[card.words.token == str(tiny.IDS[most[0]])]
    assert mine.word.tolist() == expected.token.tolist()
    assert mine.logit.tolist() == pytest.approx(expected.logit.tolist())


def test_a_model_without_an_unembedding_has_a_note_instead(cards):
    _, card = cards["bert"]
    assert card.words.empty and any("no unembedding" in note for note in card.notes)


def test_partners_are_those_of_the_composition_scores(cards):
    model, card = cards["llama"]
    found = head_pairs_of(model, "v_composition").to_frame()
    expected = found[found.reader == "2.1"].head(3)
    mine = card.partners[(card.partners.score == "V-composition") & (card.partners.direction == "reads from")]
    assert [head.removeprefix("decoder.self.") for head in mine["head"]] == expected.writer.tolist()
    assert mine.value.tolist() == pytest.approx(expected.value.tolist())
    assert "writes for" not in set(card.partners.direction)  # it is of the last layer


@pytest.mark.parametrize("name", list(ADDRESSES))
def test_the_card_is_json_and_a_picture(cards, name):
    _, card = cards[name]
    told = json.loads(json.dumps(card.to_dict(), allow_nan=False))
    assert told["head"] == str(card.head) and len(told["scores"]) == len(card.scores)
    figure = card_figure(card)
    figure.canvas.draw()
    map_axes, strips = figure.axes[:2]
    assert map_axes.collections[0].colorbar.ax.get_ylabel() == "weight"  # the map says its scale
    drawn = torch.from_numpy(map_axes.collections[0].get_array().filled())
    assert torch.allclose(drawn.reshape(card.weights.shape), card.weights)
    shown = [label.get_text() for label in strips.get_yticklabels()]
    rows = card.scores[card.scores.differs]
    labels = rows.label + [
        f", {unit}\n{sign}" if form == "effect" else ""
        for unit, sign, form in zip(rows.unit, rows.sign, rows.form, strict=True)
    ]
    assert sorted(shown) == sorted(labels) and any(", " in label for label in shown)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_the_place_of_a_dot_is_the_rank_that_is_written_beside_it(cards, name):
    _, card = cards[name]
    strips = card_figure(card).axes[1]
    rows = card.scores[card.scores.differs]
    ordered = [*rows[rows.form != "effect"]["rank"], *rows[rows.form == "effect"]["rank"]]
    dots = {}
    for line in strips.lines:
        xs, ys = line.get_data()
        if line.get_marker() == "o":
            dots.setdefault(round(float(ys[0])), []).append(xs)
    for at, rank in enumerate(ordered):
        others, mine = dots[at]
        assert rank == 1 + int((others > mine[0] + 1e-6).sum())


def test_what_fails_in_a_part_of_a_card_is_a_note_with_the_exception(monkeypatch, capsys):
    model = load(tiny.build("gpt2"))

    def broken(*_):
        raise RuntimeError("out of cheese")

    def mine(capture):
        raise ZeroDivisionError("nothing to divide by")

    monkeypatch.setattr("attnprobe.card.partners", broken)
    monkeypatch.setattr("attnprobe.card.like_by_maps", broken)
    card = head_card(model, "2.1", tiny.IDS, scores=["entropy", mine], effects=[])
    assert card.scores.score.tolist()[0] == "entropy" and card.like_maps.empty and not card.like_scores.empty
    for note in ("composition: RuntimeError: out of cheese", "maps: RuntimeError", "mine: ZeroDivisionError"):
        assert any(note in said for said in card.notes)
    show(card)
    assert "out of cheese" in " ".join(capsys.readouterr().out.split())


def test_a_card_says_what_even_attention_scores_and_the_unit_of_effects(cards, capsys):
    _, card = cards["bert"]
    rows = card.scores.set_index("score")
    n = card.weights.shape[1]
    assert rows.chance["previous_token"] == pytest.approx(1 / n) and rows.chance["entropy"] == pytest.approx(
        math.log(n)
    )
    assert math.isnan(rows.chance["zero_ablation"]) and rows.unit["zero_ablation"] == "logits"
    show(card)
    said = " ".join(capsys.readouterr().out.split())
    assert "in logits (rank by size" in said and "chance" in said and "+: falls without it" in said


def test_a_head_that_is_not_there_names_the_range():
    model = tiny.loaded("t5")
    for address, message in (("7.0", "layers 0 to 2, heads 0 to 3; got layer 7"), ("0.9", "heads 0 to 3; got head 9")):
        with pytest.raises(InputError, match=message):
            head_card(model, address, tiny.IDS)


# ---------------------------------------------------------------- neighbours


def test_the_distance_of_maps_is_0_for_one_and_the_same_and_1_for_other_keys():
    a, b = one_hot([0, 1, 2], 3), one_hot([1, 2, 0], 3)
    assert js_distance(a, a) == 0 and js_distance(a, b) == pytest.approx(1.0)
    half = torch.tensor([[0.5, 0.5]])
    p, m = [1.0, 0.0], [0.75, 0.25]  # against (1/2, 1/2): by hand
    divergence = (math.log(1 / m[0]) + 0.5 * math.log(0.5 / m[0]) + 0.5 * math.log(0.5 / m[1])) / 2
    assert js_distance(torch.tensor([p]), half) == pytest.approx(math.sqrt(divergence / math.log(2)))


def test_the_nearest_map_is_the_planted_one():
    weights = random_weights(2, 3, 6, 6)
    weights[1, 2] = 0.99 * weights[0, 1] + 0.01 / 6
    found = like_by_maps(capture_of(weights), Head("encoder", "self", 0, 1), 2)
    assert found["head"][0] == "encoder.self.1.2" and found.distance[0] < 0.05 < found.distance[1]


def test_the_nearest_scores_are_the_planted_ones():
    model = tiny.loaded("bert")

    def first(capture):
        return torch.arange(12.0).view(3, 4)

    def second(capture):
        values = torch.zeros(3, 4)
        values[0, 0], values[2, 3] = 100.0, 100.0
        return values

    found = profile(model, [tiny.IDS], [first, second], progress=False)
    near = like_by_scores(found, Head("encoder", "self", 0, 0), 3)
    assert near["head"][0] in ("encoder.self.0.1", "encoder.self.2.3")
    spread = [found.to_frame()[name].std(ddof=0) for name in ("first", "second")]
    expected = {
        "encoder.self.0.1": math.hypot(1 / spread[0], 100 / spread[1]) / math.sqrt(2),
        "encoder.self.2.3": 11 / spread[0] / math.sqrt(2),
    }
    for head, distance in zip(near["head"], near.distance, strict=True):
        assert head not in expected or distance == pytest.approx(expected[head])
