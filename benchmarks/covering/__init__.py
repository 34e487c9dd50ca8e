"""Capture measured on a tiny model of every type: weights, outputs, an edit, and what is left behind."""

from benchmarks.covering.measuring import COLUMNS, Measured, measure

__all__ = ["COLUMNS", "Measured", "measure"]
