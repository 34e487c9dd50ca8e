"""HeadProfile: a row a head, a column a score, with what each score is, how sure it is, and what failed."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.errors import InputError, nearest
from attnprobe.intervals import over_columns

PLACE = ("stack", "kind", "layer", "head")


@dataclass(frozen=True)
class Told:
    """What a column of a profile is. form: "score" or "effect" (measured on every example), or "probe" (once)."""

    form: str
    family: str
    source: str
    description: str
    label: str
    low: float | int | None
    high: float | int | None
    unit: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class HeadProfile:
    """What each head of a model does on some examples.

    heads: stack, kind, layer, head of each head. values: by score [example head]; NaN where it has no meaning or
    failed; a probe has one row. facts: what each score is, by name. targets: what effects explained, one an example.
    warnings: what failed or warned, with the example (counted from 0) and the score.
    """

    model: str
    heads: pd.DataFrame = field(repr=False)
    values: Mapping[str, Float[np.ndarray, "example head"]] = field(repr=False)
    facts: Mapping[str, Told] = field(repr=False)
    targets: tuple[str, ...] = field(default=(), repr=False)
    warnings: tuple[str, ...] = ()
    n_resamples: int = 1000
    seed: int = 0

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.values)

    @property
    def n_examples(self) -> int:
        """Number of examples, those that failed included."""
        return len(self.targets)

    def to_frame(self) -> pd.DataFrame:
        """Wide: a row a head, stack, kind, layer, head, n (examples that gave a number) and the mean of each score."""
        means = {name: _mean(rows) for name, rows in self.values.items()}
        known = [~np.isnan(rows) for name, rows in self.values.items() if self.facts[name].form != "probe"]
        n = np.any(known, axis=0).sum(0) if known else np.zeros(len(self.heads), dtype=int)
        return pd.concat([self.heads, pd.DataFrame({"n": n, **means})], axis=1)

    def long(self, *, examples: bool = False) -> pd.DataFrame:
        """Long: a row a head and score: mean, low, high (95 % bootstrap over examples) and n, then what the score is.

        examples: a row an example, head and score (example_index, value) instead; probes, which have none, are left
        out. No interval of probes, nor below 6 examples.
        """
        parts = [self._by_example(name) if examples else self._means(name) for name in self.values]
        frame = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
        first = (["example_index"] if examples else []) + [*PLACE, "score"]
        return frame[first + [column for column in frame if column not in first]]

    def _means(self, name: str) -> pd.DataFrame:
        told = self.facts[name]
        found = over_columns(self.values[name], n_resamples=self.n_resamples, seed=self.seed)
        numbers = {fact: [getattr(one, fact) for one in found] for fact in ("mean", "low", "high", "n")}
        facts = {"form": told.form, "family": told.family, "label": told.label, "unit": told.unit}
        return self.heads.assign(score=name, **numbers, **facts)

    def _by_example(self, name: str) -> pd.DataFrame:
        rows = self.values[name] if self.facts[name].form != "probe" else self.values[name][:0]
        whole = pd.concat([self.heads] * len(rows), ignore_index=True) if len(rows) else self.heads[:0]
        index = np.repeat(np.arange(len(rows)), len(self.heads))
        return whole.assign(example_index=index, score=name, value=rows.reshape(-1))

    def top(self, score: str, k: int = 5, *, lowest: bool = False) -> pd.DataFrame:
        """The k heads with the highest (or lowest) mean of a score, with intervals; of an effect, by its size.

        Heads without a number are none; where no head has one, the warnings say why.
        """
        if score not in self.values:
            raise InputError(f"the profile has no score '{score}'; {nearest(score, self.scores)}")
        if k < 1:
            raise InputError(f"k is at least 1, got {k}")
        rows = self._means(score).dropna(subset=["mean"])
        size = abs if self.facts[score].form == "effect" else None
        rows = rows.sort_values("mean", ascending=lowest, kind="stable", ignore_index=True, key=size)
        return rows.head(k)[[*PLACE, "score", "mean", "low", "high", "n"]]

    def save(self, folder: str | Path) -> Path:
        """Write profile.json and values.csv (a row an example and head; probes under example -1) into a folder."""
        folder = Path(folder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"the folder {folder} cannot be made: {error.strerror}; a file may be in the way"
            ) from error
        record = {
            "model": self.model,
            "facts": {name: asdict(told) for name, told in self.facts.items()},
            "targets": self.targets,
            "warnings": self.warnings,
            "n_resamples": self.n_resamples,
            "seed": self.seed,
        }
        (folder / "profile.json").write_text(json.dumps(record, ensure_ascii=False, indent=1), encoding="utf-8")
        _table(self).to_csv(folder / "values.csv", index=False)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "HeadProfile":
        """Read what `save` wrote."""
        folder = Path(folder)
        try:
            record = json.loads((folder / "profile.json").read_text(encoding="utf-8"))
            table = _read(folder / "values.csv")
            facts = {name: Told(**told) for name, told in record["facts"].items()}
            heads = table[list(PLACE)].drop_duplicates(ignore_index=True)
            values = {name: _values_of(table, name, told.form, len(heads)) for name, told in facts.items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{folder} does not hold a whole profile ({error}); give what HeadProfile.save wrote"
            ) from error
        return cls(
            record["model"], heads, values, facts, tuple(record["targets"]), tuple(record["warnings"]),
            record["n_resamples"], record["seed"],
        )  # fmt: skip


ONCE = -1  # the example_index of probes in a file


def _mean(rows: Float[np.ndarray, "example head"]) -> Float[np.ndarray, " head"]:
    """Mean of what is known in each column, NaN of nothing."""
    known = ~np.isnan(rows)
    total = np.where(known, rows, 0.0).sum(0)
    return np.where(known.any(0), total / np.maximum(known.sum(0), 1), np.nan)


def _table(profile: HeadProfile) -> pd.DataFrame:
    """Every number: a row an example and head, a column a score."""
    n = len(profile.heads)
    blank = np.full((1, n), np.nan)
    parts = []
    for index in [ONCE, *range(profile.n_examples)]:
        columns = {}
        for name, rows in profile.values.items():
            mine = (profile.facts[name].form == "probe") == (index == ONCE)
            columns[name] = (rows[[max(index, 0)]] if mine else blank)[0]
        parts.append(profile.heads.assign(example_index=index, **columns))
    return pd.concat(parts, ignore_index=True)


def _read(path: Path) -> pd.DataFrame:
    """The table of a file: numbers digit by digit as they were written, an empty field is NaN."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    for name in table.columns:
        if name in ("example_index", "layer", "head"):
            table[name] = table[name].astype(int)
        elif name not in PLACE:
            table[name] = [float(text) if text else np.nan for text in table[name]]
    return table


def _values_of(table: pd.DataFrame, name: str, form: str, n_heads: int) -> Float[np.ndarray, "example head"]:
    rows = table[(table.example_index == ONCE) == (form == "probe")]
    return rows[name].to_numpy(dtype=float).reshape(-1, n_heads)
