"""A small English sentiment classifier that ships with the package, and the script that trained it."""

from pathlib import Path


def bundled_folder() -> Path:
    """Folder of the bundled classifier; give it to `from_pretrained`.

    >>> bundled_folder().name
    'sentiment'
    """
    return Path(__file__).resolve().parent / "sentiment"
