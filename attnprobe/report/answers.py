"""What was predicted and what was explained, in words: a class of the text, or a token at a position."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from attnprobe.appearance import percent
from attnprobe.report.nouns import TEXTS, Nouns
from attnprobe.report.tokens import label, visible
from attnprobe.study import Study
from attnprobe.target import ResolvedTarget

LISTED = 4


def of_tokens(model: Mapping[str, Any], study: Study) -> bool:
    """Whether the outputs are tokens of a vocabulary rather than classes; model: a comparison's facts of it."""
    target, task = study.target, str(model.get("architecture", ""))
    if target.function is not None or target.position is None or "Classification" in task:
        return False
    if any(word in task for word in ("LM", "ForConditionalGeneration")):
        return True
    ids = study.example.inputs.get("input_ids")
    # Without a name that tells: a vocabulary has an output for each token that can be read.
    return ids is not None and study.capture.logits.shape[-1] > int(ids.max())


def is_whole(study: Study) -> bool:
    """Whether a whole answer of an encoder-decoder is explained; functions of a caller's own name no answer."""
    target = study.target
    return target.function is not None and bool(target.predicted_name) and "answer_ids" in study.example.notes


def other_steps(study: Study) -> int:
    """At how many steps of a whole answer the model's first choice is another token; 0 for all other answers.

    Behind each step stands the answer as it is, so at 0 it is what the model writes by itself, token by token.
    """
    if not is_whole(study):
        return 0
    ids = torch.tensor(study.example.notes["answer_ids"])
    first = study.capture.logits.detach().float()[0, : len(ids)].argmax(-1).cpu()
    return int((first != ids).sum())


def named(name: str, tokens: bool) -> str:
    """An output as the page names it: tokens, and what begins or ends with an invisible character, in quotes.

    >>> named("negative", False), named("Ġfilm", True)
    ('negative', '“␣film”')
    """
    shown = label(name)
    return f"“{shown}”" if name and (tokens or shown != name) else shown


def plain(name: str) -> str:
    """A function's name on one line, shortened."""
    line = "".join(c if c == " " else visible(c) for c in " ".join(name.split()))
    return line if len(line) <= 60 else line[:59] + "…"


def explained(target: ResolvedTarget, tokens: bool) -> str:
    """What was explained, in words."""
    if target.function is not None:
        own = "" if target.predicted_name else "the function "
        return f"{own}{plain(target.label_name)}"
    words = f"{target.scale.replace('log_', 'log-')} of {named(target.label_name, tokens)}"
    words += f" rather than {named(target.against_name, tokens)}" if target.against_name is not None else ""
    return words + (f", at position {target.position}" if target.position is not None else "")


def explained_answer(study: Study, tokens: bool) -> str:
    """The answer that tokens argue for or against: an output, the whole answer in quotes, or a function's name."""
    target = study.target
    if is_whole(study):
        return f"“{plain(target.predicted_name)}”"
    return named(target.label_name, tokens) if target.function is None else plain(target.label_name)


def is_next(model: Mapping[str, Any], study: Study) -> bool:
    """Whether the answer is the token after the text."""
    ends = study.target.position == study.example.n_tokens - 1 and "decoder_input_ids" not in study.example.inputs
    return ends and "Masked" not in str(model.get("architecture", ""))


def says(model: Mapping[str, Any], study: Study, noun: Nouns = TEXTS) -> tuple[str, str]:
    """What stands before and after the answer in a sentence: the model calls this text …, predicts … next."""
    if not of_tokens(model, study):
        where = "" if study.target.position is None else f" at position {study.target.position}"
        return f"The model calls this {noun.text}", where
    if is_next(model, study):
        return f"After this {noun.text} the model predicts", " next"
    return "The model predicts", f" at position {study.target.position}"


def which(model: Mapping[str, Any], studies: Sequence[Study], as_predicted: bool, things: Nouns = TEXTS) -> str:
    """Whose answer is explained over several texts, and where."""
    if all(map(is_whole, studies)):
        return f"the whole answer of each {things.text}"
    tokens, following = of_tokens(model, studies[0]), all(is_next(model, s) for s in studies)
    noun = "predicted class" if not tokens else "predicted next token" if following else "predicted token"
    return (f"the {noun} of each {things.text}" if as_predicted else "as asked for") + positions(studies)


def positions(studies: Sequence[Study]) -> str:
    """Where answers are read: ", position 5" or ", positions 3 to 7"; empty where there is one answer an input."""
    at = sorted({s.target.position for s in studies if s.target.position is not None})
    if len(at) < 2:
        return f", position {at[0]}" if at else ""
    return f", positions {at[0]} to {at[-1]}"


def counted(found: Sequence[str]) -> str:
    """How often each answer was given, the most frequent first.

    >>> counted(["a", "b", "a", "c", "d", "e", "f"])
    'a (2), b (1), c (1), d (1) and 2 others'
    """
    counts = Counter(found).most_common()
    words = [f"{name} ({n})" for name, n in counts[:LISTED]]
    more = len(counts) - LISTED
    return ", ".join(words) if more <= 0 else f"{', '.join(words)} and {more} other{'s' if more > 1 else ''}"


def predicted(study: Study, tokens: bool) -> str:
    """The predicted answer with its probability."""
    p, name = study.target.predicted_probability, named(study.target.predicted_name, tokens)
    return f"{name}, {percent(p)}" if math.isfinite(p) else name
