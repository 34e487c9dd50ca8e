"""HeadProfile: a row a head, a column a score, with what each score is, how sure it is, and what failed."""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.errors import InputError, nearest
from attnprobe.heads.spoken import OF_TARGET
from attnprobe.intervals import over_columns
from attnprobe.placing import made

PLACE = ("stack", "kind", "layer", "head")


@dataclass(frozen=True)
class Told:
    """What a column of a profile is. form: "score" or "effect" (measured on every example), or "probe" (once).

    sign: what an effect above 0 means. needs: without what a score has no number.
    """

    form: str
    family: str
    source: str
    description: str
    label: str
    low: float | int | None
    high: float | int | None
    unit: str
    options: Mapping[str, Any] = field(default_factory=dict)
    sign: str = ""
    needs: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class HeadProfile:
    """What each head of a model does on some examples.

    heads: stack, kind, layer, head of each head. values: by score [example head]; NaN where it has no meaning or
    failed; a probe has one row. facts: what each score is, by name. targets: what effects explained, one an example.
    warnings: what failed or warned, with the example (counted from 0) and the score. chance: by score, for each head
    what attention spread evenly over the same tokens scores; NaN where there is no such number, as of effects.
    target_unit: in what effects are measured, "" without any. texts: of the examples.
    """

    model: str
    heads: pd.DataFrame
    values: Mapping[str, Float[np.ndarray, "example head"]]
    facts: Mapping[str, Told]
    targets: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    n_resamples: int = 1000
    seed: int = 0
    chance: Mapping[str, Float[np.ndarray, " head"]] = field(default_factory=dict)
    target_unit: str = OF_TARGET
    texts: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The model, its heads, on how many examples, and the scores; then those without a number, and why."""
        silent = {name: self.reason(name) for name in self.scores if self.reason(name)}
        stacks = self.heads[["stack", "kind"]].drop_duplicates().itertuples(index=False)
        where = " and ".join(f"{stack} {kind}-attention" for stack, kind in stacks)
        n, n_warnings = self.n_examples, len(self.warnings)
        lines = [f"HeadProfile of {self.model}: {len(self.heads)} heads of {where}, {n} example{'s' * (n != 1)}",
                 f"scores: {', '.join(name for name in self.scores if name not in silent) or 'none'}"]  # fmt: skip
        lines += [f"no number: {', '.join(silent)} (reason(name) says why)"] * bool(silent)
        lines += [f"{n_warnings} warning{'s' * (n_warnings != 1)}: {self.warnings[0]}"] if self.warnings else []
        return "\n".join(lines)

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self.values)

    @property
    def n_examples(self) -> int:
        """Number of examples, those that failed included."""
        return len(self.targets)

    def unit_of(self, score: str) -> str:
        """In what a score is measured, in words: share, logits, …; "number" of one that has no unit."""
        unit = self.facts[score].unit
        return self.target_unit if unit == "target" else unit

    def chance_of(self, score: str) -> Float[np.ndarray, " head"]:
        """What even attention scores, for each head; NaN where there is no such number."""
        return self.chance.get(score, np.full(len(self.heads), np.nan))

    def reason(self, score: str) -> str:
        """Why a score has no number for any head; "" where it has one.

        In the words of the first warning about it, or else what the score needs. Errors: as `top`.
        """
        self._check(score)
        if not np.isnan(self.values[score]).all():
            return ""
        mine = re.compile(rf"(?:^|, ){re.escape(score)}(?:, [^:,]*-attention)?: ")
        said = next((said[found.end() :] for said in self.warnings if (found := mine.search(said))), "")
        return said or silence_of(self.facts[score].needs, self.model)

    def to_frame(self) -> pd.DataFrame:
        """Wide: a row a head, stack, kind, layer, head, n (examples that gave a number) and the mean of each score."""
        means = {name: mean_of(rows) for name, rows in self.values.items()}
        known = [~np.isnan(rows) for name, rows in self.values.items() if self.facts[name].form != "probe"]
        n = np.any(known, axis=0).sum(0) if known else np.zeros(len(self.heads), dtype=int)
        return pd.concat([self.heads, pd.DataFrame({"n": n, **means})], axis=1)

    def long(self, *, examples: bool = False) -> pd.DataFrame:
        """Long: a row a head and score: mean, low, high (95 % bootstrap over examples), n, chance (what even attention
        scores), then what the score is: form, family, label, unit.

        examples: a row an example, head and score (example_index, value, unit) instead; probes, which have none, are
        left out. No interval of probes, nor below 6 examples.
        """
        parts = [self._by_example(name) if examples else self._means(name) for name in self.values]
        frame = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
        first = (["example_index"] if examples else []) + [*PLACE, "score"]
        return frame[first + [column for column in frame if column not in first]]

    def _means(self, name: str) -> pd.DataFrame:
        told = self.facts[name]
        found = over_columns(self.values[name], n_resamples=self.n_resamples, seed=self.seed)
        numbers = {fact: [getattr(one, fact) for one in found] for fact in ("mean", "low", "high", "n")}
        facts = {"form": told.form, "family": told.family, "label": told.label, "unit": self.unit_of(name)}
        return self.heads.assign(score=name, **numbers, chance=self.chance_of(name), **facts)

    def _by_example(self, name: str) -> pd.DataFrame:
        rows = self.values[name] if self.facts[name].form != "probe" else self.values[name][:0]
        whole = pd.concat([self.heads] * len(rows), ignore_index=True) if len(rows) else self.heads[:0]
        index = np.repeat(np.arange(len(rows)), len(self.heads))
        return whole.assign(example_index=index, score=name, value=rows.reshape(-1), unit=self.unit_of(name))

    def top(self, score: str, k: int = 5, *, lowest: bool = False) -> pd.DataFrame:
        """The k heads with the highest (or lowest) mean of a score, with intervals and chance; of an effect by size.

        Heads without a number are none; where no head has one, the warnings say why.
        """
        self._check(score)
        if k < 1:
            raise InputError(f"k is at least 1, got {k}")
        rows = self._means(score).dropna(subset=["mean"])
        size = abs if self.facts[score].form == "effect" else None
        rows = rows.sort_values("mean", ascending=lowest, kind="stable", ignore_index=True, key=size)
        return rows.head(k)[[*PLACE, "score", "mean", "low", "high", "n", "chance", "unit"]]

    def _check(self, score: str) -> None:
        if score not in self.values:
            raise InputError(f"the profile has no score '{score}'; {nearest(score, self.scores)}")

    def save(self, folder: str | Path) -> Path:
        """Write profile.json and values.csv into a folder: a row an example and head; probes under example -1, what
        even attention scores under -2."""
        folder = made(Path(folder))
        record = {
            "model": self.model,
            "facts": {name: asdict(told) for name, told in self.facts.items()},
            "targets": self.targets,
            "warnings": self.warnings,
            "target_unit": self.target_unit,
            "texts": self.texts,
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
            even = table[table.example_index == CHANCE]
            chance = {name: even[name].to_numpy(dtype=float) for name in facts if even[name].notna().any()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{folder} does not hold a whole profile ({error}); give what HeadProfile.save wrote"
            ) from error
        return cls(
            record["model"], heads, values, facts, tuple(record["targets"]), tuple(record["warnings"]),
            record["n_resamples"], record["seed"], chance, record.get("target_unit", OF_TARGET),
            tuple(record.get("texts", ())),
        )  # fmt: skip


ONCE, CHANCE = -1, -2  # the example_index of probes, and of what even attention scores, in a file


def titled(profile: HeadProfile, score: str) -> str:
    """The label of a score with its unit, where it has one that the label does not say; shares speak for themselves.

    Of an effect what its sign means comes last.
    """
    told, unit = profile.facts[score], profile.unit_of(score)
    label = told.label if unit in ("", "share", "number") or unit in told.label else f"{told.label}, {unit}"
    return f"{label} ({told.sign})" if told.sign else label


def silence_of(needs: str, model: str) -> str:
    """Why a score gave no head a number, where nothing failed."""
    if not needs:
        return f"no head has a number; on {model} it has no meaning"
    return f"no head has a number; it needs {needs}, and there is none here"


def mean_of(rows: Float[np.ndarray, "example head"]) -> Float[np.ndarray, " head"]:
    """Mean of what is known in each column, NaN of nothing."""
    known = ~np.isnan(rows)
    total = np.where(known, rows, 0.0).sum(0)
    return np.where(known.any(0), total / np.maximum(known.sum(0), 1), np.nan)


def _table(profile: HeadProfile) -> pd.DataFrame:
    """Every number: a row an example and head, a column a score."""
    n = len(profile.heads)
    blank = np.full((1, n), np.nan)
    parts = []
    for index in [CHANCE, ONCE, *range(profile.n_examples)]:
        columns = {}
        for name, rows in profile.values.items():
            mine = (profile.facts[name].form == "probe") == (index == ONCE) and index != CHANCE
            columns[name] = (rows[[max(index, 0)]] if mine else blank)[0]
            columns[name] = profile.chance_of(name) if index == CHANCE else columns[name]
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
    rows = table[table.example_index == ONCE if form == "probe" else table.example_index >= 0]
    return rows[name].to_numpy(dtype=float).reshape(-1, n_heads)
