"""Where files go: asked before any work, in the same words wherever something is saved."""

from pathlib import Path

import pytest

from attnprobe import profile
from attnprobe.cli.places import check_folder, check_place
from attnprobe.errors import InputError
from attnprobe.placing import check_takes_files, made
from attnprobe.report import check_writable
from tests import tiny


def capture_of_ids(folder):
    model = tiny.loaded("bert")
    return model.capture(model.example(tiny.IDS)).save(folder)


def profile_of_ids(folder):
    model = tiny.loaded("bert")
    return profile(model, [model.example(tiny.IDS)], ["entropy"], []).save(folder)


@pytest.mark.parametrize(
    "save",
    [
        made,
        capture_of_ids,
        profile_of_ids,
        check_folder,
        lambda folder: check_takes_files(folder, folder),
        lambda folder: check_place(folder / "a.png", (".png",)),
        lambda folder: check_writable(folder / "a.html"),
    ],
)
def test_a_file_in_the_way_and_a_place_that_takes_nothing_are_named(save, tmp_path):
    (tmp_path / "file").write_text("kept", "utf-8")
    with pytest.raises(InputError, match=r"cannot be written: .*file is a file; choose another place"):
        save(tmp_path / "file" / "folder")
    if Path("/proc/self").is_dir():
        with pytest.raises(InputError, match=r"cannot be written: /proc takes no files .*choose another place"):
            save(Path("/proc/none"))
    assert (tmp_path / "file").read_text("utf-8") == "kept" and len(list(tmp_path.iterdir())) == 1
