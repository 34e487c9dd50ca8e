"""What benchmarks/trends.py stands on: the tasks have the truth they say, and each measure is what it is called."""

import itertools

import pandas as pd
import pytest
import torch

from attnprobe.experiments.cues import CUES, HELD_OUT
from attnprobe.experiments.reader import Reader, as_model, read_texts
from attnprobe.metrics.ranks import spearman
from attnprobe.models.randomness import seeded
from benchmarks.published import claims, grammar, readers
from benchmarks.published.attending import by_gradient, by_removal
from benchmarks.published.bundled import sentences
from benchmarks.published.depth import against_blank_out, blank_first, limited_below, maps_by_layer
from benchmarks.published.keeping import kept, kept_table
from benchmarks.published.summing import Claim, by_seed, over_seeds

SINGULAR, PLURAL = ({pair[number] for pair in grammar.NOUNS} for number in (0, 1))


@pytest.fixture(scope="module")
def network():
    """The agreement network, untrained; what is measured here holds of any parameters."""
    return grammar.fresh(0).eval()


# ---------------------------------------------------------------- tasks


def test_the_label_is_the_number_of_the_subject_and_attractors_have_the_other():
    found = grammar.draw(300, 5)
    for one in found:
        assert one.words[one.subject] in (SINGULAR, PLURAL)[one.label]
        nouns = [word for place, word in enumerate(one.words) if place != one.subject and word in SINGULAR | PLURAL]
        assert one.n_attractors == sum(word in (PLURAL, SINGULAR)[one.label] for word in nouns)
    assert {one.label for one in found} == {0, 1}


def test_neither_the_first_noun_nor_the_last_tells_the_number_of_the_verb():
    found = grammar.draw(2000, 6)
    for which in (0, -1):
        nouns = [[word in PLURAL for word in one.words if word in SINGULAR | PLURAL][which] for one in found]
        right = sum(noun == bool(one.label) for noun, one in zip(nouns, found, strict=True)) / len(found)
        assert 0.5 < right < 0.85


def test_the_label_of_a_counting_text_is_what_most_of_its_cues_say():
    for one in readers.draw_counting(200, 3):
        votes = [
            word in CUES["positive"] for word in one.text.split() if word in {*CUES["positive"], *CUES["negative"]}
        ]
        assert len(votes) in readers.N_CUES
        assert one.label == int(sum(votes) * 2 > len(votes))


def test_no_task_measures_on_what_it_learned_from():
    learned = {one.text for one in readers.draw_counting(readers.N_TRAIN, 0)}
    assert not learned & {one.text for one in readers.draw_counting(200, HELD_OUT)}
    assert not {one.text for one in grammar.draw(5000, 0, shortest=6)} & {
        one.text for one in grammar.draw(80, grammar.HELD_OUT + 1, shortest=6)
    }


def test_sentences_are_each_another_one():
    assert len(set(sentences(50, 1))) == 50


# ---------------------------------------------------------------- maps by layer


def test_maps_by_layer_are_the_products_and_the_largest_flows_of_the_hand_case():
    """Two layers of two tokens; products by hand, flows by the smallest cut over all of them."""
    first, second = torch.tensor([[0.6, 0.4], [0.2, 0.8]]), torch.tensor([[0.5, 0.5], [0.9, 0.1]])
    found = maps_by_layer([first, second])
    assert found["raw", 1].tolist() == pytest.approx([0.6, 0.4])
    assert found["raw", 2].tolist() == pytest.approx([0.5, 0.5])
    assert found["column maximum", 2].tolist() == pytest.approx([0.9, 0.5])
    assert found["rollout", 1].tolist() == found["flow", 1].tolist() == pytest.approx([0.8, 0.2])
    assert found["rollout", 2].tolist() == pytest.approx([0.625, 0.375])
    half = [(layer + torch.eye(2)) / 2 for layer in (first, second)]
    assert found["flow", 2].tolist() == pytest.approx([_smallest_cut(half, token) for token in range(2)])


