"""What lies around a command: other libraries' noise, the network, the device."""

import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from attnprobe.errors import InputError

# Read by the libraries when they are first imported, which is after this.
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
SECONDS_FOR_THE_HUB = 3.0


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
    from attnprobe.models import BUNDLED
    from attnprobe.models import load as load_model

    if device is not None:
        _check_device(device)
    if name != BUNDLED and not Path(name).exists() and not _hub_answers():
        os.environ["HF_HUB_OFFLINE"] = "1"
    given = {"device": device, "dtype": dtype}
    return load_model(name, **{key: value for key, value in given.items() if value is not None})


def _hub_answers() -> bool:
    """Whether the Hub can be reached: its own client tries for half a minute before it gives up."""
    if os.environ.get("HF_HUB_OFFLINE") or any(os.environ.get(name) for name in PROXIES):
        return True  # the client knows better
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    port = address.port or (80 if address.scheme == "http" else 443)
    try:
        socket.create_connection((address.hostname or "", port), timeout=SECONDS_FOR_THE_HUB).close()
    except OSError:
        return False
    return True


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
