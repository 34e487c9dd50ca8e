"""Folders of real pretrained models, for tests marked `real`; they skip where a model was not fetched."""

from pathlib import Path

import pytest

from tests.real.fetch import RXNFP, RXNMAPPER, Package


def _folder(package: Package) -> Path:
    if not package.folder.is_dir():
        pytest.skip(f"{package} was not fetched: run `python tests/real/fetch.py` with a package registry in reach")
    return package.folder


@pytest.fixture(scope="session")
def rxnmapper_folder() -> Path:
    """ALBERT, 12 layers of 8 heads, masked tokens of reaction SMILES; layer index 10, head 5 maps atoms."""
    return _folder(RXNMAPPER)


@pytest.fixture(scope="session")
def rxnfp_folder() -> Path:
    """BERT, 12 layers of 4 heads, 50 classes of reactions (the config says 2: set `num_labels` first)."""
    return _folder(RXNFP)
