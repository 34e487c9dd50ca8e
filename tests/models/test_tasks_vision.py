"""The tasks with pictures: their data, that training begins to learn, what is measured, and patches as tokens."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from attnprobe import attribute
from attnprobe.attention.seam import Keep, Tape, recording
from attnprobe.errors import InputError
from attnprobe.models.tasks_vision import digits, drawing, shapes
from attnprobe.models.tasks_vision.explaining import explained_digits, explained_shapes
from attnprobe.models.tasks_vision.fitting import Recipe
from attnprobe.patch_figure import patch_gallery

SMALL = {"d_model": 16, "n_heads": 2, "text_layers": 1}


def brief(steps: int) -> Recipe:
    return Recipe(steps=steps, batch=32, rate=1e-2, progress=False)


@pytest.fixture(scope="module")
def known() -> digits.Digits:
    pytest.importorskip("sklearn")
    return digits.load_digits()[0]


# ---------------------------------------------------------------- digits


@pytest.mark.parametrize("split", digits.SPLITS)
def test_no_digit_is_on_both_sides_of_a_split(split: str):
    datasets = pytest.importorskip("sklearn.datasets")
    parts = digits.load_digits(split)
    rows = [picture.flatten().mul(16).int().tolist() for part in parts for picture in part.pictures]
    assert sorted(rows) == sorted(datasets.load_digits().data.astype(int).tolist())
    assert [len(part.labels) for part in parts] == [1438, 359]
    if split == "last":
        assert parts[1].labels.tolist() == datasets.load_digits().target[1438:].tolist()


def test_jitter_of_strength_zero_is_nothing_and_else_keeps_most_of_the_ink(known: digits.Digits):
    pictures, generator = known.pictures[:50], torch.Generator().manual_seed(0)
    assert (digits.jittered(pictures, generator, 0.0) - pictures).abs().max() < 1e-5
    moved = digits.jittered(pictures, generator)
    assert moved.shape == pictures.shape
    assert 0.8 < float(moved.sum() / pictures.sum()) < 1.1
    assert (moved - pictures).flatten(1).abs().amax(1).min() > 0.02


def test_a_digits_loss_falls_in_a_few_steps(known: digits.Digits):
    _, losses = digits.train(known, brief(150), d_model=32, n_heads=2, n_layers=1)
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:5])


def test_the_same_seed_gives_the_same_network_and_another_another(known: digits.Digits):
    (one, losses), (two, same) = (digits.train(known, brief(5), d_model=16, n_heads=2, n_layers=1) for _ in range(2))
    assert losses == same and not one.training
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert losses != digits.train(known, replace(brief(5), seed=1), d_model=16, n_heads=2, n_layers=1)[1]


def test_an_unknown_split_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'random'"):
        digits.load_digits("randon")


@pytest.mark.slow
def test_digits_are_named_rightly():
    network, _ = digits.train(digits.load_digits()[0])
    assert digits.accuracy(network, digits.load_digits()[1]) >= 0.96


# ---------------------------------------------------------------- scenes


def nearest_colour(cell: Tensor) -> str:
    """The name of the mean colour of the pixels of a cell that are far from grey."""
    pixels = cell.flatten(1).T
    far = pixels[(pixels - 0.5).abs().amax(1) > 0.25].mean(0)
    return min(drawing.COLOURS, key=lambda name: float((far - torch.tensor(drawing.COLOURS[name])).norm()))


def test_the_patch_that_a_scene_names_shows_the_thing_of_the_question():
    scenes = drawing.make_scenes(200, 7)
    for index in range(len(scenes)):
        question = scenes.question(index)
        row, column = divmod(int(scenes.patch[index]), drawing.N_CELLS)
        side = drawing.CELL
        cell = scenes.pictures[index, :, row * side : (row + 1) * side, column * side : (column + 1) * side]
        colour, answer = nearest_colour(cell), drawing.ANSWERS[int(scenes.answers[index])]
        named = drawing.VOCABULARY.tokens[int(scenes.ids[index, scenes.word[index]])]
        assert named in question.split()
        assert colour == (answer if answer in drawing.COLOURS else named)
        assert (answer in drawing.COLOURS) == (named in drawing.SHAPES)


def test_pairs_kept_out_of_training_are_asked_about_among_the_unseen_alone():
    for unseen in (False, True):
        scenes = drawing.make_scenes(100, 3, unseen=unseen)
        for index in range(100):
            named = drawing.VOCABULARY.tokens[int(scenes.ids[index, scenes.word[index]])]
            pair = {named, drawing.ANSWERS[int(scenes.answers[index])]}
            assert (pair in [set(kept) for kept in drawing.UNSEEN]) is unseen


def test_scenes_are_those_of_their_seed():
    one, same, other = (drawing.make_scenes(20, seed) for seed in (5, 5, 6))
    assert torch.equal(one.pictures, same.pictures) and torch.equal(one.ids, same.ids)
    assert not torch.equal(one.pictures, other.pictures)
    part = one.part(torch.tensor([3, 1]))
    assert [part.question(0), part.question(1)] == [one.question(3), one.question(1)]
    assert torch.equal(part.ids, one.ids[[3, 1]])


def test_a_scene_shows_three_or_four_things_and_only_their_cells_have_colour():
    scenes = drawing.make_scenes(50, 1)
    cells = F.unfold(scenes.pictures, drawing.CELL, stride=drawing.CELL).unflatten(1, (3, -1))
    far = (cells - 0.5).abs().amax(1) > 0.25  # four times the spread of the noise
    n_coloured = (far.sum(1) > 4).sum(1)
    assert sorted(set(n_coloured.tolist())) == [3, 4]
    assert 3.2 < n_coloured.double().mean() < 3.8


def test_the_outlines_differ_at_every_size():
    for size in range(drawing.SMALLEST, drawing.CELL + 1):
        found = {tuple(drawing.outline(shape, size).flatten().tolist()) for shape in drawing.SHAPES}
        assert len(found) == len(drawing.SHAPES)
    with pytest.raises(InputError, match="square, circle"):
        drawing.outline("star", 5)


# ---------------------------------------------------------------- shapes


def test_a_shapes_loss_falls_in_a_few_steps():
    _, losses = shapes.train(brief(60), **SMALL)
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])


def test_pointing_counts_the_weight_on_the_right_patch(monkeypatch: pytest.MonkeyPatch):
    scenes = drawing.make_scenes(40, 2)
    right = torch.nn.functional.one_hot(scenes.patch, 16).float()
    weights = torch.full((40, 16), 0.02) + 0.68 * right
    weights[:10] = 0.02 + 0.68 * torch.nn.functional.one_hot(scenes.other[:10], 16).float()
    looks = [weights[:, None, None].expand(-1, 2, drawing.LONGEST, -1)]
    monkeypatch.setattr(shapes, "looks", lambda network, scenes: looks)
    table = shapes.pointing(shapes.network_of(**SMALL), scenes)
    assert table.word.tolist() == ["read", "name"]
    assert table.accuracy.tolist() == pytest.approx([0.75, 0.75])
    assert table.best_head.tolist() == pytest.approx([0.75, 0.75])
    assert table["mass"].tolist() == pytest.approx([0.75 * 0.7 + 0.25 * 0.02] * 2)
    assert table.mass_other.tolist() == pytest.approx([0.25 * 0.7 + 0.75 * 0.02] * 2)


def test_pointing_reads_the_row_of_the_word():
    """By a slow loop over scenes, from the weights that the seam shows."""
    scenes, network = drawing.make_scenes(12, 2), shapes.network_of(**SMALL)
    (weights,) = shapes.looks(network, scenes)
    hits = [int(weights[i, :, scenes.word[i]].mean(0).argmax()) == int(scenes.patch[i]) for i in range(12)]
    mass = [float(weights[i, :, scenes.word[i], scenes.patch[i]].mean()) for i in range(12)]
    name = shapes.pointing(network, scenes).set_index("word").loc["name"]
    assert name.accuracy == pytest.approx(np.mean(hits))
    assert name["mass"] == pytest.approx(np.mean(mass))


def test_a_hidden_patch_gets_no_weight_from_any_word_of_its_own_scene():
    scenes, network = drawing.make_scenes(6, 2), shapes.network_of(**SMALL)
    edit = shapes.hide_patch(scenes.patch)
    with recording(Tape([edit], keep=Keep.of("weights", kind="cross"), locate=network.locate)) as tape:
        network(scenes.ids, scenes.pictures, scenes.is_word)
    (site,) = tape.sites
    hidden = site.weights[torch.arange(6), :, :, scenes.patch]
    assert bool((hidden == 0).all())
    assert (site.weights.sum(-1) - 1).abs().max() < 1e-6
    assert int((site.weights == 0).sum()) == hidden.numel()


def test_the_other_things_patch_is_another():
    scenes = drawing.make_scenes(100, 4)
    assert bool((scenes.patch != scenes.other).all())


@pytest.mark.slow
def test_questions_about_shapes_are_answered_rightly():
    network, _ = shapes.train()
    held_out = drawing.make_scenes(shapes.N_HELD_OUT, shapes.SEED_OF_HELD_OUT)
    shares = shapes.answers_without(network, held_out)
    assert shares["whole"] >= 0.98
    assert shares["asked hidden"] < shares["other hidden"]


# ---------------------------------------------------------------- patches as tokens


def test_digits_as_a_model_answer_as_the_network_does(known: digits.Digits):
    network = digits.train(known, brief(2), d_model=16, n_heads=2, n_layers=2)[0]
    model, examples = explained_digits(network, known.pictures[:3], digits.LABELS)
    assert examples[0].tokens[:3] == ("[CLS]", "0,0", "0,1") and examples[2].tokens[-1] == "3,3"
    assert examples[0].axis == "patches" and examples[0].is_special == (True,) + 16 * (False,)
    answers = torch.cat([model.capture(example).logits for example in examples])
    assert (answers - network(network.embed(known.pictures[:3]))).abs().max() < 1e-5
    (stack,) = model.stacks
    assert (stack.name, stack.kind, stack.n_heads) == ("vision", "self", (2, 2))


@pytest.mark.parametrize(
    "method", ["raw_attention", "rollout", "attention_x_gradient", "integrated_gradients", "leave_one_out"]
)
def test_methods_score_the_patches_of_a_digit(known: digits.Digits, method: str):
    network = digits.train(known, brief(2), d_model=16, n_heads=2, n_layers=2)[0]
    model, examples = explained_digits(network, known.pictures[:2], digits.LABELS)
    values = attribute(model, examples[1], method, "3").scores
    assert values.shape == (17,)
    assert bool(values.isfinite().all()) and float(values[1:].abs().max()) > 0


def test_leave_one_out_of_a_patch_is_its_embedding_replaced_by_the_mean(known: digits.Digits):
    network = digits.train(known, brief(2), d_model=16, n_heads=2, n_layers=2)[0]
    model, examples = explained_digits(network, known.pictures[:2], digits.LABELS)
    found = attribute(model, examples[0], "leave_one_out", "3", operator="mean").scores
    embeddings = network.requires_grad_(False).embed(known.pictures[:2])
    whole = network(embeddings[:1])[0, 3]
    for patch in (5, 10):
        changed = embeddings[:1].clone()
        changed[0, patch] = embeddings[:, 1:].mean((0, 1))
        assert float(found[patch]) == pytest.approx(float(whole - network(changed)[0, 3]), abs=1e-5)


def test_raw_attention_of_a_question_is_the_cross_attention_of_its_first_word():
    network, scenes = shapes.network_of(**SMALL), drawing.make_scenes(3, 2)
    ids = scenes.ids[0][scenes.is_word[0]]
    model, examples = explained_shapes(network, ids, scenes.pictures[:1], drawing.ANSWERS)
    assert examples[0].tokens[:2] == ("0,0", "0,1") and examples[0].n_tokens == 16
    (weights,) = shapes.looks(network, scenes.part(slice(0, 1)))
    found = attribute(model, examples[0], "raw_attention", "red").scores
    assert (found - weights[0, :, 0].mean(0)).abs().max() < 1e-6


# ---------------------------------------------------------------- the figure


def test_a_gallery_shows_every_map_of_every_picture_on_one_scale_and_frames_the_marked_patch():
    maps = {"a": torch.rand(2, 2, 3), "b": 0.5 * torch.rand(2, 2, 3)}
    panels = patch_gallery(torch.rand(2, 3, 4, 6), maps, names=["first", "second"], marked=[4, 0])
    assert [len(row) for row in panels] == [3, 3]
    assert [axes.get_title() for axes in panels[0]] == ["", "a", "b"]
    for index, row in enumerate(panels):
        assert row[0].get_ylabel() == ["first", "second"][index]
        for axes, name in zip(row[1:], "ab", strict=True):
            mesh = axes.collections[0]
            assert np.allclose(np.ravel(mesh.get_array()), maps[name][index].flatten())
            assert mesh.get_clim() == pytest.approx((0, max(float(m.max()) for m in maps.values())))
    frames = [patch.get_xy() for axes in panels[0] for patch in axes.patches if not patch.get_fill()]
    assert frames == [(1, 1)] * 3  # patch 4 of 2 x 3


def test_a_gallery_of_maps_that_do_not_fit_is_refused():
    with pytest.raises(InputError, match="2 pictures need as many"):
        patch_gallery(torch.rand(2, 1, 4, 4), {"a": torch.rand(1, 2, 2)}, names=["a", "b"])
    with pytest.raises(InputError, match="got 2"):
        patch_gallery(torch.rand(1, 2, 4, 4), {"a": torch.rand(1, 2, 2)}, names=["a"])
