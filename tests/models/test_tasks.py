"""The small tasks: their data have one right answer, their measurements mean what they say, and networks learn them."""

import datetime
import re
import subprocess
import sys
from itertools import islice

import pytest
import torch

from attnprobe import attribute
from attnprobe.errors import InputError
from attnprobe.models.tasks import dates, induction
from attnprobe.models.tasks.date_forms import ANSWER, FORMS, MONTHS, ORDINALS, calendar, draw, write
from attnprobe.models.tasks.training import fit

KINDS = ("recurrent", "transformer")


def drawn(n: int) -> list:
    return list(islice(draw(calendar(held_out=False), 0), n))


# ------------------------------------------------------------------------------------------------ dates


@pytest.mark.parametrize("form", FORMS)
def test_every_form_says_day_month_and_year_where_its_spans_are(form: str):
    for date in (datetime.date(1987, 3, 3), datetime.date(2024, 12, 31), datetime.date(2008, 10, 12)):
        written = write(date, form)
        day, month, year = (written.text[slice(*written.spans[part])] for part in ("day", "month", "year"))
        ordinals = dict(zip(ORDINALS, range(1, 32), strict=True))
        assert (ordinals[day] if day in ordinals else int(re.match(r"\d+", day).group())) == date.day
        names = {name[:3]: number for number, name in enumerate(MONTHS, 1)}
        assert (names[month[:3]] if month[:3] in names else int(month)) == date.month
        assert int(year) in (date.year, date.year % 100)
        assert written.iso == date.isoformat()
        assert {part: written.iso[slice(*place)] for part, place in ANSWER.items()} == {
            "year": f"{date.year}",
            "month": f"{date.month:02}",
            "day": f"{date.day:02}",
        }


def test_no_text_in_numbers_means_two_dates_though_day_and_month_could_change_places():
    answers: dict[str, str] = {}
    for date in (day for day in [*calendar(held_out=False), *calendar(held_out=True)] if day.day <= 12):
        for form in (form for form in FORMS if "mon" not in form):
            written = write(date, form)
            assert answers.setdefault(written.text, written.iso) == written.iso


def test_held_out_days_are_a_tenth_of_the_century_and_never_drawn():
    learned, held_out = set(calendar(held_out=False)), set(calendar(held_out=True))
    assert len(learned | held_out) == 36525
    assert not learned & held_out
    assert len(held_out) == 3652
    assert not {date.iso for date in drawn(2000)} & {day.isoformat() for day in held_out}
    assert {date.iso for date in dates.held_out(50)} <= {day.isoformat() for day in held_out}


def test_a_seed_draws_the_same_dates_again():
    days = calendar(held_out=False)
    assert list(islice(draw(days, 3), 20)) == list(islice(draw(days, 3), 20)) != list(islice(draw(days, 4), 20))


def test_every_character_that_is_drawn_has_a_token():
    ids, is_token = dates.encode([date.text for date in drawn(2000)])
    assert not (ids == dates.INPUTS.ids["[UNK]"]).any()
    assert torch.equal(ids != dates.INPUTS.ids["[PAD]"], is_token)


