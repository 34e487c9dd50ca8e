"""What holds for every test: no network, no screen, the same random numbers."""

import gc
import os
import sys
from collections.abc import Generator, Iterator

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import hypothesis
import pytest
import torch

from tests import checking
from tests.browser import browser as browser  # fixtures, for every test that asks
from tests.browser import chromium as chromium

checking.install()  # nothing above imports the package

# Tiny models gain nothing from threads, and lose much where other work runs beside the tests.
torch.set_num_threads(1)

hypothesis.settings.register_profile("house", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("house")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported while tests are found stays: looking through it for garbage again and again takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def same_random_numbers() -> Iterator[None]:
    """Each test starts from one seed and leaves the global generator as it found it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


@pytest.fixture(autouse=True, scope="module")
def shared_models_stay_as_they_were() -> Iterator[None]:
    """Fails behind a file of tests that changed a model which others use too."""
    yield
    if "tests.tiny" in sys.modules:  # where a file needs none, transformers is not imported for this
        from tests import tiny

        assert not (changed := tiny.changed()), changed
