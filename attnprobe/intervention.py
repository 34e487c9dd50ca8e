"""The edits: each a function from site to site that knows where it acts.

Layers, heads, stack and kind say where (None: everywhere). An edit that fits no place of the model, or a
head or position that is not there, is an `EditError`; it never does nothing in silence.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import EllipsisType
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.attention.indices import Index, check, heads_of, numbers, positions
from attnprobe.attention.remaking import hide
from attnprobe.capture import Capture
from attnprobe.errors import EditError, InputError
from attnprobe.site import Kind, Place, Site

# A head as people write it; a whole address names its stack and its kind, or one of them.
_ADDRESS = re.compile(
    r"(?:(?P<stack>(?!(?:self|cross)\b)[A-Za-z_]\w*)\.)?(?:(?P<kind>self|cross)\.)?L?(?P<layer>\d+)[.H](?P<head>\d+)"
)


@dataclass(frozen=True, eq=False)
class Intervention:
    """An edit with a name and the places where it acts.

    value_factor: of an edit that multiplies values and does nothing else: by what [#head key], given the place and the
    numbers of heads and keys. Rows that differ in it alone are edited together.
    """

    name: str
    change: Callable[[Site], Site] = field(repr=False)
    layers: tuple[int, ...] | None = None
    stack: str | None = None
    kind: Kind | None = None
    value_factor: Callable[[Place, int, int], Float[Tensor, "#head key"]] | None = field(default=None, repr=False)

    def acts_at(self, place: Place) -> bool:
        """Whether this edit acts at a place."""
        return (
            (self.layers is None or place.layer in self.layers)
            and (self.stack is None or place.stack == self.stack)
            and (self.kind is None or place.kind == self.kind)
        )

    def __call__(self, site: Site) -> Site:
        return self.change(site) if self.acts_at(site.place) else site

    def __str__(self) -> str:
        where = "" if self.layers is None else f" in layers {', '.join(map(str, self.layers))}"
        return (
            self.name
            + where
            + (f" of {self.stack}" if self.stack else "")
            + (f" {self.kind}-attention" if self.kind else "")
        )


def silence_head(
    layer: int | str, head: Index | EllipsisType = ..., *, stack: str | None = None, kind: Kind | None = None
) -> Intervention:
    """Zero what a head passes on: its weights are 0, so its z is 0, before the projection mixes the heads.

    layer, head: two numbers (several heads in a list, None for all), or an address alone: "2.1", "decoder.cross.2.1".
    Of a model with several stacks it acts in all of them that have the place, unless the stack is named.
    """
    if isinstance(layer, str) and head is ...:
        layer, head, stack, kind = _address(layer, stack, kind)
    if head is ... or isinstance(layer, str):
        raise InputError(f"say layer and head: silence_head(2, 1) or silence_head('2.1'); got {layer!r}")
    heads: Index = head

    def change(site: Site) -> Site:
        return site.replace(weights=_on_heads(site, heads, lambda weights, _: torch.zeros_like(weights)))

    return Intervention(f"silence head {heads}", change, numbers(layer, "layer"), stack, kind)


def _address(written: str, stack: str | None, kind: Kind | None) -> tuple[int, int, str | None, Kind | None]:
    """Layer, head, stack and kind of an address; `InputError` for what is none."""
    found = _ADDRESS.fullmatch(written.strip())
    if found is None:
        raise InputError(f"'{written}' names no head; write it as 5.1, L5H1 or decoder.cross.5.1, or as two numbers")
    named = cast(Kind | None, found["kind"])
    return int(found["layer"]), int(found["head"]), found["stack"] or stack, named or kind


def mean_head(
    layer: int,
    head: int,
    captures: Sequence[Capture],
    *,
    per_position: bool = False,
    stack: str | None = None,
    kind: Kind | None = None,
) -> Intervention:
    """Replace a head's z by its mean over captures that kept "z": over all positions, or by position."""
    if not captures:
        raise EditError("mean_head needs at least one capture that kept 'z' (keep=Keep.of('z'))")
    kept = [_z_of_head(capture, layer, head, stack, kind, per_position) for capture in captures]
    if per_position:
        if len({z.shape[0] for z in kept}) > 1:
            raise EditError("per_position=True needs captures of one length; use per_position=False")
        mean = torch.stack(kept).mean(0)
    else:
        mean = torch.cat(kept).mean(0, keepdim=True)

    def change(site: Site) -> Site:
        check(head, site.n_heads, "head", site.place)
        z = site.need("z").clone()
        z[:, head] = mean.to(z)
        return site.replace(z=z)

    return Intervention(f"mean of head {head} over {len(captures)} examples", change, (layer,), stack, kind)


def _z_of_head(
    capture: Capture, layer: int, head: int, stack: str | None, kind: Kind | None, per_position: bool
) -> Tensor:
    """z [position d_head] of a head by its number in the model, whatever else the capture kept; parts one by one."""
    if (stack is None or kind is None) and len(capture.stacks()) > 1:
        known = ", ".join(f"{s} {k}" for s, k in capture.stacks())
        raise EditError(f"this capture holds several stacks ({known}); say which with stack= and kind=")
    sites = [s for s in capture.select(stack, kind) if s.place.layer == layer]
    numbers = () if not sites else tuple(range(sites[0].n_heads)) if sites[0].heads is None else sites[0].heads
    if not sites or any(site.z is None for site in sites) or head not in numbers:
        raise EditError(f"the capture of '{capture.example.text[:40]}' kept no 'z' of layer {layer}, head {head}")
    if len(sites) > 1 and per_position:
        raise EditError(
            f"{sites[0].place} keeps {len(sites)} parts apart; positions are not shared: per_position=False"
        )
    return torch.cat([site.need("z")[0, numbers.index(head)] for site in sites])


def zero_value(token_index: Index, *, layers: Index = None, heads: Index = None, **where: str) -> Intervention:
    """Zero a token's value vectors; the weights on it stay as they are (value zeroing, Mohebbi 2023)."""
    made: dict[tuple[int, int], Tensor] = {}

    def factor(place: Place, n_heads: int, n_keys: int) -> Tensor:
        if (n_heads, n_keys) not in made:  # the layers of a stack mostly share one
            chosen = [0] if heads is None else positions(heads, n_heads, "head", place)
            keep = torch.ones(1 if heads is None else n_heads, n_keys)
            keep[torch.as_tensor(chosen)[:, None], positions(token_index, n_keys, "token", place)] = 0
            made[n_heads, n_keys] = keep
        return made[n_heads, n_keys]

    def change(site: Site) -> Site:
        value = site.need("value")
        return site.replace(value=value * factor(site.place, site.n_heads, value.shape[2])[None, :, :, None].to(value))

    name = f"zero the value of token {token_index}"
    return Intervention(name, change, numbers(layers, "layer"), **where, value_factor=factor)  # type: ignore[arg-type]


def knock_out(
    query_index: Index, key_index: Index, *, layers: Index = None, heads: Index = None, **where: str
) -> Intervention:
    """Cut edges from queries to keys (None: all): scores -inf before the softmax, which renormalises (Geva 2023).

    A mechanism without scores is asked again with a mask. Errors: `EditError` where it takes none, and where a query
    would be left with nothing to look at.
    """

    def change(site: Site) -> Site:
        weights = site.need("weights")
        queries = positions(query_index, weights.shape[2], "query", site.place)
        keys = positions(key_index, weights.shape[3], "key", site.place)
        cut = torch.zeros_like(weights[:1], dtype=torch.bool)
        cut[:, heads_of(heads, site)[:, None, None], queries[None, :, None], keys[None, None, :]] = True
        before = torch.ones_like(cut) if site.visible is None else site.visible.expand_as(weights)
        if bool((before.any(-1) & ~(before & ~cut).any(-1)).any()):
            raise EditError(f"{site.place}: the knock-out leaves a query with nothing to look at; leave it one key")
        return hide(site, cut, before & ~cut)  # what is cut stays hidden from the edits that follow

    name = f"knock out queries {query_index} to keys {key_index}"
    return Intervention(name, change, numbers(layers, "layer"), **where)  # type: ignore[arg-type]


def uniform(*, layers: Index = None, heads: Index = None, **where: str) -> Intervention:
    """Equal weights on all visible keys; the mass of each row stays what it was."""

    def change(site: Site) -> Site:
        def spread(weights: Tensor, visible: Tensor) -> Tensor:
            share = visible.to(weights.dtype)
            return share / share.sum(-1, keepdim=True).clamp(min=1) * weights.sum(-1, keepdim=True)

        return site.replace(weights=_on_heads(site, heads, spread))

    return Intervention("uniform attention", change, numbers(layers, "layer"), **where)  # type: ignore[arg-type]


def permute(*, seed: int, layers: Index = None, heads: Index = None, **where: str) -> Intervention:
    """Shuffle each row's weights among its visible keys, another shuffle for each row and head."""

    def change(site: Site) -> Site:
        generator = torch.Generator().manual_seed(seed + 1000 * site.layer)

        def shuffle(weights: Tensor, visible: Tensor) -> Tensor:
            # One draw for all batch rows, so that a row does not depend on what else is in its batch.
            noise = torch.rand(weights.shape[1:], generator=generator).to(weights.device).expand_as(weights)
            # Hidden keys sort last, so the n-th visible key trades places with a random visible one.
            order = (noise + (~visible) * 2).argsort(-1)
            places = (~visible).to(torch.uint8).argsort(dim=-1, stable=True)
            return torch.zeros_like(weights).scatter(-1, places, weights.gather(-1, order)) * visible

        return site.replace(weights=_on_heads(site, heads, shuffle))

    return Intervention(f"permuted attention, seed {seed}", change, numbers(layers, "layer"), **where)  # type: ignore[arg-type]


def replace_weights(
    layer: int, weights: Float[Tensor, "*part head query key"], *, heads: Index = None, **where: str
) -> Intervention:
    """Use the given weights [head query key] in one layer; [part head query key] where it keeps parts apart."""

    def change(site: Site) -> Site:
        first, n = site.place.part, site.n_parts
        given = weights[first : first + n] if weights.ndim == 4 else weights[None]
        expected = site.need("weights").shape[2:]
        if given.shape[2:] != expected or (weights.ndim == 3 and (first or n > 1)) or len(given) not in (1, n):
            parts = f" for each of its parts {first} to {first + n - 1}" if first or n > 1 else ""
            raise EditError(
                f"{site.place}: got weights of {tuple(weights.shape)}, expected {tuple(expected)} [query key]{parts}"
            )
        return site.replace(weights=_on_heads(site, heads, lambda old, _: _for_rows(given, old, n)))

    return Intervention("replaced weights", change, (layer,), **where)  # type: ignore[arg-type]


def patch(
    capture: Capture,
    tensor: str = "z",
    *,
    layers: Index = None,
    heads: Index = None,
    stack: str | None = None,
    kind: Kind | None = None,
) -> Intervention:
    """Take "z", "weights" or "value" from another capture of the same length (activation patching)."""
    if tensor not in ("z", "weights", "value"):
        raise EditError(f"patch takes z, weights or value from a capture, got '{tensor}'")
    donors = {_key(s.place, s.place.part): s.need(tensor)[:1].detach() for s in capture.sites}

    def change(site: Site) -> Site:
        place = site.place
        parts = [donors.get(_key(place, part)) for part in range(place.part, place.part + site.n_parts)]
        if any(part is None for part in parts):
            raise EditError(
                f"{place}: the capture to patch from holds no '{tensor}' of this layer, or not all its parts"
            )
        old = site.need(tensor)
        donor = torch.cat([part for part in parts if part is not None])
        if donor.shape[1:] != old.shape[1:]:
            raise EditError(
                f"{place}: the capture's '{tensor}' is {tuple(donor.shape[1:])}, here {tuple(old.shape[1:])}; "
                "patch between inputs of one length"
            )
        new = old.clone()
        head = heads_of(heads, site)
        new[:, head] = _for_rows(donor.to(old), old, site.n_parts)[:, head]
        return site.replace(**{tensor: new})

    return Intervention(
        f"patch {tensor} from '{capture.example.text[:40]}'", change, numbers(layers, "layer"), stack, kind
    )


def gate(gates: Float[Tensor, " head"], layer: int, **where: str) -> Intervention:
    """Scale what each head passes on by a gate that gradients reach (Michel 2019; 1 leaves the head as it is)."""

    def change(site: Site) -> Site:
        if gates.shape != (site.n_heads,):
            raise EditError(f"{site.place} has {site.n_heads} heads, got {tuple(gates.shape)} gates")
        return site.replace(weights=site.need("weights") * gates.to(site.need("weights"))[None, :, None, None])

    return Intervention("gates", change, (layer,), **where)  # type: ignore[arg-type]


def _key(place: Place, part: int) -> tuple[str, str, int, int]:
    return (place.stack, place.kind, place.layer, part)


def _for_rows(given: Tensor, old: Tensor, n_parts: int) -> Tensor:
    """[part head …] for every batch row of [row*part head …]; heads given once are for all."""
    rows = given.to(old).repeat(old.shape[0] // max(1, len(given)), 1, 1, 1) if len(given) == n_parts else given.to(old)
    return rows.expand(old.shape[0], old.shape[1] if rows.shape[1] == 1 else -1, -1, -1)


def _on_heads(site: Site, heads: Index, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """The weights with those of some heads changed: a function of them and of what these heads may look at."""
    weights, index = site.need("weights"), heads_of(heads, site)
    visible = torch.ones_like(weights, dtype=torch.bool) if site.visible is None else site.visible.expand_as(weights)
    return weights.index_copy(1, index.to(weights.device), change(weights[:, index], visible[:, index]))