def _smallest_cut(half: list[torch.Tensor], token: int) -> float:
    """Of a network of two layers, from the first token above to one below: try which middle nodes are with the source,
    and whether the other input is no help (it leads nowhere)."""
    cuts = []
    for side in itertools.product((0, 1), repeat=2):
        above = sum(float(half[1][0, middle]) for middle in range(2) if not side[middle])
        below = sum(float(half[0][middle, token]) for middle in range(2) if side[middle])
        cuts.append(above + below)
    return min(cuts)


def test_flow_is_limited_below_where_it_is_all_that_fits_into_each_word():
    first = torch.tensor([[0.9, 0.1], [0.9, 0.1]])  # half of it and half of the identity: columns of 1.4 and 0.6
    assert limited_below(first, torch.tensor([1.0, 0.6]))
    assert not limited_below(first, torch.tensor([1.0, 0.3]))
    assert not limited_below(first, maps_by_layer([first])["flow", 1])


def test_blank_out_and_its_agreement_are_those_of_the_network_itself(network):
    model, one = grammar.as_model(network), grammar.draw(1, 8, shortest=7)[0]
    table = against_blank_out(model, [one.text])
    ids = grammar.encode([one])[0]
    with torch.no_grad():
        ask = lambda ids: network(network.token_embedding(ids)).softmax(-1)[0]  # noqa: E731
        label = int(ask(ids).argmax())
        fall = torch.stack(
            [ask(ids)[label] - ask(ids.index_fill(1, torch.tensor([place]), 1))[label] for place in range(ids.shape[1])]
        )
    assert grammar.VOCABULARY.tokens[1] == "[UNK]"
    assert blank_first(model, model.example(one.text)) == pytest.approx(float(fall[0]), abs=1e-6)
    weights = model.capture(model.example(one.text)).weights()[2].mean(0)[0]
    shown = table[(table["map"] == "raw") & (table.layer == 3)].set_index("against").value
    assert shown["size"] == pytest.approx(spearman(weights[1:], fall[1:].abs()), abs=1e-6)
    assert shown["with [CLS]"] == pytest.approx(spearman(weights, fall.abs()), abs=1e-6)


def test_in_the_first_layer_flow_and_rollout_order_words_as_raw_attention_does(network):
    table = against_blank_out(grammar.as_model(network), [one.text for one in grammar.draw(3, 9, shortest=6)])
    first = table[(table.layer == 1) & (table.against == "size")].pivot(index="example_index", columns="map")["value"]
    assert first["rollout"].tolist() == pytest.approx(first["raw"].tolist(), abs=1e-9)
    assert first["flow"].tolist() == pytest.approx(first["raw"].tolist(), abs=0.05)


# ---------------------------------------------------------------- readers


@pytest.mark.parametrize("encoder", readers.ENCODERS)
def test_the_gradient_holds_attention_and_removal_deletes(encoder):
    with seeded(3):
        network = Reader(encoder, "learned").eval()
    one = readers.draw_counting(1, 4)[0]
    model, words = as_model(network), one.text.split()
    embeddings = network.token_embedding(readers.encode([one])[0]).detach().requires_grad_()
    held = read_texts(network, [one]).weights
    probabilities = network(embeddings, given=held).softmax(-1)[0]
    label = int(probabilities.argmax())
    (gradient,) = torch.autograd.grad(probabilities[label], embeddings)
    wanted = (embeddings * gradient).sum(-1)[0].abs()
    assert by_gradient(model, one.text).tolist() == pytest.approx(wanted.tolist(), rel=1e-3, abs=1e-7)
    without = [" ".join(words[:place] + words[place + 1 :]) for place in range(len(words))]
    whole = float(probabilities[label].detach())
    falls = [abs(whole - float(model.capture(model.example(text)).logits.softmax(-1)[0, label])) for text in without]
    assert by_removal(model, one.text).tolist() == pytest.approx(falls, abs=1e-6)


