"""A tiny random model of nearly every model type in transformers, with inputs that run."""

from benchmarks.tiny_models.building import build
from benchmarks.tiny_models.built import Built, NotBuilt
from benchmarks.tiny_models.classes import model_types

__all__ = ["Built", "NotBuilt", "build", "model_types"]
