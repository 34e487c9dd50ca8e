"""Heads that look for what was there before: a planted circuit, weights put in, and how the inputs are made."""

import pytest
import torch

from attnprobe.errors import InputError
from attnprobe.heads import probe_scores
from attnprobe.heads.induction import around, follows, random_ids, repeated
from attnprobe.models import load
from attnprobe.models.bundled import bundled_folder
from attnprobe.models.edited import EditedModel
from attnprobe.models.planted import planted
from tests import tiny


def probe(name, model, stack=None, **options):
    return probe_scores[name].function(model, stack or model.stacks[0], **options)


def drawn(model, length=5, repeats=3, seed=0):
    return repeated(model, length=length, repeats=repeats, generator=torch.Generator().manual_seed(seed))


def test_the_planted_circuit_is_found():
    """P12: the head of layer 0 looks one place back, that of layer 1 to what came after its own token."""
    model, options = planted("P12", period=5).model, {"length": 5, "repeats": 2}
    assert probe("induction", model, **options).flatten().tolist() == pytest.approx([0, 1], abs=1e-6)
    assert probe("previous_random", model, **options)[0, 0].item() == pytest.approx(1, abs=1e-6)
    assert probe("duplicate_random", model, **options).flatten().tolist() == pytest.approx([0, 0], abs=1e-6)


def put(pairs):
    """Weights [query key] that lie evenly on the named pairs, on the first token where a query has none."""
    weights = pairs.double()
    weights[weights.sum(-1) == 0, 0] = 1.0
    return weights / weights.sum(-1, keepdim=True)


class Copier:
    """An edit that makes each of three heads of layer 1 a perfect head of its kind, whatever the tokens are."""

    def __init__(self, ids_of):
        self.ids_of = ids_of

    def __call__(self, site):
        if site.place.layer != 1:
            return site
        weights = site.need("weights").clone()
        ids, n = self.ids_of(), weights.shape[-1]
        at = torch.arange(n)
        same = (ids[:, None] == ids) & (at < at[:, None])
        back = at[:, None] - 1 == at
        after = torch.zeros_like(same)
        after[:, 1:] = same[:, :-1]  # j - 1 is an earlier place with the token of i
        for head, pairs in enumerate((after, same, back)):
            weights[:, head] = put(pairs).to(weights)
        return site.replace(weights=weights)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_heads_made_perfect_are_found_where_they_are(name):
    """For heads that share keys and values too (llama): the score is that of the query head."""
    inner, seen = tiny.loaded(name), []

    class Noting(EditedModel):
        def capture(self, example, **options):
            seen.append(example.inputs["input_ids"][0])
            return super().capture(example, **options)

    model = Noting(inner, [Copier(lambda: seen[-1])])
    found = {kind: probe(kind, model, length=6, repeats=3, n_samples=2) for kind in probe_scores if "ran" in kind}
    found["induction"] = probe("induction", model, length=6, repeats=3, n_samples=2)
    for head, kind in enumerate(("induction", "duplicate_random", "previous_random")):
        assert found[kind][1, head].item() == pytest.approx(1, abs=1e-6), kind
        others = found[kind].clone()
        others[1, head] = 0
        assert others.max() < 0.5, kind


def test_a_sequence_is_a_begin_token_and_different_tokens_said_again():
    model = tiny.loaded("llama")
    given = drawn(model)
    ids = given.ids.tolist()
    assert ids[0] == 1 and len(ids) == 16
    assert ids[1:6] == ids[6:11] == ids[11:16] and len(set(ids[1:6])) == 5
    assert not {0, 1, 2} & set(ids[1:])  # padding, begin, end
    assert given.later.tolist() == [False] * 6 + [True] * 10
    assert given.said.tolist() == [False] + [True] * 15


def test_what_follows_a_token_elsewhere_is_written_out_with_loops():
    given = drawn(tiny.loaded("llama"))
    ids, n = given.ids.tolist(), len(given.ids)
    expected = [
        [given.said[i].item() and j > 0 and j - 1 != i and ids[j - 1] == ids[i] for j in range(n)] for i in range(n)
    ]
    assert follows(given).tolist() == expected


def test_a_bert_gets_the_special_tokens_of_its_tokenizer_around_the_sequence():
    model = load(str(bundled_folder()))
    given = drawn(model)
    tokens = given.example.tokens
    assert (tokens[0], tokens[-1]) == ("[CLS]", "[SEP]") and len(tokens) == 17
    assert not any(token.startswith("[") for token in tokens[1:-1])
    assert not (given.later | given.said)[-1]
    assert around(model) == ([model.tokenizer.cls_token_id], [model.tokenizer.sep_token_id])


def test_of_a_large_vocabulary_the_ends_are_left_out():
    model = load(str(bundled_folder()))
    special, n = set(model.tokenizer.all_special_ids), len(model.tokenizer)
    words = [index for index in range(n) if index not in special]
    cut = len(words) * 2 // 100 if len(words) >= 1000 else 0
    assert random_ids(model) == words[cut : len(words) - cut]


def test_a_model_with_few_positions_gets_a_shorter_sequence():
    model = tiny.loaded("gpt2")  # 64 positions
    given = drawn(model, length=25, repeats=4)
    assert (given.length, given.repeats, len(given.ids)) == (15, 4, 61)


def test_the_same_seed_draws_the_same_tokens():
    model = tiny.loaded("llama")
    assert drawn(model, seed=3).ids.equal(drawn(model, seed=3).ids)
    assert not drawn(model, seed=3).ids.equal(drawn(model, seed=4).ids)


@pytest.mark.parametrize(
    "options", [{"length": 1}, {"repeats": 1}, {"n_samples": 0}, {"length": 0}], ids=lambda o: next(iter(o))
)
def test_what_cannot_be_repeated_is_refused(options):
    with pytest.raises(InputError, match="at least"):
        probe("induction", tiny.loaded("bert"), **options)


def test_where_keys_are_no_tokens_there_is_no_number():
    vit, t5 = tiny.loaded("vit"), tiny.loaded("t5")
    assert probe("induction", vit).isnan().all()
    by_stack = {(s.name, s.kind): probe("induction", t5, s, n_samples=1) for s in t5.stacks}
    assert by_stack["encoder", "self"].isfinite().all()
    assert by_stack["decoder", "self"].isnan().all() and by_stack["decoder", "cross"].isnan().all()


def test_samples_are_averaged():
    model = tiny.loaded("llama")
    first = probe("induction", model, n_samples=1, seed=5)
    both = probe("induction", model, n_samples=2, seed=5)
    assert not torch.equal(first, both)
    generator = torch.Generator().manual_seed(5)
    parts = []
    for _ in range(2):
        given = repeated(model, length=25, repeats=4, generator=generator)
        maps = torch.stack(model.capture(given.example).maps()).double()
        parts.append((maps * follows(given)).sum(-1)[..., given.later].mean(-1))
    torch.testing.assert_close(both, torch.stack(parts).mean(0))
