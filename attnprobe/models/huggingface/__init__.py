"""The only place that knows transformers."""

from attnprobe.models.huggingface.loading import from_name, from_pair
from attnprobe.models.huggingface.model import HuggingFaceModel

__all__ = ["HuggingFaceModel", "from_name", "from_pair"]
