"""Special token ids inside the small vocabulary, the same id for the same name in every part of a model."""

import re
from typing import Any

_FIXED = {
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
    "image_token_id": 90,
    "image_token_index": 90,
    "media_placeholder_token_id": 90,
    "video_token_id": 91,
    "video_token_index": 91,
    "audio_token_id": 92,
    "audio_token_index": 92,
    "vision_start_token_id": 93,
    "vision_end_token_id": 94,
    "forced_bos_token_id": 1,
    "forced_eos_token_id": 2,
    "blank_token_id": 0,
    "audio_pad_token_id": 0,
}
_NAME = re.compile(r".*(token_id|token_index)|(im|img|image|audio|video|vision)_.*_id|(unk|mask|pad|bos|eos)_index")
FIRST_FREE, LAST_FREE = 64, 89
TEXT = (5, 60)  # ids of ordinary tokens


class Ids:
    """Hands out ids for names, in the order in which they are asked for."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def of(self, name: str, old: Any) -> Any:
        """The id of the token that the field names; other fields, and fields that are off, stay as they are."""
        if not _NAME.fullmatch(name) or isinstance(old, bool):
            return old
        if isinstance(old, (list, tuple)) and old and all(type(item) is int for item in old):
            return type(old)([self._id(name)])
        if not isinstance(old, int) or old < 0:
            return old
        return self._id(name)

    def _id(self, name: str) -> int:
        if name in _FIXED:
            return _FIXED[name]
        if name not in self._given:
            self._given[name] = min(FIRST_FREE + len(self._given), LAST_FREE)
        return self._given[name]
