"""Dates in words -> "1987-03-03", character by character: `python -m attnprobe.models.tasks.dates --model recurrent`.

The task on which alignment is easy to judge: the digits of the day are to be read where the day stands. It prints the
share of dates, of days never learned from, that are right in all ten characters, and where the alignment lies.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, get_args

import torch
from jaxtyping import Float
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
from attnprobe.models.tasks.training import arguments, fit, keep_network, progress

Kind = Literal["recurrent", "transformer"]
INPUTS = Vocabulary(("[PAD]", "[UNK]", *"abcdefghijklmnopqrstuvwxyz0123456789 ,.-/'"), begin=None, pattern=r"[\s\S]")
OUTPUTS = Vocabulary(("[BOS]", *"0123456789-"), begin="[BOS]", pattern=r"[\s\S]")
N_STEPS, BATCH, LONGEST = {"recurrent": 600, "transformer": 1500}, 64, 48
HELD_OUT = 1_000_000  # added to the seed of what is never learned from


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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make(kind)
    dates = draw(calendar(held_out=False), seed)
    n_steps = N_STEPS[kind] if n_steps is None else n_steps
    fit(
        network,
        lambda: loss_on(network, list(islice(dates, BATCH))),
        n_steps=n_steps,
        rate=3e-3 if kind == "recurrent" else 2e-3,
        report=progress if report else None,
    )
    return network.eval()


def translate(network: SequenceToSequence, texts: Sequence[str]) -> list[str]:
    """The likeliest character after the likeliest character, for each text."""
    if not texts:
        return []
    ids, is_token = encode(texts)
    with evaluating(network):
        written = greedy(network, ids, is_token, begin=OUTPUTS.ids["[BOS]"], n_steps=10)
    return ["".join(OUTPUTS.tokens[i] for i in row[1:].tolist()) for row in written]


def accuracy(network: SequenceToSequence, dates: Sequence[WrittenDate]) -> float:
    """Share of the dates with all ten characters right."""
    answers = translate(network, [date.text for date in dates])
    return sum(answer == date.iso for answer, date in zip(answers, dates, strict=True)) / len(dates)


def held_out(n: int, seed: int = 0) -> list[WrittenDate]:
    """Dates of days that nobody learns from."""
    return list(islice(draw(calendar(held_out=True), seed + HELD_OUT), n))


@dataclass(frozen=True)
class Alignment:
    """Where a network looked while it wrote: maps [layer head step position], of every cross-attention it has.

    inputs: the characters of the text; outputs: those it wrote, its own answer.
    """

    maps: Float[Tensor, "layer head step position"]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def weights(self, layer: int = -1, head: int | None = None) -> Float[Tensor, "step position"]:
        """One map; head None: the mean over the heads of the layer. Rows sum to 1."""
        return self.maps[layer].mean(0) if head is None else self.maps[layer, head]


def alignment(network: SequenceToSequence, text: str) -> Alignment:
    """Let the network write the date, and say where it looked at each step."""
    ids, is_token = encode([text])
    with evaluating(network):
        written = greedy(network, ids, is_token, begin=OUTPUTS.ids["[BOS]"], n_steps=10)
        maps = cross_maps(network, ids, is_token, written[:, :-1])
    return Alignment(maps[0], tuple(text), tuple(OUTPUTS.tokens[i] for i in written[0, 1:].tolist()))


def mass_on_parts(network: SequenceToSequence, dates: Sequence[WrittenDate]) -> dict[str, Float[Tensor, "layer head"]]:
    """For year, month and day: how much of the weight lies where the text says it, while its digits are written.

    "even": what even weights would give, the mean of the three (one layer, one head).
    """
    ids, is_token = encode([date.text for date in dates])
    written = torch.tensor([OUTPUTS.encode(date.iso)[1] for date in dates])
    with evaluating(network):
        maps = cross_maps(network, ids, is_token, written[:, :-1])
    masses: dict[str, Tensor] = {}
    shares = []
    for part, (first, end) in ANSWER.items():
        inside = torch.zeros(ids.shape, dtype=torch.bool)
        for row, date in enumerate(dates):
            inside[row, slice(*date.spans[part])] = True
        masses[part] = (maps[..., first:end, :] * inside[:, None, None, None]).sum(-1).mean((0, -1))
        shares.append((inside.sum(-1) / is_token.sum(-1)).mean())
    return masses | {"even": torch.stack(shares).mean()[None, None]}


def main() -> None:
    """Train, and print the accuracy on held-out days and where the alignment lies."""
    steps = ", ".join(f"{number} {kind}" for kind, number in N_STEPS.items())
    parser = arguments("Learn to write dates in words as 1987-03-03.", steps=steps)
    parser.add_argument("--model", choices=get_args(Kind), default="recurrent", help="(default %(default)s)")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    network = train(given.model, n_steps=given.steps, seed=given.seed, report=True)
    keep_network(network, given.out)
    dates = held_out(2000, given.seed)
    print(f"held-out days, all ten characters right: {accuracy(network, dates):.1%} of {len(dates)}")
    for text in ("the third of March 1987", "Mar 3rd, 1987", "3 mar '87", "03.03.87"):
        print(f"  {text:25} {translate(network, [text])[0]}")
    masses = mass_on_parts(network, dates)
    print(f"weight on the part that is being written (even weights: {float(masses.pop('even')):.2f})")
    for layer, head in torch.cartesian_prod(*map(torch.arange, masses["day"].shape)).tolist():
        words = ", ".join(f"{part} {float(mass[layer, head]):.2f}" for part, mass in masses.items())
        print(f"  cross-attention {layer}.{head}: {words}")


if __name__ == "__main__":
    main()
