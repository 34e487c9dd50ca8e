"""What the answer in an output is, whatever form the output has."""

from dataclasses import dataclass

import pytest
import torch
from transformers.modeling_outputs import BaseModelOutput, QuestionAnsweringModelOutput

from attnprobe.errors import InputError
from attnprobe.models.huggingface.answers import answer_of

A, B, LOSS = torch.rand(2, 3), torch.rand(2, 4), torch.tensor(0.5)


@dataclass
class Nested:
    flags: torch.Tensor
    inside: dict


@pytest.mark.parametrize(
    ("output", "answer"),
    [
        (A, A),
        ({"last_hidden_state": B, "logits": A}, A),
        ({"hidden": B, "prediction_logits": A}, A),
        ({"logits_per_text": B, "logits_per_image": A}, A),
        (BaseModelOutput(last_hidden_state=A), A),
        ((LOSS, A, B), A),
        ([None, (A,)], A),
        (Nested(torch.ones(2, dtype=torch.bool), {"ids": torch.tensor([1, 2]), "deep": [A]}), A),
        ((LOSS,), LOSS),
    ],
)
def test_the_answer_is_found_in_any_form(output, answer):
    assert answer_of(output) is answer


def test_question_answering_has_a_start_and_an_end():
    found = answer_of(QuestionAnsweringModelOutput(start_logits=A, end_logits=A + 1))
    assert torch.equal(found[..., 0], A) and torch.equal(found[..., 1], A + 1)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (torch.tensor([1, 2]), "a tensor of int64"),
        ({"logits": torch.tensor([True])}, "dict with logits: Tensor"),
        ((), "tuple"),
        (Nested(torch.ones(2, dtype=torch.bool), {}), "Nested with flags: Tensor, inside: dict"),
        ("text", "str"),
    ],
)
def test_an_output_without_floats_is_refused_by_its_class_and_fields(output, message):
    with pytest.raises(InputError, match=message):
        answer_of(output)


def test_a_row_is_compared_with_its_own_texts_alone():
    scores = torch.arange(12.0).reshape(2, 6)  # two pictures, three texts each
    assert answer_of({"logits_per_image": scores}, 2).tolist() == [[0, 1, 2], [9, 10, 11]]
    assert answer_of({"logits_per_image": scores[:1]}, 1).tolist() == [[0, 1, 2, 3, 4, 5]]
    assert answer_of({"logits": scores}, 2) is scores


def test_rows_laid_end_to_end_are_taken_apart():
    packed = torch.arange(8.0).reshape(4, 2)
    for given in (packed, packed[None]):
        assert torch.equal(answer_of(given, 2), packed.reshape(2, 2, 2))
    assert answer_of(packed, 1).shape == (1, 4, 2) and answer_of(LOSS, 1).shape == (1,)
    with pytest.raises(InputError, match="to 3 rows"):
        answer_of(packed, 3)
