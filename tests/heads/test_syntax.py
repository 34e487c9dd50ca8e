"""Syntax: CoNLL-U as its definition has it, word maps by hand, and accuracy of heads whose weights were put in."""

from pathlib import Path

import pytest
import torch
from scipy import stats

from attnprobe.errors import InputError
from attnprobe.heads.conllu import Sentence, read_conllu
from attnprobe.heads.syntax import OFFSETS, syntax, wilson
from attnprobe.heads.word_maps import word_map, words_of_tokens
from attnprobe.intervention import replace_weights
from attnprobe.models import load
from attnprobe.models.bundled import bundled_folder
from attnprobe.models.edited import EditedModel
from tests import tiny


def line(number, form, head="_", relation="_", misc="_"):
    return "\t".join([str(number), form, form, "X", "_", "_", str(head), relation, "_", misc])


def conllu(*lines):
    return "\n".join(lines) + "\n"


SPANISH = conllu(
    "# text = vámonos al mar",
    line("1-2", "vámonos"),
    line(1, "vamos", 0, "root"),
    line(2, "nos", 1, "obj"),
    line("3-4", "al"),
    line(3, "a", 5, "case"),
    line(4, "el", 5, "det"),
    line("4.1", "ghost"),
    line(5, "mar", 1, "obl", "SpaceAfter=No"),
    "",
    "# second",
    line(1, "sí", 0, "root", "SpaceAfter=No"),
    line(2, "!", 1, "punct"),
)


class TestReading:
    def test_words_of_a_multiword_token_share_its_place_and_empty_nodes_are_passed_over(self):
        first, second = read_conllu(SPANISH)
        assert first.text == "vámonos al mar"
        assert first.forms == ("vamos", "nos", "a", "el", "mar")
        assert first.heads == (-1, 0, 4, 4, 0)
        assert first.relations == ("root", "obj", "case", "det", "obl")
        assert first.places == (0, 0, 1, 1, 2)
        assert [first.text[start:end] for start, end in first.spans] == ["vámonos", "al", "mar"]
        assert second.text == "sí!" and second.spans == ((0, 2), (2, 3))

    def test_a_file_is_read_as_its_text(self, tmp_path):
        path = tmp_path / "one.conllu"
        path.write_text(SPANISH.replace("\n", "\r\n"), encoding="utf-8")
        assert read_conllu(path) == read_conllu(str(path)) == read_conllu(SPANISH)

    @pytest.mark.parametrize(
        ("lines", "said"),
        [
            ([line(1, "a", 0, "root"), "2\tb"], "line 2: 10 columns .* got 2"),
            ([line(1, "a", 0, "root"), line(3, "b", 1, "x")], "line 2: word 2 is expected, got '3'"),
            ([line(1, "a", "_", "root")], "line 1: the head of 'a'"),
            ([line(1, "a", 7, "x"), line(2, "b", 0, "root")], "from line 1: the head of word 1 is 7"),
            ([line(1, "a", 1, "x")], "the head of word 1 is 1, another"),
            ([line("2-3", "ab"), line(1, "a", 0, "root")], "line 1: the multiword token 2-3"),
            ([line("1-2", "ab"), line(1, "a", 0, "root"), ""], "line 3: the sentence ends at word 1"),
            (["# nothing", ""], "no sentence"),
        ],
    )
    def test_what_is_no_conllu_is_refused_with_its_line(self, lines, said, tmp_path):
        path = tmp_path / "bad.conllu"
        path.write_text(conllu(*lines), encoding="utf-8")
        with pytest.raises(InputError, match=said):
            read_conllu(path)

    @pytest.mark.parametrize("head", ["²", "9" * 5000, "-1", "1.0"])
    def test_a_head_that_is_no_number_of_a_word_is_refused(self, head):
        with pytest.raises(InputError, match="line 1: the head of 'a' is the number of a word"):
            read_conllu(conllu(line(1, "a", head)))

    @pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0b"])
    def test_lines_end_at_line_feeds_alone(self, mark, tmp_path):
        text = conllu(f"# text = a{mark}b", line(1, f"a{mark}b", 0, "root"), line(2, f"c{mark}", 1, "obj"))
        path = tmp_path / "marks.conllu"
        path.write_bytes(text.replace("\n", "\r\n").encode())
        for found in (read_conllu(text), read_conllu(path)):
            assert [(one.forms, one.text) for one in found] == [((f"a{mark}b", f"c{mark}"), f"a{mark}b c{mark}")]
            assert [found[0].text[a:b] for a, b in found[0].spans] == list(found[0].forms)

    def test_a_path_that_no_file_can_have_is_refused(self):
        with pytest.raises(InputError, match="cannot be read as CoNLL-U"):
            read_conllu("a\0b")

    def test_a_file_that_is_not_there_is_named(self):
        with pytest.raises(InputError, match=r"nowhere\.conllu"):
            read_conllu(Path("nowhere.conllu"))


