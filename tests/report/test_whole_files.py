"""Files take their place whole: what is stopped midway leaves the old one as it was, and nothing beside it."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from attnprobe import profile
from attnprobe.cli.study_file import save_study
from attnprobe.errors import InputError
from attnprobe.head_page import write_desk


@pytest.fixture
def full_disk(monkeypatch):
    """From now on writing a text or a table stops after its first letters, as on a disk that is full."""

    def stops(path, *_, **__):
        with Path(path).open("w", encoding="utf-8") as file:
            file.write("half")
        raise OSError(28, "No space left on device")

    def begin():
        monkeypatch.setattr(Path, "write_text", stops)
        monkeypatch.setattr(Path, "write_bytes", stops)
        monkeypatch.setattr(pd.DataFrame, "to_csv", lambda table, path, **options: stops(path))

    return begin


def test_a_study_that_cannot_be_saved_leaves_the_one_before(tmp_path, full_disk):
    file = tmp_path / "new" / "study.toml"
    save_study(file, "attnprobe/sentiment", tmp_path / "page.html", ())
    before = file.read_text("utf-8")
    assert 'model = "attnprobe/sentiment"' in before and 'out = "../page.html"' in before
    full_disk()
    with pytest.raises(InputError, match="cannot be written"):
        save_study(file, "another/model", tmp_path / "page.html", ())
    assert file.read_text("utf-8") == before and [one.name for one in file.parent.iterdir()] == ["study.toml"]


def test_a_desk_that_cannot_be_written_leaves_the_files_before(model, tmp_path, full_disk, monkeypatch):
    found = profile(model, ["the film is good", "bad plot"], progress=False)
    paths = write_desk(found, tmp_path / "desk")
    before = {path: path.read_bytes() for path in paths}
    monkeypatch.setattr(type(found), "save", lambda self, folder: Path(folder))  # which has tests of its own
    full_disk()
    with pytest.raises(InputError, match="cannot be written"):
        write_desk(replace(found, model="another"), tmp_path / "desk")
    assert {path: path.read_bytes() for path in paths} == before
    assert set((tmp_path / "desk").iterdir()) == set(paths)