def test_a_reader_learns_and_is_read_again_as_it_was(tmp_path):
    def fresh() -> Reader:
        with seeded(0):
            return Reader("average", "learned")

    texts = readers.held_out("counting", 200)
    trained = kept("one", fresh, lambda: readers.train(fresh(), readers.draw_counting, 0, n_steps=60), tmp_path)
    assert readers.accuracy(trained, texts) > 0.9
    again = kept("one", fresh, lambda: pytest.fail("it was trained before"), tmp_path)
    assert torch.equal(read_texts(trained, texts).weights, read_texts(again, texts).weights)


# ---------------------------------------------------------------- numbers


def test_a_table_is_measured_once_and_read_as_it_was(tmp_path):
    table = pd.DataFrame({"variant": ["", "0.1"], "value": [0.5, float("nan")]})
    kept_table("one", lambda: table, tmp_path)
    again = kept_table("one", lambda: pytest.fail("it was measured before"), tmp_path)
    assert again.variant.tolist() == ["", "0.1"]
    assert again.value.isna().tolist() == [False, True]
    assert (again.seconds >= 0).all()


def test_seeds_count_alike_however_many_texts_they_have():
    values = pd.DataFrame({"map": "raw", "seed": [0, 0, 0, 1], "value": [0.0, 0.0, 0.3, 0.5]})
    row = over_seeds(by_seed(values, ["map"]), ["map"]).iloc[0]
    assert (row["mean"], row.low, row.high, row.n_seeds) == pytest.approx((0.3, 0.1, 0.5, 2))


@pytest.mark.parametrize(("holds", "there"), [((True, True), "yes"), ((True, False), "partly"), ((False,), "**no**")])
def test_a_trend_is_there_if_every_seed_shows_it(holds, there):
    assert Claim("", "", "", holds).there == there


def _depth_table(values: dict[str, tuple[float, ...]]) -> pd.DataFrame:
    rows = [
        (0, name, layer, "size", value, 0)
        for name, by_layer in values.items()
        for layer, value in enumerate(by_layer, start=1)
    ]
    return pd.DataFrame(rows, columns=["example_index", "map", "layer", "against", "value", "seed"])


def test_the_numbers_of_the_paper_themselves_show_every_trend_on_layers():
    from benchmarks.published.depth import PAPER

    assert [claim.there for claim in claims.depth_claims(_depth_table(PAPER))] == ["yes"] * 5


def test_numbers_that_stay_flat_show_no_trend_on_layers():
    flat = dict.fromkeys(("raw", "rollout", "flow"), (0.4,) * 6)
    assert [claim.there for claim in claims.depth_claims(_depth_table(flat))] == ["**no**"] * 5


def test_the_farthest_twin_is_sought_among_those_that_predict_alike():
    rows = [("0", "jsd", 0.2), ("0", "total_variation", 0.01), ("1", "jsd", 0.6), ("1", "total_variation", 0.3)]
    rows += [("another seed", "jsd", 0.5), ("another seed", "total_variation", 0.0)]
    table = pd.DataFrame(rows, columns=["variant", "measure", "value"]).assign(seed=0, example_index=0)
    assert claims.far_twins(table).tolist() == [0.2]


def test_little_change_is_a_share_of_the_texts_with_much_weight():
    numbers = {"max_weight": (0.9, 0.9, 0.8, 0.2), "median_change": (0.05, 0.3, 0.01, 0.0)}
    rows = [(index, name, value) for name, values in numbers.items() for index, value in enumerate(values)]
    table = pd.DataFrame(rows, columns=["example_index", "measure", "value"])
    table = table.assign(seed=0, task="order", encoder="recurrent", experiment="permuted")
    assert claims.little_change(table, "order", "recurrent").tolist() == pytest.approx([2 / 3])
