"""The seam as own code calls it: what a place says of a part."""

import pytest
import torch
from torch import Tensor, nn

from attnprobe.attention.scores import scaled_dot_product_attention
from attnprobe.attention.seam import Keep, Tape, observe, recording, running
from attnprobe.intervention import Intervention
from attnprobe.site import Place, Site


class Windows(nn.Module):
    """Attention within windows of two tokens, each a part of one layer."""

    def __init__(self, name: str = "window") -> None:
        super().__init__()
        self.name = name

    def forward(self, x: Tensor) -> Tensor:
        tape = running()
        if tape is not None:
            tape.begin_run(self)
        return torch.cat([self.within(window) for window in x.split(2, dim=2)], dim=2)

    def within(self, x: Tensor) -> Tensor:
        def build(place: Place) -> Site:
            return Site(place, x, x, x, *scaled_dot_product_attention(x, x, x))

        return observe(self, build, name=self.name)


def places(name: str, n_runs: int = 1) -> list[Place]:
    module, x = Windows(name), torch.randn(1, 1, 6, 3)
    with recording(Tape(keep=Keep.of("weights"))) as tape:
        for _ in range(n_runs):
            module(x)
    assert [site.place for site in tape.sites] == tape.seen
    return tape.seen


def test_a_name_is_in_the_place_of_every_part_and_in_its_words():
    found = places("window", n_runs=2)
    assert [(place.layer, place.part, place.name) for place in found] == [
        (layer, part, "window") for layer in range(2) for part in range(3)
    ]
    assert str(found[4]) == "model self-attention layer 1 (root, call 1, part 1, window)"


def test_a_part_without_a_name_says_nothing():
    assert {place.name for place in places("")} == {""}
    assert str(places("")[1]) == "model self-attention layer 0 (root, part 1)"


def test_an_edit_may_tell_parts_by_their_name():
    seen: list[str] = []
    edit = Intervention("note", lambda site: seen.append(site.place.name) or site.replace(value=site.value * 2))
    with recording(Tape([edit])):
        Windows()(torch.randn(1, 1, 4, 3))
    assert seen == ["window", "window"]


@pytest.mark.parametrize("cross", [False, True])
def test_where_nobody_listens_the_site_that_is_built_has_the_name_too(cross: bool):
    found: list[Place] = []

    def build(place: Place) -> Site:
        found.append(place)
        return Site(place, z=torch.zeros(1, 1, 1, 1))

    observe(nn.Identity(), build, cross=cross, name="step")
    assert [(place.name, place.kind) for place in found] == [("step", "cross" if cross else "self")]
