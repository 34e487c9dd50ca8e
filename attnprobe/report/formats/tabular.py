"""A comparison's tables as CSV or Parquet files, and as records for JSON."""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe.comparison import Comparison
from attnprobe.errors import InputError, nearest
from attnprobe.placing import placed
from attnprobe.report.best_orders import best_orders
from attnprobe.report.heads import scored
from attnprobe.report.texts import listed


def every_table(comparison: Comparison, without: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
    """All tables by name, those of the page too (`report.data.EXTRA`), less those to leave out."""
    found = dict(comparison.tables)
    found["heads"] = scored([study.capture for study in comparison.studies])
    found["texts"] = listed(comparison)
    found["best_orders"] = best_orders(comparison)
    for name in without:
        if name not in found:
            raise InputError(f"without={list(without)}: no table is named '{name}'; {nearest(str(name), found)}")
    return {name: table for name, table in found.items() if name not in without}


def save_csv(tables: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """A CSV file a table."""
    return _saved(tables, folder, "csv", lambda table, path: table.to_csv(path, index=False))


def save_parquet(tables: Mapping[str, pd.DataFrame], folder: Path) -> list[Path]:
    """A Parquet file a table, with the types of its columns; needs pyarrow."""
    parquet_is_there()
    return _saved(tables, folder, "parquet", lambda table, path: _typed(table).to_parquet(path, index=False))


def parquet_is_there() -> None:
    """`InputError` that says what to install where Parquet files cannot be written."""
    if importlib.util.find_spec("pyarrow") is None:
        raise InputError("parquet needs pyarrow, which is not installed: pip install 'attnprobe[parquet]', or take csv")


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A row a dict, for JSON: None where there is no number."""
    found: list[dict[str, Any]] = json.loads(_typed(table).to_json(orient="records", double_precision=15))
    return found


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    """Columns that hold several kinds of things as text, which Parquet cannot mix."""
    mixed = [
        name for name in table.columns
        if table[name].dtype == object and len({type(value) for value in table[name].dropna()} - {str}) > 0
        and len({type(value) for value in table[name].dropna()}) > 1
    ]  # fmt: skip
    return table.assign(**{str(name): table[name].map(lambda v: None if v is None else str(v)) for name in mixed})


def _saved(tables: Mapping[str, pd.DataFrame], folder: Path, ending: str, write: Any) -> list[Path]:
    paths = [folder / f"{name}.{ending}" for name in tables]
    try:
        for table, path in zip(tables.values(), paths, strict=True):
            placed(path, partial(write, table))
    except OSError as error:
        raise InputError(f"the tables cannot be written to {folder} ({error.strerror or error})") from error
    return paths
