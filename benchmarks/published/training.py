"""Training with uniform attention, trained twins, and the diagnostic network (Wiegreffe & Pinter 2019)."""

import pandas as pd

from attnprobe.experiments.diagnostic import diagnostic_network
from attnprobe.experiments.twins import trained_twins
from benchmarks.published.readers import ENCODERS, TASKS, accuracy, held_out, reader

# λ of the twin that the diagnostic network takes its adversarial weights from.
DIAGNOSED = 0.01
LAMBDAS = (0.0, 1e-3, 1e-2, 0.1, 1.0)
COLUMNS = ["example_index", "variant", "measure", "value"]


def measure(seed: int, n_texts: int) -> pd.DataFrame:
    """All of it for one seed: experiment, task, encoder, example_index, variant, measure, value."""
    rows = []
    for task in TASKS:
        texts = held_out(task, 1000)
        for encoder in ENCODERS:
            for looks in ("learned", "uniform"):
                right = accuracy(reader(task, encoder, seed, looks), texts)
                rows.append(("uniform", task, encoder, -1, looks, "right", right))
    found = [pd.DataFrame(rows, columns=["experiment", "task", "encoder", *COLUMNS])]
    for encoder in ENCODERS:
        base = reader("order", encoder, seed)
        twins = trained_twins(base, lambdas=LAMBDAS, encoder=encoder, n_texts=n_texts, seed=seed)
        found.append(twins.values[COLUMNS].assign(experiment="twins", task="order", encoder=encoder))
        if encoder == "recurrent":
            network = diagnostic_network(base, twins.twins[DIAGNOSED], n_texts=n_texts, seed=seed)
            found.append(network.values[COLUMNS].assign(experiment="diagnostic", task="order", encoder="average"))
    return pd.concat(found, ignore_index=True)
