"""Benchmarks of attribution methods on models whose truth is known."""

from attnprobe.benchmark.planted import AS_PLANTED, Cell, benchmark_planted, by_method, to_frame, variants

__all__ = ["AS_PLANTED", "Cell", "benchmark_planted", "by_method", "to_frame", "variants"]
