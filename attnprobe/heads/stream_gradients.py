"""What an answer owes to the streams of a network, and to what single heads read from them: gradients of one pass."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.heads.streams import Reading, Stream
from attnprobe.models.model import Model
from attnprobe.site import Site

# How far two ways to the same number may differ, of the largest one; parts of float64 models work in float32 inside.
TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3}

INSTEAD = "edges need layers that only add to one stream; ask for nodes: attribution_patching, indirect_effect"


class Backward:
    """Gradients of one answer: with respect to streams, and of single heads with respect to what they read."""

    def __init__(self, model: Model, answer: Tensor, streams: Sequence[Stream], sites: Sequence[Site]) -> None:
        self.model = model
        readings = [reading for stream in streams for reading in stream.readings]
        wanted = [t for r in readings for t in (r.states, r.given)]
        wanted += [
            t for r in readings for crossing in (*r.outputs, *r.norms) for t in (crossing.given, crossing.output)
        ]
        wanted += [s.end for s in streams if s.end is not None]
        wanted += [t for site in sites for t in (site.z, site.weights, site.query) if t is not None]
        wanted = list({id(t): t for t in wanted if t.requires_grad}.values())
        found = torch.autograd.grad(answer, wanted, retain_graph=True, allow_unused=True)
        self.known = {id(t): g for t, g in zip(wanted, found, strict=True) if g is not None}
        self.parts: dict[int, Tensor] = {}  # what single heads account for, by the tensor that they read

    def of(self, tensor: Tensor | None) -> Tensor:
        """The gradient with respect to a tensor; zeros where it does not reach the answer."""
        if tensor is None:
            raise InputError(f"{self.model.name}: states were not seen; {INSTEAD}")
        return self.known.get(id(tensor), torch.zeros_like(tensor))

    def of_head(self, site: Site, head: int, reading: Reading, source: Tensor | None) -> dict[str, Tensor]:
        """Gradient of the answer with respect to what queries, keys and values of one head read."""

        def through(name: str, given: Tensor) -> Tensor:
            start = self._live(site, name)
            only = torch.zeros_like(start)
            if id(start) in self.known:
                only[:, head] = self.known[id(start)][:, head]
            (found,) = torch.autograd.grad(start, given, only, retain_graph=True, allow_unused=True)
            return torch.zeros_like(given) if found is None else found

        q = through("query", reading.given)
        if source is None:
            whole, matched = (through(name, reading.given) for name in ("z", "weights"))
            self._account(reading.given, whole)
            return {"q": q, "k": matched - q, "v": whole - matched}
        # What is looked at has also reached the queries, by the cross-attention of layers before.
        whole, matched, asked = (through(name, source) for name in ("z", "weights", "query"))
        self._account(reading.given, q)
        self._account(source, whole - asked)
        return {"q": q, "k": matched - asked, "v": whole - matched}

    def _live(self, site: Site, name: str) -> Tensor:
        tensor: Tensor | None = getattr(site, name)
        reached = id(tensor) in self.known or id(site.z) not in self.known
        if tensor is None or not tensor.requires_grad or not reached:
            raise InputError(f"{self.model.name}: no gradient reaches the {name} of {site.place}; {INSTEAD}")
        return tensor

    def _account(self, given: Tensor, gradient: Tensor) -> None:
        self.parts[id(given)] = self.parts.get(id(given), torch.zeros_like(given)) + gradient

    def rest(self, given: Tensor) -> Tensor:
        """The gradient with respect to states by all that reads them but queries, keys and values."""
        whole = self.of(given)
        return whole - self.parts.get(id(given), torch.zeros_like(whole))

    def check_all(self, given: Tensor | None, where: str) -> None:
        """Raise where something else than queries, keys and values reads these states."""
        whole = self.of(given)
        if given is not None and not is_nothing(self.rest(given), whole):
            raise InputError(
                f"{self.model.name}: queries, keys and values are not all that reads the stream {where}; {INSTEAD}"
            )

    def check_skips(self, stream: Stream) -> None:
        """Raise where what comes out of a part is more than what went in and what the part added."""
        for at, reading in enumerate(stream.readings):
            readings = (reading.states, reading.given, stream.after(at))
            whole, here, after = (by_row(self.of(states), reading) for states in readings)
            added = [by_row(self.of(crossing.output), reading) for crossing in reading.outputs]
            if not all(is_nothing(rest, whole) for rest in (whole - here - after, *(after - one for one in added))):
                raise InputError(
                    f"{self.model.name}: layer {reading.layer} of '{stream.name}' does more than add to its stream (a "
                    f"scale, a sum that its own readers see); {INSTEAD}"
                )

    def check_heads(
        self, site: Site, reading: Reading, after: Tensor, W_O: Float[Tensor, "head d_value d_model"]
    ) -> None:
        """Raise where the answer owes heads something else than what they write to the stream."""
        into = by_row(self.of(reading.outputs[0].given if reading.outputs else after), reading)
        z = self.of(site.z)
        if not is_nothing(z - into[:, None] @ W_O.to(into).mT, z):
            raise InputError(
                f"{self.model.name}: what the heads of {site.place} write does not go to the stream as it is (a scale, "
                f"a gate or another way comes behind it); {INSTEAD}"
            )


def by_row(states: Tensor, reading: Reading) -> Float[Tensor, "row token d_model"]:
    """States, or a gradient, row by row, where a layer lays the rows end to end."""
    return states.reshape(reading.shape)


def is_nothing(rest: Tensor, whole: Tensor) -> bool:
    """Whether what is left is rounding."""
    size = float(whole.detach().abs().max())
    return float(rest.detach().abs().max()) <= TOLERANCE.get(rest.dtype, 5e-2) * size + 1e-12