@pytest.mark.parametrize("kind", KINDS)
def test_some_steps_lower_the_loss_and_the_seed_says_how(kind: str):
    torch.manual_seed(0)
    network, batch = dates.make(kind), drawn(32)
    losses = fit(network, lambda: dates.loss_on(network, batch), n_steps=12, rate=3e-3)
    assert losses[-1] < 0.8 * losses[0]
    first, again = (dates.train(kind, n_steps=2, seed=5) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_an_alignment_has_a_row_that_sums_to_one_for_each_character_written(kind: str):
    network, text = dates.make(kind), "3rd March '87"
    found = dates.alignment(network, text)
    assert found.inputs == tuple(text)
    assert "".join(found.outputs) == dates.translate(network, [text])[0]
    assert found.maps.shape[2:] == (10, len(text))
    assert (found.weights().sum(-1) - 1).abs().max() < 1e-5
    assert torch.equal(found.weights(0, 0), found.maps[0, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_read_alike_alone_and_among_longer_ones(kind: str):
    network = dates.make(kind)
    texts = ["3.3.87", "Wednesday the twenty-seventh of September 1989"]
    assert dates.translate(network, texts) == [dates.translate(network, [text])[0] for text in texts]


@pytest.mark.parametrize("kind", KINDS)
def test_the_mass_on_parts_is_what_a_loop_over_alignments_adds_up(kind: str, monkeypatch: pytest.MonkeyPatch):
    network, given = dates.make(kind), drawn(4)
    masses = dates.mass_on_parts(network, given)
    # `alignment` follows what the network writes; here it is told the right date, as in `mass_on_parts`.
    answers = iter(torch.tensor([dates.OUTPUTS.encode(date.iso)[1]]) for date in given)
    monkeypatch.setattr(dates, "greedy", lambda *_, **__: next(answers))
    maps = [dates.alignment(network, date.text).maps for date in given]
    for part, steps in (("year", range(4)), ("month", (5, 6)), ("day", (8, 9))):
        expected = torch.zeros(maps[0].shape[:2])
        for date, one in zip(given, maps, strict=True):
            for step in steps:
                for position in range(*date.spans[part]):
                    expected += one[:, :, step, position] / len(steps) / len(given)
        assert (masses[part] - expected).abs().max() < 1e-5
    even = [(end - begin) / len(date.text) / 3 for date in given for begin, end in date.spans.values()]
    assert abs(float(masses["even"]) - sum(even) / len(given)) < 1e-6


def test_an_unknown_kind_and_a_text_that_is_too_long_are_refused():
    with pytest.raises(InputError, match="did you mean 'transformer'"):
        dates.make("transfomer")
    with pytest.raises(InputError, match="at most 48 characters"):
        dates.translate(dates.make("recurrent"), ["1" * 49])


# -------------------------------------------------------------------------------------------- induction


def texts(n: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    return induction.repeated(n, torch.Generator().manual_seed(0))


def test_a_text_is_a_block_of_different_tokens_again_and_again():
    ids, period = texts(200)
    for row, p in zip(ids.tolist(), period.tolist(), strict=True):
        assert len(set(row[:p])) == p
        assert all(row[i] == row[i - p] for i in range(p, induction.LENGTH))
    assert set(period.tolist()) == set(range(induction.SHORTEST, induction.LONGEST + 1))


def test_what_is_predictable_is_what_follows_an_earlier_copy():
    ids, period = texts()
    known = induction.predictable(period)
    for row, text in enumerate(ids.tolist()):
        assert [i for i in range(induction.LENGTH - 1) if text[i] in text[:i]] == known[
            row
        ].nonzero().flatten().tolist()


def test_prefix_matching_is_what_a_loop_over_the_definition_finds():
    ids, _ = texts(3)
    weights = torch.rand(3, 2, 48, 48).tril().softmax(-1)
    for head in range(2):
        masses = []
        for row, text in enumerate(ids.tolist()):
            for i in range(48):
                behind = [j for j in range(1, i + 1) if text[j - 1] == text[i]]
                if behind:
                    masses.append(sum(float(weights[row, head, i, j]) for j in behind))
        assert abs(float(induction.prefix_matching(weights, ids)[head]) - sum(masses) / len(masses)) < 1e-5


def test_some_steps_lower_the_loss_of_induction():
    torch.manual_seed(0)
    network, (ids, period) = induction.train(n_steps=1), texts()
    losses = fit(network, lambda: induction.loss_on(network, ids, period), n_steps=12, rate=3e-3)
    assert losses[-1] < 0.9 * losses[0]


def test_every_head_is_read_and_silenced_alone():
    network, (ids, period) = induction.train(n_steps=1), texts()
    readings = induction.read_heads(network, ids, period)
    assert [(r.layer, r.head) for r in readings] == [(layer, head) for layer in range(2) for head in range(4)]
    last = readings[-1]
    weight = network.blocks[1].attention.output.weight
    with torch.no_grad():
        weight[:, 36:] = 0  # what the last head of width 12 passes on
    assert abs(induction.accuracy(network, ids, period) - last.accuracy_without) < 1e-9


def test_the_decoder_is_a_model_that_methods_explain():
    model = induction.as_model(induction.train(n_steps=1))
    found = attribute(model, model.example("t3 t17 t5 t3"), "raw_attention")
    assert found.scores.shape == (4,)


# ---------------------------------------------------------------------------- the commands, to their end


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_dates_are_learned_and_the_alignment_lies_where_they_are_written(kind: str):
    printed = run("attnprobe.models.tasks.dates", "--model", kind)
    assert float(re.search(r"right: ([\d.]+)%", printed).group(1)) >= 99
    assert "the third of March 1987   1987-03-03" in printed
    assert max(float(mass) for mass in re.findall(r"day ([\d.]+)", printed)) > 0.5


@pytest.mark.slow
def test_induction_is_learned_by_two_layers_in_heads_of_the_second():
    printed = run("attnprobe.models.tasks.induction")
    assert float(re.search(r"predicted: ([\d.]+)%", printed).group(1)) >= 95
    assert "of layer 1; without all of them" in printed
    assert "of layer 0; without" not in printed


# ------------------------------------------------------------------------------------------------ running


@pytest.mark.parametrize("train", [lambda: dates.train("recurrent", n_steps=1), lambda: induction.train(n_steps=1)])
def test_training_leaves_torchs_own_chance_as_it_was_and_follows_its_seed(train):
    state = torch.get_rng_state()
    first = train()
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    again = train()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))


def test_no_text_has_no_answer():
    assert dates.translate(dates.make("recurrent"), []) == []


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("tasks.dates", ["--steps", "-5"]),
        ("tasks.induction", ["--layers", "0"]),
        ("tasks_vision.digits", ["--steps", "0"]),
        ("tasks_vision.shapes", ["--steps", "none"]),
    ],
)
def test_steps_and_layers_of_none_are_refused(task: str, words: list[str]):
    command = [sys.executable, "-m", f"attnprobe.models.{task}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "a whole number of 1 or more is needed" in done.stderr


def test_a_trained_network_can_be_kept(tmp_path):
    from safetensors.torch import load_model

    file = tmp_path / "new" / "induction.safetensors"
    command = [sys.executable, "-m", "attnprobe.models.tasks.induction", "--steps", "1", "--out", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert str(file) in done.stdout
    network = induction.train(n_steps=0, seed=5)
    load_model(network, file)
    expected = induction.train(n_steps=1)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), expected.parameters(), strict=True))
