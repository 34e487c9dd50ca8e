"""Passes resumed at an edit: the answers of plain passes, and nothing of the model is left changed."""

import math

import pytest
import torch
from torch import nn

from attnprobe import intervention as edits
from attnprobe.errors import EditError
from attnprobe.models import load
from attnprobe.models.evaluator import Meter, batch_rows, targets
from attnprobe.models.planted import planted
from attnprobe.models.resumption import resumed
from attnprobe.models.rows import Row
from attnprobe.target import Target
from tests import tiny
from tests.resumed_models import MORE, build


def rows_of(example, stack, make=edits.silence_head):
    """A row for every head of a stack."""
    where = {"stack": stack.name, "kind": stack.kind}
    places = [(layer, head) for layer, n in enumerate(stack.n_heads) for head in range(n)]
    return [Row(example, edits=(make(layer, head, **where),)) for layer, head in places]


def forwards(module):
    """What a pass runs of each part of a model: its own forward, and its hooks."""
    return {
        path: (part.__dict__.get("forward"), len(part._forward_hooks), len(part._forward_pre_hooks))
        for path, part in module.named_modules()
    }


def ran(module, paths, run):
    """How many rows each of these parts was given while `run()` ran."""
    rows = dict.fromkeys(paths, 0)

    def counting(path, part):
        own = part.forward

        def forward(*args, **kwargs):
            states = next(t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor))
            rows[path] += len(states)
            return own(*args, **kwargs)

        part.forward = forward

    parts = {path: module.get_submodule(path) for path in paths}
    for path, part in parts.items():
        counting(path, part)
    try:
        run()
    finally:
        for part in parts.values():
            del part.__dict__["forward"]
    return rows


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("name", [*tiny.NAMES, *MORE])
def test_resumed_rows_answer_what_plain_ones_do(name, implementation):
    if implementation == "sdpa" and name in tiny.EAGER_ONLY:
        pytest.skip("this model has no sdpa")
    model = load(build(name, implementation))
    example = tiny.example(model, name)
    target = model.resolve(example)
    for stack in model.stacks:
        rows = [*rows_of(example, stack), Row(example)]
        plain = targets(model, rows, target)
        with resumed(model, example, target, always=True) as shortcut:
            found = targets(model, rows, target)
        assert shortcut.used.startswith("from the edit on"), shortcut.used
        torch.testing.assert_close(found, plain, atol=1e-5 * float(plain.abs().max()), rtol=1e-5)
        assert float(plain.std()) > 100 * float((found - plain).abs().max())


@pytest.mark.parametrize("name", ["bert", "gpt2", "albert"])
def test_in_float64_they_are_equal_to_the_ninth_place(name):
    model = load(build(name).double())
    example = tiny.example(model, name)
    target = model.resolve(example)
    rows = rows_of(example, model.stacks[0])
    plain = targets(model, rows, target)
    with resumed(model, example, target, always=True) as shortcut:
        found = targets(model, rows, target)
    assert shortcut.used.startswith("from the edit on")
    torch.testing.assert_close(found, plain, atol=1e-12, rtol=1e-9)


def test_every_kind_of_edit_and_several_in_a_row_are_resumed():
    model = tiny.loaded("llama")
    example = model.example(tiny.IDS)
    target = model.resolve(example, Target(position=5))
    donor = model.capture(model.example(tiny.IDS[::-1]), keep=None)
    changes = [
        (edits.uniform(layers=1),),
        (edits.knock_out(5, 2, layers=[1, 2]),),
        (edits.zero_value(3, layers=2),),
        (edits.patch(donor, "weights", layers=1, heads=2),),
        (edits.silence_head(2, 1), edits.silence_head(1, 0)),
        (edits.uniform(),),
        (edits.gate(torch.rand(4), 2),),
        (),
    ]
    rows = [Row(example, edits=change) for change in changes]
    plain = targets(model, rows, target)
    with resumed(model, example, target, always=True) as shortcut:
        found = targets(model, rows, target)
    assert shortcut.used == "from the edit on, in the end at position 5 alone"
    torch.testing.assert_close(found, plain, atol=1e-5, rtol=1e-5)


def test_layers_below_the_edit_do_not_run():
    model = tiny.loaded("bert")
    example = model.example(tiny.IDS)
    target = model.resolve(example)
    rows = rows_of(example, model.stacks[0])[-4:]
    blocks = [f"bert.encoder.layer.{number}" for number in range(3)]
    maps = [f"{blocks[2]}.attention.self.value", f"{blocks[2]}.output.dense"]
    with resumed(model, example, target, always=True):
        targets(model, rows[:1], target)  # recorded and proven here
        found = ran(model.module, [*blocks, *maps], lambda: targets(model, rows, target))
    # Of the last layer the values are known too; what is behind the attention runs for each row.
    assert [found[path] for path in blocks] == [0, 0, 4] and [found[path] for path in maps] == [0, 4]


def test_behind_the_last_attention_only_the_read_position_runs():
    model = load(tiny.build("gpt2"))
    example = model.example(tiny.IDS)
    target = model.resolve(example)
    rows, shapes, own = rows_of(example, model.stacks[0]), [], model.module.lm_head.forward
    model.module.lm_head.forward = lambda x: (shapes.append(tuple(x.shape[:2])), own(x))[1]
    try:
        with resumed(model, example, target, always=True):
            targets(model, rows, target)
    finally:
        del model.module.lm_head.forward
    # Recorded once; an edited row as a plain pass, and resumed; then a batch a layer.
    assert shapes == [(1, 12), (1, 12), (1, 1), (4, 1), (4, 1), (4, 1)]


