"""The head that comes with attnprobe: one run of the training, kept because another machine need not reach it again.

Training is chaotic: a start that differs by one rounding can end in another head, and so can another order of
summation. Of the starts 0, 1, 2, … roundings away from that of seed 0 it is the first whose three weights come near
those of the published figure: chosen to show that figure, not as typical of such runs.

                      figure    stored head
    rights → beings   1.0       0.998
    beings → rights   0.0       0.000
    all    → are      0.94      0.959        loss 1.6e-5 nats a word
"""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from attnprobe.models.declaration.head import untrained
from attnprobe.models.declaration.training import Trained, measured

FILE = Path(__file__).with_name("head.safetensors")


def stored_head() -> Trained:
    """The stored head, measured anew; its curve is empty."""
    network = untrained()
    network.load_state_dict(load_file(FILE))
    with safe_open(FILE, "pt") as file:
        said = file.metadata()
    made = {"seed": int(said["seed"]), "gradient": said["gradient"], "roundings": int(said["roundings"])}
    return measured(network, torch.zeros(0), **made)


def keep(trained: Trained, file: Path = FILE) -> None:
    """Write a head, and from which start it was trained."""
    facts = {"seed": str(trained.seed), "gradient": trained.gradient, "roundings": str(trained.roundings)}
    save_file({name: matrix.contiguous() for name, matrix in trained.network.state_dict().items()}, file, facts)
