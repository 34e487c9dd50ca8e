"""What a question about every head of a stack begins with: the rows that change one head each, z, another example."""

from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence, Set, ValuesView
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.seam import Edit, Keep
from attnprobe.errors import EditError, InputError
from attnprobe.example import Example
from attnprobe.intervention import Intervention
from attnprobe.models.evaluator import targets
from attnprobe.models.model import Model, Stack
from attnprobe.models.resumption import resumed
from attnprobe.models.rows import Row
from attnprobe.site import Site, parts_of
from attnprobe.target import ResolvedTarget

# z [head query d_value] of one layer by the number of its part (image, window): most have the part 0 alone.
Parts = Mapping[int, Tensor]
MOST_PIECES = 6  # tokens that a message names


def places_of(stack: Stack) -> list[tuple[int, int]]:
    """Every (layer, head) of a stack."""
    return [(layer, head) for layer, n in enumerate(stack.n_heads) for head in range(n)]


def by_head(stack: Stack, values: Float[Tensor, " place"]) -> Float[Tensor, "layer head"]:
    """A number for each of `places_of`, as layers of heads; NaN where a layer has fewer heads than another."""
    found = torch.full((stack.n_layers, max(stack.n_heads)), torch.nan, dtype=values.dtype)
    layers, heads = zip(*places_of(stack), strict=True)
    found[list(layers), list(heads)] = values.detach().cpu()
    return found


def changed(
    model: Model,
    example: Example,
    target: ResolvedTarget,
    stack: Stack,
    edit: Callable[[int, int], Edit],
    progress: str,
) -> tuple[Float[Tensor, "layer head"], float]:
    """The target with one head after the other changed by `edit(layer, head)`, and as it is; float64."""
    rows = [Row(example, edits=(edit(layer, head),)) for layer, head in places_of(stack)]
    with resumed(model, example, target):
        answers = targets(model, [*rows, Row(example)], target, progress=progress).double()
    return by_head(stack, answers[:-1]), float(answers[-1])


def z_put(
    stack: Stack, layer: int, head: int, given: Float[Tensor, " #d_value"] | Parts, name: str = "z"
) -> Intervention:
    """The edit that puts other numbers in the place of a head's z: one vector at every position, or z of all parts."""

    def change(site: Site) -> Site:
        z = site.need("z").clone()
        z[:, head] = given.to(z) if isinstance(given, Tensor) else _rows_of(site, given, head, z)
        return site.replace(z=z)

    return Intervention(f"{name} of head {head}", change, (layer,), stack.name, stack.kind)


def _rows_of(site: Site, given: Parts, head: int, z: Tensor) -> Float[Tensor, "row query d_value"]:
    """z of one head for every batch row; the parts of an input lie one after the other."""
    first = site.place.part
    parts = [given[part][head] for part in range(first, first + site.n_parts) if part in given]
    if len(parts) != site.n_parts or parts[0].shape != z[0, head].shape:
        got = "no z" if not parts else f"z of {tuple(parts[0].shape)}"
        raise EditError(f"{site.place}: got {got} for one head, expected {tuple(z[0, head].shape)} [query d_value]")
    return torch.stack(parts).to(z).repeat(len(z) // site.n_parts, 1, 1)


def z_of(model: Model, example: Example, stack: Stack) -> list[Parts]:
    """z of every layer of a stack in a plain pass, by part."""
    keep = Keep.of("z", stack=stack.name, kind=stack.kind)
    return by_layer(stack, model.capture(example, keep=keep).select(stack.name, stack.kind))


def by_layer(stack: Stack, sites: Sequence[Site]) -> list[Parts]:
    """z of sites of one input by layer and part."""
    found: list[dict[int, Tensor]] = [{} for _ in range(stack.n_layers)]
    for site in sites:
        for part in parts_of(site):
            found[part.place.layer][part.place.part] = part.need("z")[0]
    return list(found)


def examples_of(model: Model, data: Any) -> list[Example]:
    """Examples of a data set; `InputError` where there is none."""
    if isinstance(data, str | Example):
        raise InputError("data is a list of inputs (texts, examples), got a single one")
    found = [model.example(item) for item in data]
    if not found:
        raise InputError("data is empty; give at least one input")
    return found


def listed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with what can be gone through but once, or has no order (a generator, a set), as lists."""
    return {
        name: list(value) if isinstance(value, Iterator | Set | KeysView | ValuesView) else value
        for name, value in options.items()
    }


def counterpart(model: Model, example: Example, corrupt: Any) -> Example:
    """The other input of a pair, read as the first was (an encoder-decoder's with the same answer).

    Errors: `InputError` for one of another length: what is moved between the two is moved position by position.
    """
    answer = example.notes.get("answer_ids")
    options = {} if answer is None or isinstance(corrupt, Example) else {"answer": answer}
    other = model.example(corrupt, **options)
    if other.n_tokens != example.n_tokens:
        raise InputError(
            f"the corrupt input has {other.n_tokens} tokens, the example {example.n_tokens}: {_apart(example, other)}; "
            "give one of equal length"
        )
    return other


def _apart(clean: Example, corrupt: Example) -> str:
    """The tokens of two readings between what they have in common at both ends, and how many there are."""
    a, b = ([piece.strip() for piece in one.pieces] for one in (clean, corrupt))
    shorter = min(len(a), len(b))
    before = next((i for i in range(shorter) if a[i] != b[i]), shorter)
    behind = next((i for i in range(shorter - before) if a[-1 - i] != b[-1 - i]), shorter - before)
    found = []
    for pieces, whose in ((a, "the example"), (b, "the corrupt input")):
        mine = pieces[before : len(pieces) - behind]
        shown = [f"'{piece}'" for piece in mine[:MOST_PIECES]] + ["…"] * (len(mine) > MOST_PIECES)
        found.append(f"where they differ {whose} has {len(mine)} ({', '.join(shown)})" if mine else f"{whose} has none")
    return found[0] + ", " + found[1].removeprefix("where they differ ")
