"""The evaluator: rows in, targets out, whatever the batches."""

import pytest
import torch

from attnprobe import intervention as edits
from attnprobe.errors import InputError, NumericsError
from attnprobe.models import evaluator, load
from attnprobe.models.evaluator import Meter, batch_rows, of_each, remembering, targets
from attnprobe.models.rows import DRAWN, Row, StandIns
from attnprobe.target import Target
from tests import tiny


@pytest.fixture
def model():
    return load(tiny.build("bert", "sdpa", scale=2.0))


@pytest.fixture
def example(model):
    return model.example(tiny.IDS)


def rows_of(example, operator="mean"):
    n = example.n_tokens
    return [Row(example, kept=torch.arange(n) != j, operator=operator) for j in range(n)]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_batches_do_not_change_the_answer(model, example, size):
    target = model.resolve(example)
    whole = targets(model, rows_of(example), target)
    with batch_rows(size):
        torch.testing.assert_close(targets(model, rows_of(example), target), whole, atol=1e-5, rtol=1e-5)


def test_rows_of_different_length_come_back_in_order(model, example):
    target = model.resolve(example)
    rows = [*rows_of(example, "delete"), Row(example), *rows_of(model.example(tiny.IDS[:5]))]
    together = targets(model, rows, target)
    apart = torch.stack([targets(model, [row], target)[0] for row in rows])
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)


def test_equal_rows_are_computed_once(model, example):
    target = model.resolve(example)
    with Meter() as meter:
        answers = targets(model, [Row(example)] * 5 + [Row(example, kept=torch.ones(12, dtype=torch.bool))], target)
    assert meter.forward == 1 and meter.reused == 5 and len(set(answers.tolist())) == 1


def test_a_row_is_remembered_within_the_block_only(model, example):
    target = model.resolve(example)
    with Meter() as meter, remembering():
        targets(model, rows_of(example), target)
        targets(model, rows_of(example), target)
    assert (meter.forward, meter.reused) == (12, 12)
    with Meter() as meter:
        targets(model, rows_of(example), target)
    assert meter.forward == 12


def test_rows_that_differ_only_in_edits_are_not_equal(model, example):
    target = model.resolve(example)
    rows = [
        Row(example),
        Row(example, edits=(edits.silence_head(0, 0),)),
        Row(example, edits=(edits.silence_head(0, 1),)),
    ]
    assert len(set(targets(model, rows, target).tolist())) == 3


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("no"), MemoryError(), RuntimeError("DefaultCPUAllocator: not enough memory")]
)
def test_the_batch_is_halved_when_memory_runs_out(model, example, error, monkeypatch):
    target = model.resolve(example)
    expected = targets(model, rows_of(example), target)
    plain, sizes = model.forward, []

    def small(rows, tape=None):
        sizes.append(len(rows))
        if len(rows) > 3:
            raise error
        return plain(rows, tape)

    monkeypatch.setattr(model, "forward", small)
    torch.testing.assert_close(targets(model, rows_of(example), target), expected, atol=1e-5, rtol=1e-5)
    assert sizes[:3] == [12, 6, 3] and max(sizes[2:]) == 3


def test_memory_for_not_even_one_row_is_a_clear_error(model, example, monkeypatch):
    target = model.resolve(example)

    def never(rows, tape=None):
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(model, "forward", never)
    with pytest.raises(InputError, match="not even 1 of the rows fits in memory"):
        targets(model, [Row(example)], target)


def test_other_errors_are_not_swallowed(model, example, monkeypatch):
    target = model.resolve(example)

    def broken(rows, tape=None):
        raise RuntimeError("shape mismatch")

    monkeypatch.setattr(model, "forward", broken)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        targets(model, [Row(example)], target)


def test_an_answer_that_is_not_finite_is_an_error(model, example):
    target = model.resolve(example)
    bad = Row(example, embeddings=torch.full((12, 32), float("nan")))
    with pytest.raises(NumericsError, match="NaN"):
        targets(model, [bad], target)


def test_a_content_removal_equals_other_embeddings(model, example):
    target = model.resolve(example)
    embeddings = model.embed(example).clone()
    embeddings[3] = 0
    kept = torch.arange(12) != 3
    pair = targets(model, [Row(example, kept=kept, operator="zero"), Row(example, embeddings=embeddings)], target)
    assert pair[0] == pair[1]


def test_a_hidden_key_equals_the_models_own_attention_mask(model, example):
    kept = torch.arange(12) != 3
    with torch.no_grad():
        expected = model.module(torch.tensor([tiny.IDS]), attention_mask=kept.long()[None]).logits
        found = evaluator.logits(model, [Row(example, kept=kept, operator="attention_mask")])
    torch.testing.assert_close(found, expected)


def test_a_deleted_token_equals_the_shorter_text(model, example):
    kept = torch.arange(12) != 3
    with torch.no_grad():
        expected = model.module(torch.tensor([[i for j, i in enumerate(tiny.IDS) if j != 3]])).logits
        found = evaluator.logits(model, [Row(example, kept=kept, operator="delete")])
    torch.testing.assert_close(found, expected)


