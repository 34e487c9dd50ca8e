"""What lies around a command: other libraries' noise, the network, the device."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from attnprobe.errors import InputError

# Read by the libraries when they are first imported, which is after this.
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}


@contextmanager
def quiet() -> Iterator[None]:
    """Within the block, libraries neither warn nor show bars; what matters of it is in the results."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def load(name: str, *, device: str | None = None, dtype: str | None = None) -> Any:
    """The model of a Hub id or folder, where it is to run; `InputError` within seconds where it cannot be had."""
    from attnprobe.models import load as load_model

    if device is not None:
        _check_device(device)
    given = {"device": device, "dtype": dtype}
    return load_model(name, **{key: value for key, value in given.items() if value is not None})


def _check_device(device: str) -> None:
    import torch

    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).split("\n", 1)[0][:120]
        raise InputError(f"the device '{device}' is not there ({reason}); known here: {_devices(torch)}") from error


def _devices(torch: Any) -> str:
    found = ["cpu"]
    found += [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    found += ["mps"] if torch.backends.mps.is_available() else []
    return ", ".join(found)