class Leaky(nn.Module):
    """A layer behind which the mean over positions is added: no module of each position for itself."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        y = self.inner(x)
        return y + y.mean(1, keepdim=True)


def test_a_network_that_mixes_positions_behind_the_attention_is_resumed_without_the_second_shortcut():
    module = tiny.build("gpt2")
    module.transformer.ln_f = Leaky(module.transformer.ln_f)
    model = load(module)
    example = model.example(tiny.IDS)
    target = model.resolve(example)
    rows = rows_of(example, model.stacks[0])
    plain = targets(model, rows, target)
    with resumed(model, example, target, always=True) as shortcut:
        found = targets(model, rows, target)
    assert shortcut.used == "from the edit on"
    torch.testing.assert_close(found, plain, atol=1e-5, rtol=1e-5)


class Counting(nn.Module):
    """A layer whose answer depends on how often it ran: what was recorded does not stand in for it."""

    def __init__(self, inner):
        super().__init__()
        self.inner, self.n = inner, 0

    def forward(self, *args, **kwargs):
        self.n += 1
        return self.inner(*args, **kwargs) * (1 + 0.1 * math.sin(self.n))


def test_a_network_that_answers_otherwise_each_time_runs_plainly():
    module = tiny.build("bert")
    module.bert.encoder.layer[1].output.dense = Counting(module.bert.encoder.layer[1].output.dense)
    model = load(module)
    example = model.example(tiny.IDS)
    target = model.resolve(example)
    with resumed(model, example, target, always=True) as shortcut:
        targets(model, rows_of(example, model.stacks[0]), target)
    assert shortcut.used.startswith("plain")


def test_a_change_of_a_parameter_is_seen_within_the_block():
    model = load(tiny.build("bert"))
    example = model.example(tiny.IDS)
    target = model.resolve(example)
    rows = rows_of(example, model.stacks[0])
    with resumed(model, example, target, always=True):
        before = targets(model, rows, target)
        with torch.no_grad():
            model.module.bert.encoder.layer[0].output.dense.weight.mul_(0.5)
        after = targets(model, rows, target)
    torch.testing.assert_close(after, targets(model, rows, target), atol=1e-6, rtol=1e-5)
    assert float((after - before).abs().max()) > 1e-4


def test_rows_that_change_more_than_attention_run_plainly():
    model = tiny.loaded("bert")
    example, other = model.example(tiny.IDS), model.example(tiny.IDS[::-1])
    target = model.resolve(example)
    kept = torch.arange(example.n_tokens) != 3
    edit = (edits.silence_head(1, 2),)
    rows = [Row(example, kept=kept, operator="mean", edits=edit), Row(other, edits=edit), Row(example, edits=edit)]
    plain = targets(model, rows, target)
    with resumed(model, example, target, always=True):
        torch.testing.assert_close(targets(model, rows, target), plain, atol=1e-6, rtol=1e-5)


def test_another_target_within_the_block_is_not_taken_for_the_one_that_was_asked():
    model = tiny.loaded("gpt2")
    example = model.example(tiny.IDS)
    rows = rows_of(example, model.stacks[0])
    first, second = (model.resolve(example, Target(7, position=position)) for position in (11, 4))
    plain = targets(model, rows, second)
    with resumed(model, example, first, always=True):
        targets(model, rows, first)
        torch.testing.assert_close(targets(model, rows, second), plain)


@pytest.mark.parametrize("size", [1, 3])
def test_batches_do_not_change_the_answer(size):
    model = tiny.loaded("bert")
    example = model.example(tiny.IDS)
    target = model.resolve(example)
    rows = rows_of(example, model.stacks[0])
    plain = targets(model, rows, target)
    with resumed(model, example, target, always=True), batch_rows(size):
        torch.testing.assert_close(targets(model, rows, target), plain, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("bad", [EditError("no"), ValueError("no"), KeyboardInterrupt()])
def test_hooks_and_forwards_are_as_before_after_an_error(bad):
    def fail(site):
        raise bad

    model = tiny.loaded("bert")
    example = model.example(tiny.IDS)
    target = model.resolve(example)
    before = forwards(model.module)
    broken = edits.Intervention("broken", fail, (1,))
    with pytest.raises(type(bad)), resumed(model, example, target, always=True):
        targets(model, [Row(example, edits=(broken,))], target)
    assert forwards(model.module) == before
    rows = rows_of(example, model.stacks[0])
    with resumed(model, example, target, always=True):
        targets(model, rows, target)
    assert forwards(model.module) == before


def test_a_small_model_is_not_resumed_since_nothing_is_gained():
    model = tiny.loaded("bert")
    example = model.example(tiny.IDS)
    target = model.resolve(example)
    with resumed(model, example, target) as shortcut, Meter() as meter:
        targets(model, rows_of(example, model.stacks[0]), target)
    assert shortcut.used.startswith("plain") and meter.forward <= 13


@pytest.mark.parametrize("name", ["P4", "P5", "P11", "P12"])
def test_networks_of_ours_are_resumed_exactly(name):
    made = planted(name)
    target = made.model.resolve(made.example, made.target)
    for stack in made.model.stacks:
        rows = rows_of(made.example, stack)
        plain = targets(made.model, rows, target)
        with resumed(made.model, made.example, target, always=True) as shortcut:
            found = targets(made.model, rows, target)
        assert shortcut.used.startswith("from the edit on"), shortcut.used
        torch.testing.assert_close(found, plain, atol=1e-12, rtol=1e-12)
