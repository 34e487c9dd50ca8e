"""Owen values: Shapley values in which tokens join word by word, and words sentence by sentence."""

import math
from collections.abc import Iterator
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.example import Example
from attnprobe.methods import Scores, methods
from attnprobe.methods.games import LACKS, Game, all_coalitions, gap_of, sentences_of
from attnprobe.methods.shapley import by_orders, n_pairs, passes_of_orders
from attnprobe.models.model import Model
from attnprobe.target import ResolvedTarget

# A player, or branches that join one after the other, each as a whole.
Tree = int | tuple[Any, ...]


@methods.add(
    family="perturbation",
    source="Owen 1977; Winter 1989 (nested groups)",
    formula="mean of y(before j, j) − y(before j) over orders in which no word and no sentence is interrupted",
    cost="K n F (K = n_samples), or fewer",
    signed=True,
    passes=lambda size, o: (passes_of_orders(size.n_units, o["n_samples"]), 0),
    lacks=LACKS,
)
def owen(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    *,
    n_samples: int = 26,
    operator: str | None = None,
    units: Literal["token", "word"] = "token",
    seed: int = 0,
) -> Scores:
    """Mean change of the target when a token is added, whole words and sentences at a time; adds up to y − y(nothing).

    The tree is sentence > word > token; where it has one level these are Shapley values. n_samples: orders that respect
    it, rounded up to pairs of an order and its reverse; exact where that takes no more passes (used["exact"]). operator
    as in leave_one_out. units: the smallest branch, "token" or "word". Target units, signed.
    """
    if units not in ("token", "word"):
        raise InputError(f"units is 'token' or 'word', got '{units}'; sentences are always a level of the tree")
    game = Game.of(model, example, target, operator, units)
    tree = tree_of(game)
    exact = n_asked(tree) <= passes_of_orders(game.n_players, n_samples)
    if exact:
        values, ends = of_tree(game, tree)
        error, told = None, {}
    else:
        generator = torch.Generator().manual_seed(seed)
        drawn = [order_of(tree, generator) for _ in range(n_pairs(n_samples))]
        values, error, ends = by_orders(game, drawn, "owen")
        told = {"orders": 2 * len(drawn)}
    levels = {"n_sentences": len(tree), "n_words": sum(len(sentence) for sentence in tree)}
    return game.scores(values, error, residual=gap_of("owen", values, ends), exact=exact, **levels, **told)


def tree_of(game: Game) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The players by sentence and by word; a word is of the sentence that its first token is in."""
    sentences, words = sentences_of(game.example), game.example.words
    found: dict[int, dict[object, list[int]]] = {}
    place: dict[object, int] = {}
    for player, group in enumerate(game.groups):
        word = words[group[0]]
        key = ("token", player) if word is None else word
        sentence = place.setdefault(key, sentences[group[0]])
        found.setdefault(sentence, {}).setdefault(key, []).append(player)
    return tuple(tuple(tuple(word) for word in sentence.values()) for sentence in found.values())


def leaves(tree: Tree) -> list[int]:
    """The players of a tree, in order.

    >>> leaves(((0, 1), (2,)))
    [0, 1, 2]
    """
    return [tree] if isinstance(tree, int) else [player for branch in tree for player in leaves(branch)]


def order_of(tree: Tree, generator: torch.Generator) -> list[int]:
    """A random order of the players in which no branch is interrupted, all such orders equally likely."""
    if isinstance(tree, int):
        return [tree]
    shuffled = torch.randperm(len(tree), generator=generator).tolist()
    return [player for branch in shuffled for player in order_of(tree[branch], generator)]


def n_asked(tree: Tree) -> int:
    """How many coalitions the exact values of a tree ask for.

    >>> n_asked((0, 1, 2)), n_asked(((0, 1, 2), (3, 4, 5)))
    (8, 28)
    """

    def partial(branch: Tree) -> int:
        """Coalitions in which some but not all of a branch is there."""
        if isinstance(branch, int):
            return 0
        return 2 ** len(branch) - 2 + 2 ** (len(branch) - 1) * sum(partial(part) for part in branch)

    return 2 + partial(tree)


def of_tree(game: Game, tree: Tree) -> tuple[Float[Tensor, " player"], tuple[float, float]]:
    """Exact values of a tree, and the worth of nobody and of everybody."""
    nobody = torch.zeros(1, game.n_players, dtype=torch.bool)
    found = list(joinings(tree, nobody, torch.ones(1).double()))
    before = torch.cat([others for _, others, _ in found])
    weight = torch.cat([weights for _, _, weights in found])
    player = torch.cat([torch.full((len(weights),), j) for j, _, weights in found])
    after = before.clone()
    after[torch.arange(len(after)), player] = True
    asked, place = torch.cat([nobody, ~nobody, before, after]).unique(dim=0, return_inverse=True)
    worth = game(asked, progress="owen")[place]
    without, joined = worth[2:].chunk(2)
    values = torch.zeros(game.n_players).double().index_add(0, player, weight * (joined - without))
    return values, (float(worth[0]), float(worth[1]))


def joinings(
    tree: Tree, before: Bool[Tensor, "coalition player"], weights: Float[Tensor, " coalition"]
) -> Iterator[tuple[int, Bool[Tensor, "coalition player"], Float[Tensor, " coalition"]]]:
    """Each player of a tree with the coalitions that it can join and the share of orders in which it joins them.

    before: what may be there when the first of this tree joins; weights: the share of orders for each.
    """
    if isinstance(tree, int):
        yield tree, before, weights
        return
    k = len(tree)
    chosen = all_coalitions(k - 1)
    shares = [math.factorial(s) * math.factorial(k - 1 - s) / math.factorial(k) for s in chosen.sum(1).tolist()]
    share = torch.tensor(shares, dtype=torch.float64)
    for i, branch in enumerate(tree):
        there = torch.zeros(len(chosen), before.shape[1], dtype=torch.bool)
        for column, other in enumerate((*tree[:i], *tree[i + 1 :])):
            there[:, leaves(other)] |= chosen[:, column : column + 1]
        together = (before[:, None] | there).flatten(0, 1)
        yield from joinings(branch, together, (weights[:, None] * share).flatten())