class TestWordMaps:
    def test_keys_are_summed_and_queries_averaged(self):
        weights = torch.rand(2, 5, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
        words = [-1, 0, 0, 1, -1]
        found = word_map(weights, words, 3)
        for a, queries in enumerate([[1, 2], [3]]):
            for b, keys in enumerate([[1, 2], [3]]):
                expected = sum(weights[:, i, j] for i in queries for j in keys) / len(queries)
                torch.testing.assert_close(found[:, a, b], expected)
        assert (found[:, 2] == 0).all() and (found[:, :, 2] == 0).all()  # a word without tokens

    def test_tokens_belong_to_the_word_that_they_begin_in(self):
        model = load(str(bundled_folder()))
        text = "unfathomably good, isn't it"
        example = model.example(text)
        spans = [(0, 12), (13, 17), (17, 18), (19, 24), (25, 27)]
        words = words_of_tokens(example, spans)
        assert words[0] == words[-1] == -1
        for word, span in zip(words[1:-1], example.spans[1:-1], strict=True):
            assert spans[word][0] <= span[0] < spans[word][1]
        assert sorted(set(words[1:-1])) == [0, 1, 2, 3, 4]


TREE = conllu(
    line(1, "the", 2, "det"),
    line(2, "film", 3, "nsubj"),
    line(3, "moves", 0, "root"),
    line(4, "us", 3, "obj"),
    line(5, "all", 4, "det"),
    line(6, ".", 3, "punct"),
)


@pytest.fixture(scope="module")
def model():
    return load(str(bundled_folder()))


def looking(model, sentence, towards):
    """Weights [query key] by which every token of a word looks at the first token of the word `towards` names."""
    example = model.example(sentence.text)
    words = words_of_tokens(example, sentence.spans)
    weights = torch.zeros(example.n_tokens, example.n_tokens)
    for token, word in enumerate(words):
        goal = towards.get(word) if word >= 0 else None
        weights[token, 0 if goal is None else words.index(goal)] = 1.0
    return weights


def edited(model, sentence, by_head):
    """The model with weights of layer 1 put in; by_head: where each word looks, by head."""
    maps = torch.stack([looking(model, sentence, towards) for towards in by_head])
    return EditedModel(model, [replace_weights(1, maps, heads=list(range(len(by_head))))])


def test_heads_that_look_along_the_tree_are_right_and_others_as_often_as_they_are(model):
    (sentence,) = read_conllu(TREE)
    to_head = {word: head for word, head in enumerate(sentence.heads) if head >= 0}
    back = {word: word - 1 for word in range(1, 6)}
    found = syntax(edited(model, sentence, [to_head, back, {2: 3, 3: 4, 1: 0}]), [sentence])
    assert (found.n_sentences, found.stack, found.kind, found.warnings) == (1, "encoder", "self", ())
    assert found.of("all")[1, 0] == 1.0 and found.of("det")[1, 0] == 1.0
    assert found.of("all")[1, 1] == 2 / 5  # us -> moves, all -> us
    assert found.of("det")[1, 1] == 1 / 2 and found.of("obj")[1, 1] == 1.0
    # From the head: moves looks at us (obj), film at the (det), us at all (det).
    assert found.of("obj", "to_dependent")[1, 2] == 1.0 and found.of("det", "to_dependent")[1, 2] == 1.0
    assert found.of("nsubj", "to_dependent")[1, 2] == 0.0


def test_weight_on_the_word_itself_is_left_out(model):
    (sentence,) = read_conllu(TREE)
    to_head = {word: head for word, head in enumerate(sentence.heads) if head >= 0}
    own, along = (looking(model, sentence, towards) for towards in ({word: word for word in range(6)}, to_head))
    mixed = EditedModel(model, [replace_weights(1, (0.6 * own + 0.4 * along)[None], heads=[0])])
    assert syntax(mixed, [sentence]).of("all")[1, 0] == 1.0


def test_each_relation_is_set_against_the_best_fixed_offset(model):
    (sentence,) = read_conllu(TREE)
    table = syntax(model, [sentence]).to_frame()
    edges = {"all": [(0, 1), (1, 2), (3, 2), (4, 3), (5, 2)], "det": [(0, 1), (4, 3)], "punct": [(5, 2)]}
    for relation, pairs in edges.items():
        for direction, sign in (("to_head", 1), ("to_dependent", -1)):
            shares = {o: sum(sign * (b - a) == o for a, b in pairs) / len(pairs) for o in OFFSETS}
            rows = table[(table.relation == relation) & (table.direction == direction)]
            assert len(rows) == 3 * 4 and set(rows.n) == {len(pairs)}
            assert set(rows.offset_accuracy) == {max(shares.values())}
            assert all(shares[offset] == max(shares.values()) for offset in rows.offset)


def test_intervals_are_wilsons(model):
    (sentence,) = read_conllu(TREE)
    table = syntax(model, [sentence]).to_frame()
    z = stats.norm.ppf(0.975)
    for row in table.itertuples():
        p, n = row.accuracy, row.n
        middle, half = (p + z**2 / (2 * n)), z * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5
        assert row.low == pytest.approx(max(0, (middle - half) / (1 + z**2 / n)), abs=1e-9)
        assert row.high == pytest.approx(min(1, (middle + half) / (1 + z**2 / n)), abs=1e-9)
    assert wilson(0, 4)[0] == 0


def test_dependencies_within_one_surface_token_are_left_out_and_subtypes_are_joined_unless_asked_for(model):
    text = conllu(
        line("1-2", "doesn't"), line(1, "does", 3, "aux:pass"), line(2, "n't", 1, "advmod"),
        line(3, "move", 0, "root"), line(4, "us", 3, "obj"),
    )  # fmt: skip
    assert set(syntax(model, text).table.relation) == {"all", "aux", "obj"}
    assert set(syntax(model, text, subtypes=True).table.relation) == {"all", "aux:pass", "obj"}
    assert set(syntax(model, text).table[lambda t: t.relation == "all"].n) == {2}


def test_the_best_heads_come_first_and_need_enough_dependencies(model):
    (sentence,) = read_conllu(TREE)
    to_head = {word: head for word, head in enumerate(sentence.heads) if head >= 0}
    found = syntax(edited(model, sentence, [to_head]), [sentence])
    best = found.best(at_least=2)
    assert set(zip(best.relation, best.direction, strict=True)) == {
        (relation, direction) for relation in ("all", "det") for direction in ("to_head", "to_dependent")
    }
    first = best[(best.direction == "to_head") & (best.relation == "all")].iloc[0]
    assert (first.layer, first["head"], first.accuracy) == (1, 0, 1.0)
    assert list(best.accuracy) == sorted(best.accuracy, reverse=True)


def test_a_sentence_that_cannot_be_read_is_a_warning_and_the_rest_is_there(model):
    (sentence,) = read_conllu(TREE)
    long = Sentence("so " * 600, ("so",), (-1,), ("root",), (0,), ((0, 2),))
    found = syntax(model, [sentence, long, sentence])
    assert found.n_sentences == 2 and len(found.warnings) == 1
    assert found.warnings[0].startswith("sentence 2 ('so so")
    with pytest.raises(InputError, match="no sentence could be read"):
        syntax(model, [long])


def test_words_of_a_relation_or_direction_that_is_not_there_name_the_nearest(model):
    found = syntax(model, TREE)
    with pytest.raises(InputError, match="nsubj"):
        found.of("nsub")
    with pytest.raises(InputError, match="to_head"):
        found.of("det", "to_heads")


def test_models_without_the_words_are_refused():
    with pytest.raises(InputError, match="no sentence could be read"):
        syntax(tiny.loaded("t5"), TREE)  # no tokenizer


def test_hand_annotated_english_is_read_whole():
    """22 sentences of one root each; every dependency is counted, in both directions."""
    sentences = read_conllu(Path(__file__).parent / "plain_english.conllu")
    assert len(sentences) == 22 and all(one.relations.count("root") == 1 == one.heads.count(-1) for one in sentences)
    found = syntax(load("attnprobe/sentiment"), sentences, progress=False)
    n_edges = sum(len(one.heads) - 1 for one in sentences)
    table = found.to_frame()
    assert not found.warnings and set(table[table.relation == "all"].n) == {n_edges}
