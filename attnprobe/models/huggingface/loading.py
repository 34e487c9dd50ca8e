"""From a name, a folder, a pair or a pipeline to a `HuggingFaceModel`."""

import re
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, AutoModel, AutoTokenizer

from attnprobe.errors import AttnprobeError, InputError, nearest
from attnprobe.models.huggingface.hub import hub_answers
from attnprobe.models.huggingface.model import HuggingFaceModel

# A Hub id: a name, or owner/name; anything else is a path.
HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")


def from_name(
    name: str | Path, *, dtype: str | None = None, device: str | None = None, numerics: str = "delegate", **options: Any
) -> HuggingFaceModel:
    """Load a Hub id or a folder with the head that its configuration names.

    Errors: `InputError` when it is neither a folder with a config.json nor an id that can be had.
    """
    folder = Path(name)
    local = folder.is_dir() and bool(str(name).strip())  # an empty name would be the folder where we are
    if local and not (folder / "config.json").is_file() and "gguf_file" not in options:
        raise InputError(f"the folder '{name}' has no config.json; give a folder that save_pretrained wrote")
    source = str(folder) if local else str(name)
    if not local and not HUB_ID.fullmatch(source):
        near = (
            _neighbour(folder) if str(name).strip() else ", and it is no name; the bundled one is attnprobe/sentiment"
        )
        raise InputError(f"no model '{name}': there is no such folder{near}")
    if not local and not hub_answers():
        options = {**options, "local_files_only": True}  # what was downloaded before still loads
    try:
        config = AutoConfig.from_pretrained(source, **options)
        cls = getattr(transformers, (config.architectures or [""])[0], AutoModel)
        module = cls.from_pretrained(source, dtype=dtype or "auto", **options)
        tokenizer = _tokenizer(source, options)
    except AttnprobeError:
        raise
    except Exception as error:
        raise InputError(_why_not(str(name), local, error)) from error
    if device is not None:
        module = module.to(device)
    return HuggingFaceModel(module.eval(), tokenizer, name=str(name), numerics=numerics)


# A folder with none of these has no tokenizer; transformers would make an empty one up.
TOKENIZER_FILES = (
    "tokenizer*",
    "vocab*",
    "*.model",
    "spm*",
    "merges.txt",
    "bpe*",
    "*.tiktoken",
    "special_tokens_map.json",
)


def _tokenizer(source: str, options: dict[str, Any]) -> Any:
    """Tokenizer, processor or image processor, None where there is none."""
    folder = Path(source)
    named = not folder.is_dir() or any(next(folder.glob(pattern), None) for pattern in TOKENIZER_FILES)
    try:
        return (
            AutoTokenizer.from_pretrained(source, **options) if named or "gguf_file" in options else _pictures(source)
        )
    except (OSError, ValueError, KeyError):
        return _pictures(source)


def _pictures(source: str) -> Any:
    try:
        return transformers.AutoImageProcessor.from_pretrained(source)
    except Exception:
        return None


def _why_not(name: str, local: bool, error: Exception) -> str:
    first = str(error).strip().split("\n", 1)[0][:200]
    if local:
        return f"the folder {name} could not be loaded: {first}"
    hint = _neighbour(Path(name)) if "/" not in name else ""
    if name.startswith("attnprobe/"):
        hint = ", the model that comes with attnprobe is attnprobe/sentiment"
    return f"no model '{name}': it is no folder here{hint}, and could not be had as a Hub id ({first})"


def _neighbour(folder: Path) -> str:
    """The name of a folder beside it that is nearly the same, as a half-sentence; "" if there is none."""
    here = [p.name for p in folder.parent.iterdir() if p.is_dir()] if folder.parent.is_dir() else []
    near = nearest(folder.name, here) if here else ""
    return f"; {near}" if near.startswith("did") else ""


def from_pair(module: Any, tokenizer: Any, *, name: str | None = None, numerics: str = "delegate") -> HuggingFaceModel:
    """A model that the caller has already loaded, and its tokenizer (or image processor)."""
    return HuggingFaceModel(module, tokenizer, name=name, numerics=numerics)
