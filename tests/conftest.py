"""What holds for every test: no network, no screen, the same random numbers."""

import os
from collections.abc import Iterator

os.environ["HF_HUB_OFFLINE"] = "1"  # before anything imports huggingface_hub
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import hypothesis
import pytest
import torch

from tests.browser import browser as browser  # fixtures, for every test that asks
from tests.browser import chromium as chromium

# Tiny models gain nothing from threads, and lose much where other work runs beside the tests.
torch.set_num_threads(1)

hypothesis.settings.register_profile("house", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("house")


@pytest.fixture(autouse=True)
def same_random_numbers() -> Iterator[None]:
    """Each test starts from one seed and leaves the global generator as it found it."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