def test_embeddings_that_are_the_models_own_change_nothing_on_any_architecture():
    for name in tiny.TEXT_NAMES:
        model = tiny.loaded(name)
        example = tiny.example(model, name)
        with torch.no_grad():
            plain = evaluator.logits(model, [Row(example)])
            given = evaluator.logits(model, [Row(example, embeddings=model.embed(example))])
        assert torch.equal(plain, given), name


def drawn(example, table, index, j=3):
    return Row(example, torch.arange(12) != j, "resample", stand_ins=StandIns(table, torch.tensor(index)))


def test_drawn_stand_ins_equal_other_embeddings(model, example):
    target, table = model.resolve(example), torch.randn(2, 32, generator=torch.Generator().manual_seed(0))
    embeddings = model.embed(example).clone()
    embeddings[3] = table[1]
    row = drawn(example, table, [0, 0, 0, 1] + [0] * 8)
    pair = targets(model, [row, Row(example, embeddings=embeddings)], target)
    torch.testing.assert_close(pair[0], pair[1], atol=1e-7, rtol=1e-6)
    assert abs(float(pair[0] - targets(model, [Row(example)], target))) > 1e-4


def test_rows_are_equal_where_the_same_embeddings_stand_in_for_what_is_gone(model, example):
    table = torch.randn(2, 32, generator=torch.Generator().manual_seed(0))
    row = drawn(example, table, [0] * 12)
    assert row.key() == drawn(example, table.clone(), [0] * 4 + [1] * 8).key()  # elsewhere, tokens stay
    assert row.key() != drawn(example, table, [1] * 12).key()
    assert row.key() != drawn(example, table, [0] * 12, j=4).key()
    with Meter() as meter, remembering():
        target = model.resolve(example)
        targets(model, [row], target)
        targets(model, [drawn(example, table.clone(), [0] * 12)], target)
    assert (meter.forward, meter.reused) == (2, 1)  # one of them tells the target


def test_what_is_read_of_each_row_comes_back_in_order_whatever_the_batches(model, example):
    rows = [*rows_of(example, "delete"), Row(example), *rows_of(example)]

    def read(logits, part):
        return [(row, logit) for row, logit in zip(part, logits, strict=True)]

    whole = of_each(model, rows, read, progress="reading")
    assert [row for row, _ in whole] == rows
    with batch_rows(2), Meter() as meter:
        apart = of_each(model, rows, read, progress="reading")
    assert meter.forward == len(rows)
    for (_, one), (_, other) in zip(whole, apart, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_deleting_a_token_of_the_text_moves_no_step_of_an_answer():
    model = tiny.loaded("t5")
    example = model.example(tiny.IDS[:5], answer=[4, 5, 6])
    target = model.resolve(example, Target(label=7, position=2))
    kept = torch.arange(example.n_tokens) != 0
    found = targets(model, [Row(example, kept=kept, operator="delete")], target)
    shorter = model.example(tiny.IDS[1:5], answer=[4, 5, 6])
    torch.testing.assert_close(found[0], targets(model, [Row(shorter)], target)[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("operator", DRAWN)
def test_an_operator_that_draws_needs_what_it_drew(example, operator):
    with pytest.raises(InputError, match="give stand_ins"):
        Row(example, kept=torch.arange(12) != 3, operator=operator)
    ones = StandIns(torch.zeros(1, 32), torch.zeros(12, dtype=torch.long))
    with pytest.raises(InputError, match="go with an operator that draws"):
        Row(example, kept=torch.arange(12) != 3, operator="mean", stand_ins=ones)
    with pytest.raises(InputError, match=r"one a token \(12\), got 1"):
        Row(example, torch.arange(12) != 3, operator, stand_ins=StandIns(ones.table, ones.index[:1]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda e: Row(e, operator="maks"), "did you mean 'mask'"),
        (lambda e: Row(e, kept=torch.zeros(12, dtype=torch.bool), operator="delete"), "every token would be deleted"),
    ],
)
def test_a_row_that_makes_no_sense_is_an_error(example, make, message):
    with pytest.raises(InputError, match=message):
        make(example)


def test_an_answer_is_not_remembered_after_a_parameter_was_replaced():
    model = load(tiny.build("bert", "sdpa"))
    example, layer = model.example(tiny.IDS), model.module.classifier
    target, fillers = model.resolve(example), model.fillers["mean"].clone()
    with remembering():
        before = targets(model, [Row(example)], target)
        layer.weight = torch.nn.Parameter(torch.zeros_like(layer.weight))  # of the same version as the one before
        assert targets(model, [Row(example)], target) != before
    words = model.module.bert.embeddings.word_embeddings
    words.weight = torch.nn.Parameter(3 * words.weight.detach())
    torch.testing.assert_close(model.fillers["mean"], 3 * fillers)


def test_an_answer_is_not_remembered_after_a_parameter_has_changed(model, example):
    target = model.resolve(example)
    with remembering():
        before = targets(model, [Row(example)], target)
        with torch.no_grad():
            model.module.classifier.weight.zero_()
        assert targets(model, [Row(example)], target) != before
