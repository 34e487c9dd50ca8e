"""How right a model is on an example, as a number of its logits: whether the label is predicted, and at what loss.

What is right comes from labels. Without them it is the text itself of a language model (each next token), the answer of
an encoder-decoder (each of its tokens), and what the whole model predicts of everything else.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.example import Example
from attnprobe.models.model import Model
from attnprobe.planning import inputs_of
from attnprobe.target import Target

MEASURES = ("accuracy", "loss")
# One of these, or a function of logits [row ...] of one example, and of the example; more is better.
Measure = str | Callable[[Tensor, Example], Tensor]


@dataclass(frozen=True, eq=False)
class Question:
    """An example with what is measured on it: `measured` gives a number for each row of its logits.

    right: what counts as right, "label", "own answer", "text", "answer"; "" where a function measures.
    """

    example: Example
    measured: Callable[[Float[Tensor, " row *rest"]], Float[Tensor, " row"]] = field(repr=False)
    right: str = ""


def questions(model: Model, examples: Any, labels: Any, measure: Measure) -> list[Question]:
    """A question for each example.

    labels: one an example, by name or number (of an encoder-decoder: its answer); None for the choice above. measure:
    "accuracy", 1 where the label has the largest logit, a share of the tokens where there are several; "loss", the
    negative log-probability of the label in nats, a mean over tokens; or a function (logits, example) -> [row].
    Errors: `InputError` for another number of labels than of examples, and for a label that the model does not have.
    """
    if not callable(measure) and measure not in MEASURES:
        raise InputError(f"no measure is named '{measure}'; {nearest(measure, MEASURES)}, or give a function")
    given = list(inputs_of(examples))
    if not given:
        raise InputError("there is no example; give at least one")
    right = _labels(labels, len(given))
    return [_question(model, item, label, measure) for item, label in zip(given, right, strict=True)]


def _labels(labels: Any, n: int) -> list[Any]:
    if labels is None:
        return [None] * n
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        labels = [labels]
    found = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if len(found) != n:
        raise InputError(f"labels are one an example: got {len(found)} for {n} examples")
    return found


def _question(model: Model, item: Any, label: Any, measure: Measure) -> Question:
    answers = _writes(model)
    if answers and label is not None and not isinstance(item, Example):
        example, label = model.example(item, answer=label), None
    else:
        example = model.example(item)
    if callable(measure):
        return Question(example, _own(measure, example))
    if label is None and (tokens := _tokens(model, example)) is not None:
        return Question(example, _of_tokens(*tokens, measure), "answer" if answers else "text")
    right = "own answer" if label is None else "label"
    return Question(example, _of_label(model, example, label, measure), right)


def _writes(model: Model) -> bool:
    """Whether a model writes an answer to its input, token by token."""
    return model.outputs.names is None and any(stack.kind == "cross" for stack in model.stacks)


def _tokens(model: Model, example: Example) -> tuple[int, Int[Tensor, " token"]] | None:
    """The tokens that a model is to write, and how many of its steps tell them; None for one answer an input."""
    if "answer_ids" in example.notes:
        ids = torch.tensor(example.notes["answer_ids"])
        return len(ids), ids
    if model.outputs.names is None and model.outputs.causal and "input_ids" in example.inputs:
        ids = example.inputs["input_ids"][0].cpu()
        if len(ids) < 2:
            raise InputError(f"'{example.text[:30]}' has a single token, which no token before it could tell")
        return len(ids) - 1, ids[1:]
    return None


def _own(measure: Callable[[Tensor, Example], Tensor], example: Example) -> Callable[[Tensor], Tensor]:
    def measured(logits: Float[Tensor, " row *rest"]) -> Float[Tensor, " row"]:
        value = measure(logits, example)
        got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if got != tuple(logits.shape[:1]):
            raise InputError(f"a measure gives one number a row {tuple(logits.shape[:1])}, got {got}")
        return value

    return measured


def _of_tokens(n: int, ids: Int[Tensor, " token"], measure: str) -> Callable[[Tensor], Tensor]:
    def measured(logits: Float[Tensor, "row step word"]) -> Float[Tensor, " row"]:
        told, right = logits[:, :n], ids.to(logits.device)
        if measure == "accuracy":
            return (told.argmax(-1) == right).double().mean(1)
        chosen = right[None, :, None].expand(len(told), -1, 1)
        return -told.double().log_softmax(-1).gather(-1, chosen)[..., 0].mean(1)

    return measured


def _of_label(model: Model, example: Example, label: Any, measure: str) -> Callable[[Tensor], Tensor]:
    scale = "logit" if measure == "accuracy" else "log_probability"
    target = model.resolve(example, Target(label=label, scale=scale))

    def measured(logits: Float[Tensor, " row *rest"]) -> Float[Tensor, " row"]:
        if measure == "loss":
            return -target(logits.double())
        answers = logits if target.position is None else logits[:, target.position]
        return (answers.argmax(-1) == target.label).double()

    return measured


def better_high(measure: Measure) -> bool:
    """Whether larger numbers of a measure are better ones."""
    return measure != "loss"


def name_of(measure: Measure) -> str:
    """What a measure is called."""
    return str(getattr(measure, "__name__", measure))
