"""attnprobe mechanisms: the list is the registry, complete, for people and for programs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.cells import cell_len

from attnprobe.attention.mechanisms import ASKED, Mechanism, mechanisms
from attnprobe.attention_swap import changes
from attnprobe.cli.app import main
from attnprobe.errors import InputError


@pytest.fixture
def printed(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What the command prints on a terminal of some width; nothing is written."""

    def run(*words: str, columns: int = 120) -> str:
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["mechanisms", *words]) == 0
        assert list(here.iterdir()) == []
        return capsys.readouterr().out

    return run


def test_the_list_for_programs_says_of_every_mechanism_what_the_registry_knows(printed: Callable[..., str]):
    listed = json.loads(printed("--format", "json"))
    only_swapped = [name for name in changes if name not in mechanisms]
    assert {"sparsemax", "temperature", "local_window"} <= set(only_swapped)
    assert [entry["name"] for entry in listed] == [*mechanisms, *only_swapped]
    assert [entry["name"] for entry in listed if entry["used_by"] == "swap"] == only_swapped
    for entry in listed:
        known = (mechanisms if entry["name"] in mechanisms else changes)[entry["name"]]
        assert list(entry)[:4] == ["name", "family", "description", "source"]
        assert (entry["family"], entry["description"], entry["source"]) == (
            known.family,
            known.description,
            known.source,
        )
        assert entry["options"] == {name: value for name, value in known.options.items() if name not in ASKED}
        if entry["name"] in mechanisms:
            assert all(entry[fact] == known.facts[fact] for fact in ("formula", "meaning", "cost"))


@pytest.mark.parametrize("name", list(mechanisms))
def test_what_is_said_of_mask_bias_and_row_sums_is_what_the_mechanism_does(printed: Callable[..., str], name: str):
    (entry,) = (entry for entry in json.loads(printed("--format", "json")) if entry["name"] == name)
    mechanism, x = Mechanism.of(name), torch.randn(5, 4, dtype=torch.float64)
    masks = {"takes_mask": {"visible": torch.ones(5, 5).tril().bool()}, "takes_bias": {"bias": torch.zeros(5, 5)}}
    for said, given in masks.items():
        if entry[said]:
            assert mechanism.z(x, x, x, **given).shape == x.shape
        else:
            with pytest.raises(InputError, match=name):
                mechanism.z(x, x, x, **given)
    if entry["row_sum"] == "one":
        assert (mechanism.weights(x, x).sum(-1) - 1).abs().max() < 1e-10


@pytest.mark.parametrize("columns", [100, 120])
def test_the_list_for_people_names_every_mechanism_and_keeps_to_the_terminal(printed: Callable[..., str], columns: int):
    shown = printed(columns=columns)
    lines, unwrapped = shown.splitlines(), " ".join(shown.split())
    assert lines[0].split() == ["name", "family", "what", "it", "does"]
    assert max(map(cell_len, lines)) <= columns  # combining marks take no room
    for name, entry in mechanisms.items():
        assert [line for line in lines if line.startswith(f"{name} ") and f" {entry.family} " in line]
        assert f"Source: {entry.source}" in unwrapped
        assert f"Formula: {entry.facts['formula']}" in unwrapped
        assert f"A weight is: {entry.facts['meaning']}" in unwrapped
    assert shown.count("Cost: ") - 1 == len(mechanisms)  # Cost is explained at the end
    assert shown.count("Options:") == len({*mechanisms, *changes})


def test_a_format_that_is_not_there_is_one_message(refused: Callable[..., str]):
    assert 'Choose from: "table", "json", "csv"' in refused("mechanisms", "--format", "yaml")
