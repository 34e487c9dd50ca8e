"""Texts from files: what is said of a file that is not there."""

from pathlib import Path

import pytest

from attnprobe.cli.options import TextOptions
from attnprobe.cli.texts import read_texts
from attnprobe.errors import InputError


def test_the_hint_for_a_missing_file_keeps_the_folder_as_it_was_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "texts.csv").write_text("text\na\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as told:
        read_texts(TextOptions(file=Path("data/text.csv")))
    assert str(told.value) == f"there is no file {Path('data/text.csv')}; did you mean '{Path('data/texts.csv')}'?"
