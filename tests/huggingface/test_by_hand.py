"""Attention that a model computes by hand: whatever its axes and calls, what is shown is what was used."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from transformers import (
    BloomConfig,
    BloomForSequenceClassification,
    HieraConfig,
    HieraModel,
    LongformerConfig,
    LongformerForSequenceClassification,
    SwinConfig,
    SwinForImageClassification,
)

from attnprobe import Keep, Row, load, patch, replace_weights, silence_head, uniform
from attnprobe.errors import CaptureError, EditError
from attnprobe.intervention import knock_out
from tests import tiny

N_HEADS, D = 4, 8
ALL = Keep.of("weights", "z", "value", "query", "key", "scores")


class Attending(nn.Module):
    """Four heads over 32 numbers; `mix` is how weights and values are brought together. It keeps what it used."""

    num_heads = N_HEADS

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.maps = nn.Linear(32, 96)

    def heads(self, x):
        """query, key, value [batch head token 8]"""
        return self.maps(x).unflatten(-1, (3, N_HEADS, D)).permute(2, 0, 3, 1, 4)

    def forward(self, x):
        query, key, value = self.heads(x)
        self.used = torch.softmax(query @ key.transpose(-1, -2), dim=-1).detach()
        return self.mix(query, key, value).transpose(1, 2).flatten(2)


def model_with(mix):
    """A tiny BERT with such an attention behind its last output map, and that attention."""
    attention = type("OwnAttention", (Attending,), {"mix": lambda self, q, k, v: mix(q, k, v)})()
    module = tiny.build("bert", "eager")
    output = module.bert.encoder.layer[2].output
    output.dense = nn.Sequential(output.dense, attention)
    model = load(module.eval())
    return model, attention


def ours(capture):
    """The site of the attention that was put in: the last."""
    return capture.sites[-1]


def written(query, key, value):
    out = torch.empty(query.shape)
    torch.matmul(torch.softmax(query @ key.transpose(-1, -2), -1), value, out=out)
    return out


RIGHT = {
    "plain": lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
    "by name": lambda q, k, v: torch.matmul(
        input=torch.softmax(input=torch.matmul(input=q, other=k.mT), dim=-1), other=v
    ),
    "keys first": lambda q, k, v: (k @ q.mT).softmax(-2).mT @ v,
    "values first": lambda q, k, v: (v.mT @ (q @ k.mT).softmax(-1).mT).mT,
    "heads last": lambda q, k, v: torch.einsum("bqkh,bhkd->bhqd", torch.einsum("bhqd,bhkd->bqkh", q, k).softmax(2), v),
    "merged": lambda q, k, v: torch.bmm(
        torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT).softmax(-1), v.flatten(0, 1)
    ).unflatten(0, q.shape[:2]),
    "special softmax": lambda q, k, v: torch.special.softmax(q @ k.mT, -1) @ v,
    "fused": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, scale=1.0),
    "written into": written,
}


@pytest.mark.parametrize("name", RIGHT)
def test_weights_are_those_that_were_used(name):
    model, attention = model_with(RIGHT[name])
    site = ours(model.capture(model.example(tiny.IDS), keep=ALL, check="full"))
    assert (site.weights - attention.used).abs().max() < 1e-6
    assert (site.weights @ site.value - site.z).abs().max() < 1e-6
    assert (torch.softmax(site.query @ site.key.mT, -1) - attention.used).abs().max() < 1e-6


@pytest.mark.parametrize("name", RIGHT)
def test_a_silenced_head_is_missing_from_what_the_module_gives_out(name):
    model, attention = model_with(RIGHT[name])
    example, found = model.example(tiny.IDS), []
    handle = attention.register_forward_hook(lambda *args: found.append(args[2].detach().clone()))
    model.capture(example, check="off")
    model.capture(example, edits=[silence_head(3, 1)], check="off")
    handle.remove()
    before, after = (out.unflatten(-1, (N_HEADS, D)) for out in found)
    assert after[:, :, 1].abs().max() == 0
    others = [0, 2, 3]
    assert (after[:, :, others] - before[:, :, others]).abs().max() < 1e-6


def test_heads_that_share_one_value_are_heads():
    mix = lambda q, k, v: torch.einsum("bhqk,bkd->bhqd", (q @ k.mT).softmax(-1), v[:, 0])  # noqa: E731
    model, attention = model_with(mix)
    site = ours(model.capture(model.example(tiny.IDS), keep=ALL))
    assert site.n_heads == N_HEADS and (site.weights - attention.used).abs().max() < 1e-6


def one_by_one(query, key, value):
    weights = (query @ key.mT).softmax(-1)
    return torch.stack([weights[:, h] @ value[:, h] for h in range(N_HEADS)], dim=1)


def twice(query, key, value):
    weights = (query @ key.mT).softmax(-1)
    return weights @ value + functional.pad(weights, (0, 1))[..., :-1] @ value.flip(2)


def squared(query, key, value):
    weights = (query @ key.mT).softmax(-1)
    return weights @ weights @ value


def elsewhere(query, key, value):
    weights = (query @ key.mT).softmax(-1)
    return weights @ value + weights.mean(1, keepdim=True).amax(-1, keepdim=True)


@pytest.mark.parametrize("mix", [one_by_one, squared])
def test_what_is_not_one_product_of_weights_and_values_is_refused(mix):
    model, _ = model_with(mix)
    with pytest.raises(CaptureError):
        model.capture(model.example(tiny.IDS))


@pytest.mark.parametrize("mix", [twice, elsewhere])
def test_edits_are_refused_where_weights_are_used_elsewhere_too(mix):
    model, _ = model_with(mix)
    example = model.example(tiny.IDS)
    model.capture(example)
    with pytest.raises(CaptureError, match=r"beside the product|more than one product"):
        model.capture(example, edits=[silence_head(3, 1)])


def test_weights_that_are_lost_are_told_whatever_the_class_is_called():
    class Mixer(nn.Module):
        def __init__(self):
            super().__init__()
            self.map = nn.Linear(32, 32)

        def forward(self, x):
            weights = (self.map(x) @ x.mT).softmax(-1)
            return (weights[..., None] * x[:, None]).sum(2)

    module = tiny.build("bert", "eager")
    output = module.bert.encoder.layer[1].output
    output.dense = nn.Sequential(output.dense, nn.Sequential(Mixer()))
    model = load(module.eval())
    with pytest.raises(CaptureError, match="outside of the seam"):
        model.capture(model.example(tiny.IDS))


def test_a_mask_of_minus_a_hundred_hides_its_keys_from_edits():
    hidden = torch.zeros(12, 12).masked_fill(~torch.ones(12, 12).tril().bool(), -100.0)
    model, _ = model_with(lambda q, k, v: (q @ k.mT + hidden).softmax(-1) @ v)
    site = ours(model.capture(model.example(tiny.IDS), edits=[uniform(layers=3)]))
    expected = torch.ones(12, 12).tril() / torch.arange(1, 13)[:, None]
    assert (site.weights[0] - expected).abs().max() < 1e-6


def test_a_choice_by_weight_behind_the_softmax_refuses_other_scores():
    def best_two(query, key, value):
        weights = (query @ key.mT).softmax(-1)
        return weights.masked_fill(weights < weights.topk(2).values[..., -1:], 0.0) @ value

    model, _ = model_with(best_two)
    with pytest.raises(CaptureError, match="changes its weights after the softmax"):
        model.capture(model.example(tiny.IDS), edits=[knock_out(None, 3, layers=3)])


def test_gradients_reach_edited_weights_and_the_logits_are_still_checked():
    model = load(tiny.build("bert", "sdpa"))
    capture = model.capture(model.example(tiny.IDS), edits=[silence_head(0, 1)], differentiable=True)
    gradients = torch.autograd.grad(capture.logits.sum(), [site.weights for site in capture.sites])
    assert all(gradient.abs().max() > 0 for gradient in gradients)


def test_as_many_inputs_as_heads_are_told_apart():
    torch.manual_seed(0)
    config = BloomConfig(hidden_size=32, n_layer=3, n_head=4, vocab_size=60, pad_token_id=0)
    model = load(BloomForSequenceClassification(config).eval())
    example = model.example(tiny.IDS)
    target = model.resolve(example)
    rows = [Row(example, edits=(silence_head(1, head),)) for head in range(4)]
    together, alone = model.targets(rows, target), torch.cat([model.targets([row], target) for row in rows])
    assert (together - alone).abs().max() < 1e-6 and len(set(alone.tolist())) == 4


def test_windows_behind_heads_are_windows_also_where_there_are_as_many():
    torch.manual_seed(0)
    config = HieraConfig(image_size=[64, 32], embed_dim=8, depths=[1] * 4, num_heads=[1, 2, 4, 8])
    model, found = load(HieraModel(config).eval()), []
    picture = model.example(torch.rand(3, 64, 32))
    projection = model.module.encoder.stages[1].layers[0].attn.proj
    handle = projection.register_forward_pre_hook(lambda _, args: found.append(args[0].detach().clone()))
    capture = model.capture(picture, check="off")
    place = next(site.place for site in capture.sites if site.place.path == "encoder.stages.1.layers.0.attn")
    model.capture(picture, edits=[silence_head(place.layer, 0, kind=place.kind)], check="off")
    handle.remove()
    before, after = (given.unflatten(-1, (2, -1)) for given in found)
    assert after[..., 0, :].abs().max() == 0
    assert (after[..., 1, :] - before[..., 1, :]).abs().max() < 1e-6


def swin():
    torch.manual_seed(0)
    config = SwinConfig(image_size=16, patch_size=2, window_size=2, embed_dim=8, depths=[2], num_heads=[2])
    model = load(SwinForImageClassification(config).eval())
    return model, model.example(torch.rand(3, 16, 16))


def longformer():
    torch.manual_seed(0)
    sizes = dict(tiny._BERT)
    model = load(LongformerForSequenceClassification(LongformerConfig(**sizes, attention_window=4)).eval())
    return model, model.example([*tiny.IDS, 17, 18])


@pytest.mark.parametrize("tensor", ["z", "weights", "value"])
@pytest.mark.parametrize("make", [swin, longformer])
def test_patching_a_model_of_parts_from_its_own_capture_changes_nothing(make, tensor):
    model, example = make()
    capture = model.capture(example, keep=ALL)
    again = model.capture(example, edits=[patch(capture, tensor)])
    assert (again.logits - capture.logits).abs().max() < 1e-5


def test_one_map_is_not_put_into_every_window():
    model, picture = swin()
    capture = model.capture(picture)
    with pytest.raises(EditError, match="for each of its parts 0 to 15"):
        model.capture(picture, edits=[replace_weights(0, capture.tensor("weights", part=0)[0])])
    whole = torch.stack([site.weights[0] for site in capture.sites if site.place.layer == 0])
    same = model.capture(picture, edits=[replace_weights(0, whole)])
    assert (same.logits - capture.logits).abs().max() < 1e-5


def test_parts_are_told_apart_in_tables_and_asked_for_in_maps():
    model, picture = swin()
    capture = model.capture(picture)
    frame = capture.to_frame()
    assert not frame.duplicated(["layer", "part", "head", "query_index", "key_index"]).any()
    with pytest.raises(ValueError, match="keeps 16 parts of a layer apart"):
        capture.weights()
    assert capture.weights(part=3).shape == (2, 2, 4, 4)


def test_the_band_and_the_global_rows_of_a_layer_are_one_map():
    model, example = longformer()
    weights = model.capture(example).weights()
    assert weights.shape == (3, 4, 14, 14)
    assert (weights.sum(-1) - 1).abs().max() < 1e-5


def test_a_text_that_does_not_fill_its_windows_can_be_explained():
    from attnprobe import attribute

    model, example = longformer()
    for method in ("leave_one_out", "input_x_gradient", "value_zeroing"):
        assert torch.isfinite(attribute(model, example, method).scores).all()
