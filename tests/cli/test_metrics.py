"""attnprobe metrics: the list is the registries, complete, for people and for programs."""

import json
import math
from collections.abc import Callable

import pytest

from attnprobe.cli.app import main
from attnprobe.metrics import REGISTRIES

ENTRIES = [registry[name] for registry in REGISTRIES for name in registry]


def test_the_list_for_programs_says_of_every_metric_what_the_registries_know(capsys: pytest.CaptureFixture[str]):
    assert main(["metrics", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [found["name"] for found in listed] == [entry.name for entry in ENTRIES]
    for found, entry in zip(listed, ENTRIES, strict=True):
        assert list(found)[:4] == ["name", "family", "description", "source"]
        assert (found["family"], found["description"]) == (entry.family, entry.description)
        for end in ("low", "high"):
            known = entry.facts[end]
            assert found[end] == (known if math.isfinite(known) else None)
        assert (found["better"], found["default"]) == (entry.facts["better"], entry.facts["default"])
        assert list(found["options"]) == list(entry.options)


def test_the_list_for_people_names_every_metric(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["metrics"]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0].split() == ["name", "family", "what", "it", "measures"] and max(map(len, lines)) <= 120
    for entry in ENTRIES:
        assert [line for line in lines if line.startswith(entry.name + " ") and f" {entry.family} " in line]
        assert entry.source[:30] in " ".join(shown.split())


def test_a_format_that_is_not_there_is_one_message(refused: Callable[..., str]):
    assert 'Choose from: "table", "json", "csv"' in refused("metrics", "--format", "yaml")
