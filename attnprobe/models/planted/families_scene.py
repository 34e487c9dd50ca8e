"""What a family draws: tokens with a part to play and contents that differ from input to input, and a network."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from attnprobe.models.planted.plan import Layer, Row

# Other inputs of the same kind; a multiple of 4, so that what is there or not, + or -, is so in half of them.
N_OTHERS = 12

Content = dict[str, float]
NO_CONTENT: Content = {}


@dataclass
class Token:
    """Content of one place in the input that is explained, and in each of the others."""

    main: Content = field(default_factory=dict)
    others: list[Content] = field(default_factory=lambda: [{} for _ in range(N_OTHERS)])


@dataclass(frozen=True)
class Scene:
    """One draw of a family: the network's parts as in a `Plan`, the tokens, and which of them act by construction.

    twin: layers of a second network that gives the same y on every input.
    """

    story: str
    dims: tuple[str, ...]
    layers: tuple[Layer, ...]
    tokens: Sequence[Token]
    causal: tuple[int, ...]
    read: int = 0
    readout: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: {"y": {"out": 1.0}})
    label: str = "y"
    decoder: bool = False
    positions: tuple[Content, ...] = ()
    twin: tuple[Layer, ...] | None = None

    def words(self) -> tuple[dict[str, Content], list[tuple[str, ...]]]:
        """A word for every content that a place ever has, and each input in words; the explained one comes first."""
        contents: dict[str, Content] = {}
        texts: list[list[str]] = [[] for _ in range(1 + N_OTHERS)]
        for place, token in enumerate(self.tokens):
            for number, content in enumerate([token.main, *token.others]):
                word = f"w{place}.{number}"
                contents[word] = content
                texts[number].append(word)
        return contents, [tuple(text) for text in texts]


class Draws:
    """Random numbers of one draw."""

    def __init__(self, draw: np.random.Generator, n: int) -> None:
        self.draw, self.n = draw, n
        self._free = [int(place) for place in draw.permutation(n)]

    def places(self, k: int = 1) -> list[int]:
        """So many places that nothing was put at yet, in random order."""
        found, self._free = self._free[:k], self._free[k:]
        return found

    def uniform(self, low: float, high: float) -> float:
        """A number between two."""
        return float(self.draw.uniform(low, high))

    def sign(self) -> float:
        """1 or -1."""
        return float(self.draw.choice([-1.0, 1.0]))

    def chance(self, share: float) -> bool:
        """True in so many of all draws."""
        return bool(self.draw.random() < share)

    def balanced(self, values: Sequence[float]) -> list[float]:
        """One of the values for each other input, all equally often."""
        return [float(x) for x in self.draw.permutation(np.resize(values, N_OTHERS))]


class Stage(Draws):
    """Random numbers for one draw, and the tokens that it is made of."""

    def __init__(self, draw: np.random.Generator, n: int, boundary: bool = False) -> None:
        super().__init__(draw, n)
        self.boundary = boundary
        self.tokens = [Token() for _ in range(n)]

    def put(self, place: int, dim: str, main: float, others: Sequence[float]) -> None:
        """Content in one dimension: here, and in each of the other inputs."""
        self.tokens[place].main[dim] = main
        for content, value in zip(self.tokens[place].others, others, strict=True):
            content[dim] = value

    def put_scaled(self, place: int, dim: str, value: float) -> None:
        """Content that is of either sign and of 0.5 to 1.5 times the size elsewhere, on the whole 0."""
        half = self.draw.uniform(0.5, 1.5, N_OTHERS // 2)
        factors = self.draw.permutation(np.concatenate([half, -half]))
        self.put(place, dim, value, [value * float(factor) for factor in factors])

    def put_switch(self, place: int, dim: str, value: float, off: float = 0.0) -> None:
        """Content that is as here in half of the other inputs, and `off` in the other half."""
        self.put(place, dim, value, self.balanced([value, off]))

    def put_always(self, place: int, dim: str, value: float) -> None:
        """Content that is the same in every input."""
        self.put(place, dim, value, [value] * N_OTHERS)

    @cached_property
    def idle(self) -> tuple[str, ...]:
        """Dimensions that nothing reads, with contents in every token."""
        names = ("idle1", "idle2")
        for place in range(self.n):
            for name in names:
                self.put(place, name, float(self.draw.normal()), self.draw.normal(size=N_OTHERS).tolist())
        return names

    def row(self, acting: Sequence[int], mode: str | None = None) -> list[float]:
        """Weights on all tokens. mode: "with" has the acting tokens first, "against" a bystander first and them last,
        "partly" one of them (or, of a single one, a bystander) first; None: one of these.
        """
        mode = mode or str(self.draw.choice(["with", "against", "partly"], p=[0.35, 0.4, 0.25]))
        weights = self.draw.uniform(0.5, 1.5, self.n)
        bystanders = [place for place in range(self.n) if place not in acting]
        loud = self.draw.choice(bystanders, size=min(2, len(bystanders)), replace=False)
        for place in acting:
            weights[place] = self.uniform(2.5, 7.0) if mode == "with" else self.uniform(0.25, 0.45)
        if mode == "against":
            weights[loud] = self.draw.uniform(2.5, 7, len(loud))
        if mode == "partly":
            first, second = (acting[0], loud[0]) if len(acting) > 1 else (loud[0], acting[0])
            weights[first], weights[second] = self.uniform(4.0, 7.0), self.uniform(2.0, 3.5)
        return [float(weight) for weight in weights / weights.sum()]

    def shares(self, acting: Sequence[int], scale: float = 1.0) -> dict[int, float]:
        """Influence to give to every token that does not act: at most 7 % of `scale`; near the boundary 12 to 38 % to
        one to three of them."""
        bystanders = [place for place in range(self.n) if place not in acting]
        found = {place: self.uniform(0.0, 0.07) * scale for place in bystanders}
        if self.boundary:
            chosen = self.draw.choice(bystanders, size=int(self.draw.integers(1, 4)), replace=False)
            found |= {int(place): self.uniform(0.12, 0.38) * scale for place in chosen}
        return found

    def murmur(self, acting: Sequence[int], reach: Sequence[float], dim: str = "val", scale: float = 1.0) -> None:
        """A little content in the tokens that do not act, by how much of it gets through (`reach`); never so much more
        than the acting tokens have that the mean of all words would be its."""
        most = 3 * max((abs(self.tokens[place].main.get(dim, 0.0)) for place in acting), default=0.0) or math.inf
        for place, share in self.shares(acting, scale).items():
            size = share / reach[place] if reach[place] > 0 else most
            self.put_scaled(place, dim, self.sign() * (min(size, most) if size < math.inf else 0.0))


def as_row(weights: Iterable[float]) -> Row:
    """Weights as a plan has them."""
    return tuple(float(weight) for weight in weights)
