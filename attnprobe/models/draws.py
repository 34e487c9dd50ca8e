"""Removal by draws: what stands in for a token comes from other texts, or from a masked language model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.models.evaluator import targets
from attnprobe.models.infilling import Infiller
from attnprobe.models.model import Model
from attnprobe.models.removal import checked_operator
from attnprobe.models.rows import DRAWN, Row, StandIns
from attnprobe.target import ResolvedTarget

Replacement = Literal["drawn", "likeliest"]
Kept = Sequence[Bool[Tensor, " token"]]


@dataclass(frozen=True, eq=False)
class Removal:
    """How tokens of an example are taken away: an operator, and what it draws where it draws.

    draw: for each choice of tokens that stay, the stand-ins of every draw; None for an operator that draws nothing.
    used: what was chosen, for people.
    """

    example: Example
    operator: str
    n_draws: int = 1
    draw: Callable[[Kept], list[list[StandIns]]] | None = field(default=None, repr=False)
    used: Mapping[str, object] = field(default_factory=dict)

    def targets(
        self, model: Model, kept: Kept, target: ResolvedTarget, *, progress: str | None = None
    ) -> Float[Tensor, "choice draw"]:
        """The target for each choice of tokens that stay and each draw, through the evaluator."""
        rows = [row for choice in self._rows(kept) for row in choice]
        return targets(model, rows, target, progress=progress).reshape(len(kept), self.n_draws)

    def _rows(self, kept: Kept) -> list[list[Row]]:
        """For each choice a row a draw; where nothing is taken away there is nothing to draw."""
        if self.draw is None:
            return [[Row(self.example, kept=choice, operator=self.operator)] for choice in kept]
        less = [choice for choice in kept if not bool(choice.all())]
        drawn = iter(self.draw(less))
        return [
            [Row(self.example)] * self.n_draws
            if bool(choice.all())
            else [Row(self.example, choice, self.operator, stand_ins=given) for given in next(drawn)]
            for choice in kept
        ]


def removal(
    model: Model,
    example: Example,
    operator: str | None,
    groups: Sequence[Sequence[int]],
    *,
    data: Sequence[Any] | None = None,
    infiller: Any = None,
    replacement: Replacement = "drawn",
    n_samples: int = 8,
    seed: int = 0,
) -> Removal:
    """How tokens are taken away, checked before anything runs.

    groups: tokens that go together. data: texts whose tokens "resample" draws (None: the other tokens of this one).
    infiller: a masked language model with the same tokens, a `Model` or what `load` takes (None: the model itself);
    replacement: "drawn" from what it predicts, or the "likeliest" other token. n_samples: draws. seed: of the draws.
    Errors: `InputError` for an operator that does not exist or that this model lacks, or an option of another one.
    """
    operator = checked_operator(model, operator, draws=True)
    _refuse(operator, "resample", "data", data)
    _refuse(operator, "infill", "infiller", infiller)
    if replacement not in ("drawn", "likeliest"):
        raise InputError(f"replacement is 'drawn' or 'likeliest', got '{replacement}'")
    _refuse(operator, "infill", "replacement", None if replacement == "drawn" else replacement)
    if operator not in DRAWN:
        return Removal(example, operator, used={"operator": operator})
    if n_samples < 1:
        raise InputError(f"n_samples is at least 1, got {n_samples}")
    generator = torch.Generator().manual_seed(seed)
    if operator == "infill":
        likeliest = replacement == "likeliest"
        found = Infiller.of(model, example, infiller, 1 if likeliest else n_samples, likeliest, generator)
        used = {"operator": operator, "infiller": found.reader.name, "replacement": replacement}
        return Removal(example, operator, found.n_draws, found, used)
    if data is None:
        drawn, source = _of_itself(model, example, groups, n_samples, generator), "the other tokens of the text"
    else:
        drawn, source = _of_texts(model, example, data, n_samples, generator)
    return Removal(
        example, operator, n_samples, lambda kept: [drawn] * len(kept), {"operator": operator, "data": source}
    )


def _refuse(operator: str, owner: str, option: str, given: object) -> None:
    if given is not None and operator != owner:
        raise InputError(
            f"{option} belongs to the operator '{owner}', the operator here is '{operator}'; leave one out"
        )


def _of_itself(
    model: Model, example: Example, groups: Sequence[Sequence[int]], n_draws: int, generator: torch.Generator
) -> list[StandIns]:
    """Draws in which each token gets the embedding of one that may be taken away and is not of its own group."""
    embeddings, index = model.embed(example), torch.arange(example.n_tokens).repeat(n_draws, 1)
    for group in groups:
        others = torch.tensor([i for other in groups if other is not group for i in other])
        if len(others) == 0:
            raise InputError(
                f"there is no other token to draw from in '{example.text[:40]}'; give texts to draw from: data=[…]"
            )
        index[:, list(group)] = others[_below(len(others), (n_draws, len(group)), generator)]
    return [StandIns(embeddings, row) for row in index]


def _of_texts(
    model: Model, example: Example, data: Sequence[Any], n_draws: int, generator: torch.Generator
) -> tuple[list[StandIns], str]:
    """Draws in which each token gets the embedding of any token of the texts, special tokens left out."""
    if isinstance(data, str | Mapping) or len(data) == 0:
        raise InputError(f"data is a list of at least one text to draw tokens from, got {data!r}")
    # An encoder-decoder would write an answer to each text; any will do where only the text is looked at.
    answer: dict[str, Any] = {"answer": list(example.notes["answer_ids"])} if "answer_ids" in example.notes else {}
    texts = [model.example(text, **answer) for text in data]
    places = torch.tensor(
        [(t, i) for t, text in enumerate(texts) for i, special in enumerate(text.is_special) if not special]
    )
    if len(places) == 0:
        raise InputError("the texts of data have only special tokens; there is nothing to draw")
    chosen = _below(len(places), (n_draws, example.n_tokens), generator)
    needed, index = chosen.unique(return_inverse=True)
    entries: list[Tensor] = []
    for t in places[needed, 0].unique().tolist():  # in order, as `needed` is
        positions = places[needed][places[needed, 0] == t, 1]
        vectors = model.embed(texts[t])
        entries.append(vectors[positions.to(vectors.device)])
    table = torch.cat(entries)
    words = f"{len(places)} tokens of {len(texts)} text{'s' if len(texts) > 1 else ''}"
    return [StandIns(table, row) for row in index], words


def _below(n: int, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    return torch.randint(n, shape, generator=generator)
