"""Dates in words -> "1987-03-03", character by character: `python -m attnprobe.models.tasks.dates --model recurrent`.

The task on which alignment is easy to judge: the digits of the day are to be read where the day stands. It prints the
share of dates, of days never learned from, that are right in all ten characters, and where the alignment lies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

import torch
from jaxtyping import Float
from safetensors.torch import load_file, save_file
from torch import Tensor

from attnprobe.attention.encoder_decoder import EncoderDecoder
from attnprobe.attention.positions.rotary import rotary
from attnprobe.attention.recurrent import RecurrentEncoderDecoder
from attnprobe.attention.sequence_to_sequence import (
    SequenceToSequence,
    cross_maps,
    greedy,
    translation_loss,
)
from attnprobe.errors import InputError, nearest
from attnprobe.models.modes import evaluating
from attnprobe.models.own import Vocabulary
from attnprobe.models.tasks.date_forms import ANSWER, WrittenDate, calendar, draw
from attnprobe.models.tasks.training import arguments, fit, prepare

Kind = Literal["recurrent", "transformer"]
INPUTS = Vocabulary(("[PAD]", "[UNK]", *"abcdefghijklmnopqrstuvwxyz0123456789 ,.-/'"), begin=None, pattern=r"[\s\S]")
OUTPUTS = Vocabulary(("[BOS]", *"0123456789-"), begin="[BOS]", pattern=r"[\s\S]")
N_STEPS, BATCH, LONGEST = {"recurrent": 2000, "transformer": 2500}, 64, 48


def make(kind: str) -> SequenceToSequence:
    """A network that has learned nothing yet."""
    n_source, n_target = len(INPUTS.tokens), len(OUTPUTS.tokens)
    if kind == "recurrent":
        return RecurrentEncoderDecoder(n_source, n_target, d_embedding=32, d_state=64)
    if kind == "transformer":
        return EncoderDecoder(
            n_source, n_target, d_model=64, n_heads=4, n_layers=2, max_length=LONGEST, positions=rotary()
        )
    raise InputError(f"a model for dates is one of {', '.join(get_args(Kind))}; {nearest(kind, get_args(Kind))}")


def encode(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Ids [batch position] of the characters, padded on the right, and which of them are tokens."""
    rows = [torch.tensor(INPUTS.encode(text)[1]) for text in texts]
    if max(map(len, rows)) > LONGEST:
        raise InputError(f"a date has at most {LONGEST} characters here, got {max(map(len, rows))}; shorten it")
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return ids, torch.arange(ids.shape[1]) < torch.tensor([[len(row)] for row in rows])


def loss_on(network: SequenceToSequence, dates: Sequence[WrittenDate]) -> Float[Tensor, ""]:
    """Mean negative log-probability of a character of the answers."""
    ids, is_token = encode([date.text for date in dates])
    target_ids = torch.tensor([OUTPUTS.encode(date.iso)[1] for date in dates])
    return translation_loss(network, ids, is_token, target_ids)


def train(kind: str, *, n_steps: int | None = None, seed: int = 0, report: bool = False) -> SequenceToSequence:
    """A network that learned from days of the century, a tenth of them kept back; report: prints progress."""
    prepare(seed, torch.get_num_threads())
    network, dates = make(kind), draw(calendar(held_out=False), seed)
    n_steps = N_STEPS[kind] if n_steps is None else n_steps
    fit(
        network,
        lambda: loss_on(network, list(islice(dates, BATCH))),
        n_steps=n_steps,
        rate=3e-3 if kind == "recurrent" else 2e-3,
        report=print if report else None,
    )
    return network.eval()


def translate(network: SequenceToSequence, texts: Sequence[str]) -> list[str]:
    """The likeliest character after the likeliest character, for each text."""
    ids, is_token = encode(texts)
    with evaluating(network):
        written = greedy(network, ids, is_token, begin=OUTPUTS.ids["[BOS]"], n_steps=10)
    return ["".join(OUTPUTS.tokens[i] for i in row[1:].tolist()) for row in written]


def accuracy(network: SequenceToSequence, dates: Sequence[WrittenDate]) -> float:
    """Share of the dates with all ten characters right."""
    answers = translate(network, [date.text for date in dates])
    return sum(answer == date.iso for answer, date in zip(answers, dates, strict=True)) / len(dates)
