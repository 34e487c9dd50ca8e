"""Pictures of coloured shapes on a 4 x 4 grid, and questions about them in words; all drawn from one generator.

A scene shows 3 or 4 things of different shapes and colours, each in a cell of its own, of 8 x 8 pixels: a cell is a
patch, so it is known which patch holds the answer. Size, place in the cell, tint and noise vary, so no picture comes
twice. Some pairs of colour and shape (`UNSEEN`) are kept out of training, to see what was learned of their parts.
"""

from dataclasses import dataclass, fields
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.models.own import Vocabulary

N_CELLS, CELL = 4, 8  # cells a side, pixels a cell
SMALLEST = 6  # pixels a side of a thing; smaller ones are hard to tell apart
NOISE, TINT = 0.06, 0.1  # spread of each pixel, and how far a thing's colour is from the colour of its name
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
FORMS = (  # of questions for the colour of a shape, and for the shape of a colour
    ("what colour is the {}", "which colour does the {} have", "the {} has what colour"),
    ("what shape is the {} thing", "which shape is {}", "the {} thing is of what shape"),
)
UNSEEN = frozenset({("blue", "circle"), ("red", "cross"), ("green", "triangle"), ("yellow", "square")})
VOCABULARY = Vocabulary.of([form.format(name) for forms in FORMS for form in forms for name in ANSWERS])
LONGEST = 8  # tokens of the longest question, [CLS] among them


@dataclass(frozen=True, eq=False)
class Scenes:
    """Pictures, one question each, its answer, and where the thing is: patch in the picture, naming word in the text.

    other: the patch of another thing of the picture, for comparison.
    """

    pictures: Float[Tensor, "scene 3 height width"]
    ids: Int[Tensor, "scene word"]
    answers: Int[Tensor, " scene"]
    patch: Int[Tensor, " scene"]
    other: Int[Tensor, " scene"]
    word: Int[Tensor, " scene"]

    def __len__(self) -> int:
        return len(self.answers)

    @property
    def is_word(self) -> Bool[Tensor, "scene word"]:
        """False at padding."""
        return self.ids != VOCABULARY.ids["[PAD]"]

    def part(self, chosen: Tensor | slice) -> "Scenes":
        """Some of the scenes, by index."""
        return Scenes(**{field.name: getattr(self, field.name)[chosen] for field in fields(self)})

    def question(self, index: int) -> str:
        """The words of a question."""
        ids = self.ids[index][self.is_word[index]].tolist()
        return " ".join(VOCABULARY.tokens[i] for i in ids[1:])


def outline(shape: str, size: int) -> Bool[Tensor, "size size"]:
    """Where a shape of size x size pixels has colour.

    >>> print("\\n".join("".join(".#"[x] for x in row) for row in outline("triangle", 5).int().tolist()))
    ..#..
    .###.
    .###.
    #####
    #####
    """
    steps = torch.arange(size) - (size - 1) / 2
    y, x = steps[:, None].expand(size, size), steps[None].expand(size, size)
    if shape == "square":
        return torch.ones(size, size, dtype=torch.bool)
    if shape == "circle":
        return x**2 + y**2 <= (size / 2 - 0.3) ** 2
    if shape == "triangle":
        return x.abs() <= (y + size / 2 + 0.5) / 2
    if shape == "cross":
        return (x.abs() < 1) | (y.abs() < 1)
    raise InputError(f"no shape is called '{shape}'; there are {', '.join(SHAPES)}")


@cache
def _stencils() -> tuple[Float[Tensor, "shape stencil row column"], Float[Tensor, " stencil"]]:
    """Every shape in every size and place within a cell, and how often each is drawn: every size as often."""
    places = [(s, i, j) for s in range(SMALLEST, CELL + 1) for i in range(CELL - s + 1) for j in range(CELL - s + 1)]
    stencils = torch.zeros(len(SHAPES), len(places), CELL, CELL)
    for k, shape in enumerate(SHAPES):
        for n, (size, down, right) in enumerate(places):
            stencils[k, n, down : down + size, right : right + size] = outline(shape, size).float()
    return stencils, torch.tensor([1 / (CELL - size + 1) ** 2 for size, _, _ in places])


@cache
def _questions() -> tuple[Int[Tensor, "kind form answer word"], Int[Tensor, "kind form answer"]]:
    """Ids of each question, padded, and where in it the name stands."""
    ids = torch.full((2, len(FORMS[0]), len(ANSWERS), LONGEST), VOCABULARY.ids["[PAD]"])
    places = torch.zeros(ids.shape[:3], dtype=torch.long)
    for kind, forms in enumerate(FORMS):
        for n, form in enumerate(forms):
            for k, name in enumerate(ANSWERS):
                row = VOCABULARY.encode(form.format(name))[1]
                ids[kind, n, k, : len(row)] = torch.tensor(row)
                places[kind, n, k] = row.index(VOCABULARY.ids[name])
    return ids, places


def _things(n: int, generator: torch.Generator, unseen: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Colour, shape, and whether it is there, of 4 things [scene thing]; the first is asked about."""
    kept_out = torch.tensor([[(colour, shape) in UNSEEN for shape in SHAPES] for colour in COLOURS])
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    while sum(len(there) for _, _, there in found) < n:
        colours = torch.rand(2 * n, len(COLOURS), generator=generator).argsort(1)[:, : len(SHAPES)]
        shapes = torch.rand(2 * n, len(SHAPES), generator=generator).argsort(1)
        there = torch.arange(len(SHAPES)) < torch.randint(3, len(SHAPES) + 1, (2 * n, 1), generator=generator)
        new = kept_out[colours, shapes] & there
        fits = (new[:, 0] == unseen) & ~new[:, 1:].any(1)
        found.append((colours[fits], shapes[fits], there[fits]))
    colours, shapes, there = (torch.cat(parts)[:n] for parts in zip(*found, strict=True))
    return colours, shapes, there


def make_scenes(n: int, generator: torch.Generator | int, *, unseen: bool = False) -> Scenes:
    """n scenes from a generator or a seed; unseen: the thing asked about is of a pair that no other scene shows."""
    if isinstance(generator, int):
        generator = torch.Generator().manual_seed(generator)
    every = torch.arange(n)
    colours, shapes, there = _things(n, generator, unseen)
    cells = torch.rand(n, N_CELLS**2, generator=generator).argsort(1)[:, : len(SHAPES)]
    (stencils, often), (ids, places) = _stencils(), _questions()
    grounds = 0.5 + NOISE * torch.randn(n, N_CELLS**2, 3, CELL, CELL, generator=generator)
    for k in range(len(SHAPES)):
        tint = torch.tensor(list(COLOURS.values()))[colours[:, k]]
        tint = tint + TINT * (2 * torch.rand(n, 3, generator=generator) - 1)
        inside = stencils[shapes[:, k], torch.multinomial(often, n, replacement=True, generator=generator)]
        inside = inside * there[:, k, None, None]
        grounds[every, cells[:, k]] += inside[:, None] * (tint - 0.5)[:, :, None, None]
    pictures = grounds.unflatten(1, (N_CELLS, N_CELLS)).permute(0, 3, 1, 4, 2, 5).flatten(4).flatten(2, 3)
    kind, form = (torch.randint(high, (n,), generator=generator) for high in (2, len(FORMS[0])))
    colour, shape = colours[:, 0], shapes[:, 0] + len(COLOURS)
    name, answer = torch.where(kind == 0, shape, colour), torch.where(kind == 0, colour, shape)
    asked = (kind, form, name)
    return Scenes(pictures, ids[asked], answer, cells[:, 0], cells[:, 1], places[asked])
