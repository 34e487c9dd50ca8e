"""The studies of benchmarks/studies.py read what they say: enough sentences and reactions, none twice, short ones."""

import csv
from collections import Counter

import pytest

from benchmarks.studied.reactions import N_EACH, TEMPLATES, reactions
from benchmarks.studies import JOBS, SENTENCES, learned_into, rows_of


def test_sentences_are_of_five_kinds_in_equal_numbers_and_short():
    rows = rows_of(SENTENCES)
    assert len({row["text"].lower() for row in rows}) == len(rows) == 120
    assert set(Counter((row["kind"], row["label"]) for row in rows).values()) == {12}
    assert max(len(row["text"].split()) for row in rows) <= 20
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        assert next(csv.reader(file)) == ["kind", "label", "text"]


def test_reactions_are_of_ten_templates_and_short():
    found = reactions()
    assert len({one.smiles for one in found}) == len(found) == len(TEMPLATES) * N_EACH == 100
    assert max(len(one.smiles) for one in found) <= 60
    for one in found:
        before, arrow, after = one.smiles.partition(">>")
        assert (
            arrow
            and before
            and after
            and before.count("(") == before.count(")")
            and after.count("(") == after.count(")")
        )


def test_a_product_keeps_the_fragments_of_its_template():
    found = {one.template: one.smiles for one in reactions()}
    assert found["ether from halide"].startswith(("C", "c")) and "O" in found["ether from halide"].split(">>")[1]
    for template, part in (("sulfonamide", "S(=O)(=O)N"), ("amide from acid", "C(=O)N"), ("esterification", "C(=O)O")):
        assert part in found[template].split(">>")[1]


def test_sentences_go_between_the_marks_of_their_study_and_nowhere_else():
    page = "a\n<!-- x -->\nold\n<!-- /x -->\n<!-- y -->\nkept\n<!-- /y -->\n"
    told = learned_into(page, "x", ["One.", "Two."])
    assert told == "a\n<!-- x -->\n1. One.\n2. Two.\n<!-- /x -->\n<!-- y -->\nkept\n<!-- /y -->\n"
    assert learned_into(told, "x", ["One.", "Two."]) == told
    with pytest.raises(ValueError, match="no place for 'z'"):
        learned_into(page, "z", [])


def test_no_study_keeps_a_table_with_texts_that_are_not_ours():
    assert not JOBS["held_out"].page
