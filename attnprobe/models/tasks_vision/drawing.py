"""Pictures of coloured shapes on a 4 x 4 grid, and questions about them in words; all drawn from one seed.

A scene shows 3 or 4 things of different shapes and colours, each in a cell of its own, of 8 x 8 pixels: a cell is a
patch, so it is known which patch holds the answer. Size, place in the cell, tint and noise vary.
Some pairs of colour and shape (`UNSEEN`) are kept out of training, to see what was learned of their parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.models.own import Vocabulary

N_CELLS, CELL = 4, 8  # cells a side, pixels a cell
SMALLEST = 5  # pixels a side of a thing; smaller circles and crosses look the same
SHAPES = ("square", "circle", "triangle", "cross")
COLOURS = {
    "red": (0.85, 0.15, 0.15),
    "green": (0.15, 0.65, 0.2),
    "blue": (0.15, 0.25, 0.85),
    "yellow": (0.9, 0.85, 0.2),
    "purple": (0.6, 0.2, 0.7),
    "orange": (0.95, 0.55, 0.1),
}
ANSWERS = (*COLOURS, *SHAPES)
QUESTIONS = {
    "colour": ("what colour is the {}", "which colour does the {} have", "the {} has what colour"),
    "shape": ("what shape is the {} thing", "which shape is {}", "the {} thing is of what shape"),
}
UNSEEN = frozenset({("blue", "circle"), ("red", "cross"), ("green", "triangle"), ("yellow", "square")})

VOCABULARY = Vocabulary.of([form.format(name) for forms in QUESTIONS.values() for form in forms for name in ANSWERS])
LONGEST = 8  # tokens of the longest question, [CLS] among them


@dataclass(frozen=True, eq=False)
class Scenes:
    """Pictures, one question each, its answer, and where the thing is: patch in the picture, naming word in the text.

    other: the patch of another thing of the picture, for comparison.
    """

    pictures: Float[Tensor, "scene 3 height width"]
    ids: Int[Tensor, "scene word"]
    is_word: Bool[Tensor, "scene word"]
    answers: Int[Tensor, " scene"]
    patch: Int[Tensor, " scene"]
    other: Int[Tensor, " scene"]
    word: Int[Tensor, " scene"]
    questions: tuple[str, ...]

    def part(self, chosen: Tensor | slice) -> "Scenes":
        """Some of the scenes, by index."""
        names = ("pictures", "ids", "is_word", "answers", "patch", "other", "word")
        index = torch.arange(len(self.questions))[chosen]
        tensors = {name: getattr(self, name)[index] for name in names}
        return Scenes(**tensors, questions=tuple(self.questions[i] for i in index.tolist()))


def outline(shape: str, size: int) -> np.ndarray:
    """Where a shape of size x size pixels has colour, [size size] of booleans.

    >>> print("\\n".join("".join(".#"[x] for x in row) for row in outline("triangle", 4).astype(int)))
    .##.
    .##.
    ####
    ####
    """
    y, x = np.mgrid[:size, :size] - (size - 1) / 2
    if shape == "square":
        return np.ones((size, size), dtype=bool)
    if shape == "circle":
        return x**2 + y**2 <= (size / 2) ** 2
    if shape == "triangle":
        return np.abs(x) <= (y + size / 2 + 0.5) / 2
    if shape == "cross":
        return (np.abs(x) < 1) | (np.abs(y) < 1)
    raise InputError(f"no shape is called '{shape}'; there are {', '.join(SHAPES)}")


def draw(things: Sequence[tuple[str, str, int]], random: np.random.Generator) -> np.ndarray:
    """A picture [3 height width] of things (colour, shape, cell): grey noise, and each thing somewhere in its cell."""
    side = N_CELLS * CELL
    picture = 0.5 + 0.06 * random.standard_normal((3, side, side))
    for colour, shape, cell in things:
        size = int(random.integers(SMALLEST, CELL + 1))
        down, right = random.integers(0, CELL - size + 1, 2)
        top, left = CELL * (cell // N_CELLS) + down, CELL * (cell % N_CELLS) + right
        tint = np.array(COLOURS[colour]) + random.uniform(-0.1, 0.1, 3)
        window = picture[:, top : top + size, left : left + size]
        inside = outline(shape, size)
        window[:, inside] += tint[:, None] - 0.5
    return picture


def _things(random: np.random.Generator, unseen: bool) -> list[tuple[str, str, int]]:
    """3 or 4 things, the asked one first; only with `unseen` is the pair of the first one out of `UNSEEN`."""
    while True:
        n = int(random.integers(3, len(SHAPES) + 1))
        pairs = list(zip(random.permutation(list(COLOURS))[:n], random.permutation(SHAPES)[:n], strict=True))
        if [pair in UNSEEN for pair in pairs] == [unseen] + [False] * (n - 1):
            cells = random.permutation(N_CELLS**2)[:n]
            return [(str(colour), str(shape), int(cell)) for (colour, shape), cell in zip(pairs, cells, strict=True)]


def make_scenes(n: int, seed: int, *, unseen: bool = False) -> Scenes:
    """n scenes from a seed; unseen: the thing asked about is of a pair that no other scene shows."""
    random = np.random.default_rng(seed)
    pictures, rows, questions, facts = [], [], [], []
    for _ in range(n):
        things = _things(random, unseen)
        (colour, shape, cell), (_, _, other) = things[:2]
        kind = str(random.choice(list(QUESTIONS)))
        name, answer = (shape, colour) if kind == "colour" else (colour, shape)
        questions.append(str(random.choice(QUESTIONS[kind])).format(name))
        rows.append(VOCABULARY.encode(questions[-1])[1])
        facts.append((ANSWERS.index(answer), cell, other, rows[-1].index(VOCABULARY.ids[name])))
        pictures.append(draw(things, random))
    ids = torch.tensor([row + [VOCABULARY.ids["[PAD]"]] * (LONGEST - len(row)) for row in rows])
    answers, patch, other_patch, word = torch.tensor(facts).T
    return Scenes(
        torch.tensor(np.stack(pictures), dtype=torch.float32),
        ids,
        ids != VOCABULARY.ids["[PAD]"],
        answers,
        patch,
        other_patch,
        word,
        tuple(questions),
    )


def elsewhere(
    pictures: Float[Tensor, "scene 3 height width"], generator: torch.Generator
) -> Float[Tensor, "scene 3 height width"]:
    """The same cells in another order, drawn for each picture: a question keeps its answer, though not its patch."""
    n, order = len(pictures), torch.rand(len(pictures), N_CELLS**2, generator=generator).argsort(1)
    cells = pictures.reshape(n, 3, N_CELLS, CELL, N_CELLS, CELL).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    moved = cells[torch.arange(n)[:, None], order].unflatten(1, (N_CELLS, N_CELLS))
    return moved.permute(0, 3, 1, 4, 2, 5).reshape(pictures.shape)
