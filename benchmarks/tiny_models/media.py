"""Pictures, films and sound in the shapes that models take."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

KINDS = ("image", "video", "audio")
TYPE = {"image": 1, "video": 2, "audio": 3}
_MAIN = {
    "image": (
        "pixel_values",
        "pixel_values_images",
        "images",
        "hidden_states+grid_thw",
        "flattened_patches",
        "patches",
    ),
    "video": ("pixel_values_videos", "videos"),
    "audio": ("input_features", "input_values", "audio_values", "audio_input_values", "input_audio", "audio_values"),
}
_TOKENS = {
    "image": ("image_token_id", "image_token_index", "media_placeholder_token_id", "image_token"),
    "video": ("video_token_id", "video_token_index"),
    "audio": ("audio_token_id", "audio_token_index", "audio_placeholder_token_id"),
}
_PARTS = {
    "image": (
        "vision_config",
        "image_config",
        "image_model_config",
        "backbone_config",
        "vlm_config",
        "thinker_config",
        "encoder",
    ),
    "video": ("vision_config", "video_config"),
    "audio": ("audio_config", "audio_encoder_config", "speech_config", "encoder_config", "audio_encoder", "encoder"),
}
Keywords = dict[str, Any]


def main_names(kind: str, names: Mapping[str, Any]) -> list[str]:
    """The arguments that carry the kind, of those that the model takes."""
    return [name for name in _MAIN[kind] if all(part in names for part in name.split("+"))]


def placeholder(kind: str, config: Any, depth: int = 3) -> int | None:
    """The id that stands in the text where features of the kind go."""
    for name in _TOKENS[kind]:
        found = getattr(config, name, None)
        if isinstance(found, int):
            return found
    if not depth:
        return None
    inner = (placeholder(kind, part, depth - 1) for part in vars(config).values() if hasattr(part, "model_type"))
    return next((found for found in inner if found is not None), None)


def run_of(kind: str, count: int, config: Any) -> torch.Tensor:
    """The placeholders between their start and end tokens."""
    token = placeholder(kind, config)
    start = [
        getattr(config, name) for name in ("vision_start_token_id",) if isinstance(getattr(config, name, None), int)
    ]
    end = [getattr(config, name) for name in ("vision_end_token_id",) if isinstance(getattr(config, name, None), int)]
    around = (start, end) if kind != "audio" else ([], [])
    return torch.tensor([*around[0], *[token] * count, *around[1]], dtype=torch.long)


def part_of(kind: str, config: Any, depth: int = 3) -> Any:
    """The config of the part that sees the kind; the config itself where there is no such part."""
    for name in _PARTS[kind]:
        found = getattr(config, name, None)
        if found is not None and not isinstance(found, (dict, str)):
            deeper = depth and found is not config and name not in ("vision_config", "audio_config")
            return part_of(kind, found, depth - 1) if deeper else found
    return config


@torch.no_grad()
def count_features(function: Callable[..., Any], option: Keywords) -> int:
    """How many rows the features of the option have; 0 where the function does not take it."""
    known = inspect.signature(function).parameters
    try:
        found = function(**{name: value for name, value in option.items() if name in known})
    except Exception:
        return 0
    for name in ("pooler_output", "last_hidden_state"):
        if getattr(found, name, None) is not None:
            found = getattr(found, name)
            break
    if isinstance(found, (list, tuple)):
        rows = [item.shape[:-1].numel() for item in found if isinstance(item, torch.Tensor)]
        return sum(rows)
    return found.shape[:-1].numel() if isinstance(found, torch.Tensor) else 0


def _pair(value: Any, default: int) -> tuple[int, int]:
    if isinstance(value, (list, tuple)):
        return (int(value[-2]), int(value[-1])) if len(value) > 1 else (int(value[0]), int(value[0]))
    return (int(value), int(value)) if isinstance(value, int) else (default, default)


def _first(config: Any, *names: str, default: Any = None) -> Any:
    return next((value for name in names if (value := getattr(config, name, None)) is not None), default)


def options(kind: str, names: Mapping[str, Any], config: Any) -> Iterator[Keywords]:
    """Shapes to try for the kind, the likeliest first."""
    maker = {"image": _pictures, "video": _films, "audio": _sounds}[kind]
    for main in main_names(kind, names):
        yield from maker(main, names, config)


def _patches(part: Any, frames: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Flattened patches of a 4 x 4 (or so) grid: [patch, values], and the grid [1, 3]."""
    patch = _pair(_first(part, "patch_size", "spatial_patch_size"), 8)[0]
    deep = _first(part, "temporal_patch_size", "patch_temporal", default=1)
    merge = _first(part, "spatial_merge_size", "merge_size", default=2)
    merge = _pair(merge, 2)[0]
    channels = _first(part, "in_channels", "num_channels", "in_chans", default=3)
    deep = _pair(deep, 1)[0]
    side = 4 * merge if merge < 3 else 2 * merge
    values = torch.randn(frames * side * (side // 2 if side > 4 else side), channels * deep * patch * patch)
    return values, torch.tensor([[frames, side // 2 if side > 4 else side, side]])


def _on_a_grid(main: str, grids: tuple[str, ...], names: Mapping[str, Any], part: Any) -> Iterator[Keywords]:
    """Patches of a picture of any size, flat or square, with the height and width of their grid."""
    for name in (grid for grid in grids if grid in names):
        values, grid = _patches(part)
        rest: Keywords = {name: grid if name.endswith(("thw", "grids")) else grid[:, 1:]}
        merges = {
            "image_grid_thw": "image_merge_sizes",
            "grid_thw": "merge_sizes",
            "video_grid_thw": "video_merge_sizes",
        }
        if (merge := merges.get(name)) in names:
            rest[merge] = torch.tensor([_pair(_first(part, "spatial_merge_size", "merge_size"), 2)[0]])
        yield {main: values} | rest
        patch = _pair(_first(part, "patch_size"), 8)[0]
        square = values[:, : 3 * patch * patch].reshape(len(values), 3, patch, patch)
        yield {main: square} | rest
        yield {main: square[None]} | rest


def _picture_size(part: Any) -> tuple[int, int, int]:
    height, width = _pair(_first(part, "image_size", "img_size", "input_size", "size", "resolution"), 64)
    return _first(part, "num_channels", "in_channels", "in_chans", "num_image_channels", default=3), height, width


def _pictures(main: str, names: Mapping[str, Any], config: Any) -> Iterator[Keywords]:
    part = part_of("image", config)
    channels, height, width = _picture_size(part)
    channels = channels if isinstance(channels, int) else 3
    if main == "hidden_states+grid_thw":
        values, grid = _patches(part)
        yield {"hidden_states": values, "grid_thw": grid}
        return
    patch = _pair(_first(part, "patch_size"), 8)[0]
    yield from _on_a_grid(
        main, ("image_grid_thw", "grid_thw", "image_grid_hws", "image_grids", "image_grid_hw"), names, part
    )
    if "spatial_shapes" in names:
        flat = torch.randn(1, 16, channels * patch * patch)
        mask = {"pixel_attention_mask": torch.ones(1, 16, dtype=torch.long)} if "pixel_attention_mask" in names else {}
        yield {main: flat, "spatial_shapes": torch.tensor([[4, 4]])} | mask
    if "target_sizes" in names:
        yield {main: torch.randn(1, 3, patch, 16 * patch), "target_sizes": torch.tensor([[4, 4]])}
    for place in ("image_position_ids", "pixel_position_ids"):
        if place in names:
            spots = torch.stack(torch.meshgrid(torch.arange(6), torch.arange(6), indexing="xy"), -1).reshape(1, 36, 2)
            yield {main: torch.rand(1, 36, channels * patch * patch), place: spots}
    plain = torch.randn(1, channels, height, width)
    extra: Keywords = {}
    if "image_sizes" in names:
        extra["image_sizes"] = torch.tensor([[height, width]])
    yield {main: plain}
    if extra:
        yield {main: plain} | extra
    yield {main: plain[None]} | extra
    yield {main: torch.randn(1, 3, channels, height, width)} | extra
    frames = _first(part, "num_frames", "frames_per_clip", default=4)
    if isinstance(frames, int) and frames < 33:
        yield {main: torch.randn(1, frames, channels, height, width)}
        yield {main: torch.randn(1, channels, frames, height, width)}
    for side in (64, 128, 224):
        yield {main: torch.randn(1, channels, side, side)} | extra
    yield {main: torch.randn(1, 16, channels * patch * patch)}
    yield {main: torch.randn(16, channels * patch * patch)}


def _films(main: str, names: Mapping[str, Any], config: Any) -> Iterator[Keywords]:
    part = part_of("video", config)
    channels, height, width = _picture_size(part)
    yield from _on_a_grid(main, ("video_grid_thw",), names, part)
    for frames in (_first(part, "num_frames", "frames_per_clip", default=2), 2, 8):
        yield {main: torch.randn(1, frames, channels, height, width)}


def _sounds(main: str, names: Mapping[str, Any], config: Any) -> Iterator[Keywords]:
    part = part_of("audio", config)
    mels = _first(
        part, "num_mel_bins", "n_mels", "input_feat_size", "n_mel_bins", "feature_size", "input_dim", default=16
    )
    longest = _first(part, "max_source_positions", default=32)
    masks = [name for name in ("feature_attention_mask", "input_features_mask", "padding_mask") if name in names]
    if main == "input_features" or main.endswith("features"):
        for shape in ((mels, 2 * longest), (64, mels), (mels, 64), (48, mels), (mels, 200), (200, mels), (96, 128)):
            frames = max(shape) if mels not in shape else (shape[0] if shape[1] == mels else shape[1])
            mask = {name: torch.ones(1, frames, dtype=torch.long) for name in masks}
            yield {main: torch.randn(1, *shape)} | mask
            if mask:
                yield {main: torch.randn(1, *shape)} | {name: value.bool() for name, value in mask.items()}
                yield {main: torch.randn(1, *shape)}
    for shape in ((1, 5000), (1, 1, 6400), (1, 64, mels), (1, mels, 64), (1, 1, 24000)):
        yield {main: torch.randn(*shape) * 0.3}
