"""Random numbers for code of others that draws from the global generators of torch and NumPy."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_GENERATORS = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within the block the global generators start from `seed`; behind it they are as they were.

    They are lent to one thread at a time: a second one waits.
    """
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with _GENERATORS, torch.random.fork_rng(devices=devices):
        drawn = np.random.get_state()
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            np.random.set_state(drawn)
