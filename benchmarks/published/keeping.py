"""Networks that were trained once, and tables that were measured once, read again: by name, under .cache/trends."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pandas as pd
from safetensors.torch import load_model, save_model
from torch import nn

FOLDER = Path(__file__).parents[2] / ".cache" / "trends"
Network = TypeVar("Network", bound=nn.Module)


def kept(name: str, fresh: Callable[[], Network], train: Callable[[], Network], folder: Path = FOLDER) -> Network:
    """The network of this name: read, or trained and written. fresh: the same network before training."""
    file = folder / f"{name}.safetensors"
    if file.exists():
        network = fresh()
        load_model(network, str(file))
        return network.eval()
    network = train()
    folder.mkdir(parents=True, exist_ok=True)
    half = file.with_suffix(".part")
    save_model(network, str(half))
    half.replace(file)
    return network


def kept_table(name: str, run: Callable[[], pd.DataFrame], folder: Path = FOLDER) -> pd.DataFrame:
    """The table of this name: read, or made and written, with the CPU seconds that it took (training included)."""
    file = folder / f"{name}.csv"
    if not file.exists():
        started = time.process_time()
        table = run()
        folder.mkdir(parents=True, exist_ok=True)
        half = file.with_suffix(".part")
        table.assign(seconds=time.process_time() - started).to_csv(half, index=False)
        half.replace(file)
    return pd.read_csv(file, keep_default_na=False, na_values={"value": ["", "nan"]})
