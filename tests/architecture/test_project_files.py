"""What the project's own files say of themselves: the drawn tree is the real one, and nothing is tied to a machine."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, ROOT

HOME_OF_SOMEBODY = re.compile(r"(?:^|[^A-Za-z0-9_.])/(?:farm|home|root|work|Users)/[A-Za-z0-9_.-]*")
REGISTRY = re.compile(r"py[p]i\.org|python[h]osted\.org|npm[j]s\.(?:org|com)|download\.py[t]orch")  # not itself
PAGES_WITH_A_TREE = ("ARCHITECTURE.md",)


def tracked() -> list[Path]:
    """The text files that git keeps, or would keep."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if answer.returncode:
        pytest.skip(f"not a git checkout: {answer.stderr.strip()}")
    return [ROOT / name for name in answer.stdout.splitlines() if (ROOT / name).is_file()]


def matches(pattern: re.Pattern[str]) -> list[str]:
    """Where a pattern occurs in the project's text files."""
    found = []
    for file in tracked():
        try:
            lines = file.read_text("utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        found += [f"{file.relative_to(ROOT)}:{n}" for n, line in enumerate(lines, 1) if pattern.search(line)]
    return found


def drawn_tree(page: str) -> set[str]:
    """The paths in the page's first block that begins with `attnprobe/`, one folder deeper by two columns more.

    A line holds one or more names, then two spaces and what they are for. A line without a name of a file or
    folder is a heading.

    >>> lines = ["```", "attnprobe/", "2 floor", "  cli/   commands", "    app.py  one", "  a.py b.py  c.py", "```"]
    >>> sorted(drawn_tree("\\n".join(lines)))
    ['attnprobe/a.py', 'attnprobe/b.py', 'attnprobe/cli', 'attnprobe/cli/app.py']
    """
    block = re.search(r"^```\w*\nattnprobe/.*?\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    paths: set[str] = set()
    above = [(-1, "attnprobe")]
    for line in block.group(1).splitlines() if block else ():
        bare = re.sub(r"[│├└─]", " ", line)
        indent = len(bare) - len(bare.lstrip())
        names = [name for name in re.split(r"\s{2,}", bare.strip())[0].split() if re.search(r"/$|\.\w+$", name)]
        above = [(column, folder) for column, folder in above if column < indent or column < 0]
        for name in names:
            paths.add(f"{above[-1][1]}/{name.rstrip('/')}")
        if names and names[-1].endswith("/"):
            above.append((indent, f"{above[-1][1]}/{names[-1].rstrip('/')}"))
    return paths


@pytest.mark.parametrize("page", PAGES_WITH_A_TREE)
def test_the_drawn_tree_is_the_real_one(page: str):
    drawn = drawn_tree((ROOT / page).read_text("utf-8")) if (ROOT / page).is_file() else set()
    assert drawn, f"{page} draws no tree"
    assert {path for path in drawn if not (ROOT / path).exists()} == set()
    real = {f"attnprobe/{entry.name}" for entry in PACKAGE.iterdir() if entry.name not in ("__pycache__", "py.typed")}
    assert {path for path in real if path.endswith(".py") or (ROOT / path).is_dir()} - drawn == set()


def test_no_file_names_a_folder_of_somebodys_machine():
    assert matches(HOME_OF_SOMEBODY) == []


def test_no_file_names_a_package_registrys_host():
    assert matches(REGISTRY) == []


def test_the_project_file_the_package_and_the_changelog_agree_on_the_version():
    import attnprobe

    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert attnprobe.__version__ == version
    assert f"## [{version}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")
