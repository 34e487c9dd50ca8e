"""What the README and ARCHITECTURE say works as they say it."""

import doctest
import re
from pathlib import Path

import pytest

from attnprobe.cli.app import main

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_readmes_python_prints_what_it_says(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    space: dict[str, object] = {}  # a reader goes on where the block before ended
    for block in BLOCK.findall((ROOT / "README.md").read_text("utf-8")):
        test = doctest.DocTestParser().get_doctest(block, {}, "README.md", "README.md", 0)
        test.globs = space
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        runner.run(test, clear_globs=False)
        assert runner.summarize(verbose=False).failed == 0


def test_a_method_is_added_in_one_file_by_following_the_architecture_alone(capsys):
    """The page's own example: it is in the command line, runs under the tests of every method, and is compared."""
    import json

    from attnprobe import compare, load
    from attnprobe.methods import methods

    (block,) = BLOCK.findall((ROOT / "ARCHITECTURE.md").read_text("utf-8"))
    space: dict[str, object] = {"__name__": "attnprobe.methods.loudest_head"}
    try:
        exec(block, space)
        assert main(["methods", "--format", "json"]) == 0
        listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
        assert listed["loudest_head"]["description"].startswith("Largest weight of any head")
        comparison = compare(load("attnprobe/sentiment"), "a good film", ["loudest_head"], n_random=2, progress=False)
        assert comparison.methods == ("loudest_head",) and comparison.failures.empty
    finally:
        methods._entries.pop("loudest_head", None)
