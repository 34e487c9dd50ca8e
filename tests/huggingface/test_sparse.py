"""Layouts of attention without a plain matrix: what all have in common. Each family's own pattern: test_sparse_maps."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from attnprobe.models.huggingface.sparse.dense import merge
from attnprobe.models.huggingface.sparse.layouts import LaidOut
from tests.huggingface import sparse_models
from tests.huggingface.sparse_models import Tiny, names, tiny
from tests.huggingface.sparse_runs import Seen, run

POOLED = ("mobilevitv2", "swiftformer")
# The convolution beside Nyströmformer's map reaches the projection too.
BESIDE = ("nystromformer", "nystromformer_exact")
# Nyströmformer scales its inverse by the largest entry of the whole batch; Autoformer takes the delays of other rows.
ROWS_MIX = ("nystromformer", "autoformer")
# Reformer's reversible layers run without a graph and have a backward pass of their own.
NO_GRAPH = ("reformer", "reformer_local", "reformer_rounds")


def seen(model: Tiny, inputs: dict[str, Any] | None = None, change: Any = None, grad: bool = False) -> Seen:
    """One pass, with the same random numbers each time (Informer samples)."""
    torch.manual_seed(5)
    with torch.set_grad_enabled(grad):
        return run(model.module, inputs or model.inputs, change)


def answer(output: Any) -> Tensor:
    """What a model or module gives: a tensor, the first of several, or the last hidden states (of every stream)."""
    if isinstance(output, Tensor):
        return output
    states = [getattr(output, n, None) for n in ("last_hidden_state", "last_hidden_state_ngram")]
    found = [t.flatten() for t in states if t is not None]
    return torch.cat(found) if found else output[0]


def projections(model: Tiny, result: Seen) -> list[nn.Linear]:
    """The output projection of each attention module that ran, in order."""
    found = []
    for path, _, _ in result.runs:
        steps, relative = path.split("."), model.projection
        while relative.startswith("../"):
            steps, relative = steps[:-1], relative.removeprefix("../")
        found.append(model.module.get_submodule(".".join([*steps, relative])))
    return found


@pytest.mark.parametrize("name", names())
def test_weights_times_value_are_z(name: str):
    parts = seen(tiny(name)).parts
    assert len(parts) > 0
    for _, part in parts:
        torch.testing.assert_close(part.weights @ part.value, part.z, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", names())
def test_rows_sum_to_what_the_layout_says_and_hidden_keys_have_no_weight(name: str):
    for _, part in seen(tiny(name)).parts:
        sums = part.weights.sum(-1)
        if part.row_sum == "one":
            torch.testing.assert_close(sums, torch.ones_like(sums))
        elif part.row_sum == "at_most_one":
            assert sums.max() < 1 + 1e-5
        if part.visible is not None:
            assert bool((part.weights[~part.visible.expand_as(part.weights)] == 0).all())


@pytest.mark.parametrize("name", [n for n in names() if n not in (*POOLED, *BESIDE)])
def test_z_is_what_the_projection_gets(name: str):
    model, got = tiny(name), []
    watched = projections(model, seen(model))
    handles = [p.register_forward_pre_hook(lambda p, args: got.append((p, args[0]))) for p in watched]
    result = seen(model)
    for handle in handles:
        handle.remove()
    for projection, (_, _, parts) in zip(watched, result.runs, strict=True):
        # Rows of padding are in what the projection gets only.
        rows = torch.cat([given.flatten(0, -2) for owner, given in got if owner is projection])
        summed = parts[0].name == "" and all(part.name in ("", "global rows", "distances") for part in parts)
        merged = [merge(part.z) for part in parts]
        if parts[-1].name == "spans":  # side by side
            merged = [torch.cat(merged, dim=-1)]
        for z in [sum(merged)] if summed else merged:
            distance = (z.flatten(0, 1)[:, None] - rows).abs().amax(-1)
            assert distance.amin(1).max() < 1e-5


@pytest.mark.parametrize("name", names())
def test_putting_the_same_z_back_changes_nothing(name: str):
    model = tiny(name)
    before = seen(model)
    after = seen(model, change=lambda part: part.z)
    assert torch.equal(answer(before.output), answer(after.output))


@pytest.mark.parametrize("name", [n for n in names() if n not in (*POOLED, *BESIDE)])
def test_silencing_a_head_is_zeroing_its_columns_before_the_projection(name: str):
    model = tiny(name)
    plain = seen(model)
    _, n_heads, _, width = plain.parts[0][1].z.shape
    head = min(2, n_heads - 1)

    def silence(part: LaidOut) -> Tensor:
        z = part.z.clone()
        z[:, head] = 0
        return z

    def cut(_: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        kept = torch.ones(args[0].shape[-1])
        for first in range(0, len(kept), n_heads * width):  # ConvBERT's projection gets two sets of heads
            kept[first + head * width : first + (head + 1) * width] = 0
        return (args[0] * kept,)

    edited = answer(seen(model, change=silence).output)
    handles = [p.register_forward_pre_hook(cut) for p in projections(model, plain)]
    torch.manual_seed(5)
    with torch.no_grad():
        wanted = answer(model.module(**model.inputs))
    for handle in handles:
        handle.remove()
    assert (wanted - answer(plain.output)).abs().max() > 1e-2
    torch.testing.assert_close(edited, wanted, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in names() if n not in ROWS_MIX])
def test_two_rows_of_a_batch_are_two_examples(name: str):
    model = tiny(name)
    inputs = [model.inputs, _other(model.inputs)]
    alone = [seen(model, given).parts for given in inputs]
    batch = {k: torch.cat([v, inputs[1][k]]) if isinstance(v, Tensor) else v for k, v in model.inputs.items()}
    together = seen(model, batch).parts
    assert len(together) == len(alone[0])
    for index, (_, part) in enumerate(together):
        for row, single in enumerate(alone):
            torch.testing.assert_close(part.weights[row], single[index][1].weights[0], atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(part.z[row], single[index][1].z[0], atol=1e-4, rtol=1e-4)


def _other(inputs: dict[str, Any]) -> dict[str, Any]:
    """Another example of the same shape; its first token stays, so that a global first token is global in both."""
    return {
        k: torch.cat([v[:, :1], v[:, 1:].flip(1)], dim=1) if isinstance(v, Tensor) else v for k, v in inputs.items()
    }


def test_rows_of_a_batch_may_have_different_numbers_of_global_tokens():
    model = tiny("longformer_global")
    marks = model.inputs["global_attention_mask"]
    fewer = torch.zeros_like(marks)
    fewer[0, 4] = 1
    ids = model.inputs["input_ids"]
    together = seen(model, {"input_ids": ids.expand(2, -1), "global_attention_mask": torch.cat([marks, fewer])}).parts
    for row, given in enumerate((marks, fewer)):
        single = seen(model, {"input_ids": ids, "global_attention_mask": given}).parts
        for (_, part), (_, alone) in zip(together, single, strict=True):
            torch.testing.assert_close(part.weights[row], alone.weights[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [n for n in names() if n not in NO_GRAPH])
def test_gradients_of_the_output_reach_the_weights(name: str):
    model, leaves = tiny(name), []

    def through(part: LaidOut) -> Tensor:
        leaves.append(part.weights.detach().requires_grad_())
        return leaves[-1] @ part.value

    result = seen(model, change=through, grad=True)
    assert all(part.value.requires_grad and part.z.requires_grad for _, part in result.parts)
    gradients = torch.autograd.grad(answer(result.output).square().sum(), leaves, allow_unused=True)
    for (_, part), gradient in list(zip(result.parts, gradients, strict=True)):
        unread = part.name == "global tokens" and part is result.parts[-1][1]  # of the last layer
        assert unread or (gradient is not None and bool(gradient.any()))


@pytest.mark.parametrize("name", BESIDE)
def test_what_is_added_beside_the_map_stays_under_edits(name: str):
    model = tiny(name)
    _, noted, (part,) = seen(model).runs[0]
    silent = part.put(noted.output, torch.zeros_like(part.z))
    torch.testing.assert_close(answer(silent), merge(noted.child("conv")))
    torch.testing.assert_close(answer(noted.output), merge(part.z + noted.child("conv")))


def test_padding_of_the_model_is_no_token():
    n_tokens = sparse_models.IDS.shape[1]
    for name in ("longformer", "led", "big_bird", "bigbird_pegasus", "pegasus_x", "reformer", "longt5"):
        for _, part in seen(tiny(name)).parts:
            assert part.z.shape[2] in (n_tokens, 3), name  # 3 global tokens of Pegasus-X
