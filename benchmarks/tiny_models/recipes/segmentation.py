"""Segment-anything models, their parts, and other models that answer with masks."""

from typing import Any

import torch
from torch import nn

from benchmarks.tiny_models.inputs import text
from benchmarks.tiny_models.registry import inputs, settings, tweak

WIDTH = 64
SIDE = 4

settings("sam_vision_model sam_hq_vision_model", num_pos_feats=32, window_size=2, output_channels=WIDTH)
settings("sam_prompt_encoder sam_hq_prompt_encoder", image_embedding_size=SIDE)


def _maps(side: int = SIDE, width: int = WIDTH) -> torch.Tensor:
    return torch.randn(1, width, side, side)


@inputs("sam_mask_decoder")
def _decoder(module: nn.Module, config: Any) -> dict[str, Any]:
    return {
        "image_embeddings": _maps(),
        "image_positional_embeddings": _maps(),
        "sparse_prompt_embeddings": torch.randn(1, 1, 2, WIDTH),
        "dense_prompt_embeddings": _maps(),
        "multimask_output": True,
    }


@inputs("sam_hq_mask_decoder")
def _hq_decoder(module: nn.Module, config: Any) -> dict[str, Any]:
    width = getattr(config, "vit_dim", WIDTH)
    layers = [torch.randn(1, SIDE, SIDE, width) for _ in range(2)]
    return _decoder(module, config) | {"hq_token_only": False, "intermediate_embeddings": layers}


@inputs(
    "sam2_mask_decoder", "sam2_video_mask_decoder", "edgetam_mask_decoder", "edgetam_video_mask_decoder",
    "sam3_tracker_mask_decoder", "sam3_tracker_video_mask_decoder",
)  # fmt: skip
def _pyramid_decoder(module: nn.Module, config: Any) -> dict[str, Any]:
    fine = [_maps(4 * SIDE, WIDTH // 8), _maps(2 * SIDE, WIDTH // 4)]
    return _decoder(module, config) | {"high_resolution_features": fine}


@inputs("sam_prompt_encoder", "sam_hq_prompt_encoder")
def _masks(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"masks": torch.randn(1, 1, 4 * SIDE, 4 * SIDE)}


@inputs(
    "sam2_prompt_encoder", "sam2_video_prompt_encoder", "edgetam_prompt_encoder", "edgetam_video_prompt_encoder",
    "sam3_tracker_prompt_encoder", "sam3_tracker_video_prompt_encoder",
)  # fmt: skip
def _points(module: nn.Module, config: Any) -> dict[str, Any]:
    return {
        "input_points": torch.tensor([[[[4.0, 9.0], [20.0, 11.0]]]]),
        "input_labels": torch.tensor([[[1, 0]]]),
        "input_boxes": None,
        "input_masks": None,
    }


@inputs("sam", "sam_hq", "sam2", "edgetam", "sam3_tracker")
def _picture_and_points(module: nn.Module, config: Any) -> dict[str, Any]:
    part = config.vision_config
    size = getattr(part, "image_size", None) or getattr(part.backbone_config, "image_size", 64)
    size = size if isinstance(size, int) else size[0]
    points = torch.tensor([[[[4.0, 9.0], [20.0, 11.0]]]])
    return {
        "pixel_values": torch.randn(1, 3, size, size),
        "input_points": points,
        "input_labels": torch.tensor([[[1, 0]]]),
    }


@inputs("sam3_detr_encoder", "sam3_lite_text_detr_encoder")
def _fuse(module: nn.Module, config: Any) -> dict[str, Any]:
    # Without spatial_sizes: with them, the model writes into the lists that it is given.
    return {
        "vision_features": [_maps()],
        "vision_pos_embeds": [_maps()],
        "text_features": torch.randn(1, 7, WIDTH),
        "text_mask": torch.ones(1, 7, dtype=torch.bool),
    }


@inputs("sam3_detr_decoder", "sam3_lite_text_detr_decoder")
def _detect(module: nn.Module, config: Any) -> dict[str, Any]:
    return {
        "vision_features": torch.randn(1, SIDE * SIDE, WIDTH),
        "text_features": torch.randn(1, 7, WIDTH),
        "vision_pos_encoding": torch.randn(1, SIDE * SIDE, WIDTH),
        "text_mask": torch.ones(1, 7, dtype=torch.bool),
        "spatial_shapes": torch.tensor([[SIDE, SIDE]]),
    }


@inputs("sam3_mask_decoder", "sam3_lite_text_mask_decoder")
def _draw(module: nn.Module, config: Any) -> dict[str, Any]:
    return {
        "decoder_queries": torch.randn(1, 6, WIDTH),
        "backbone_features": [_maps(4 * SIDE), _maps(2 * SIDE), _maps()],
        "encoder_hidden_states": torch.randn(1, SIDE * SIDE, WIDTH),
        "prompt_features": torch.randn(1, 7, WIDTH),
        "prompt_mask": torch.ones(1, 7, dtype=torch.bool),
    }


@inputs("sam3_geometry_encoder", "sam3_lite_text_geometry_encoder")
def _boxes(module: nn.Module, config: Any) -> dict[str, Any]:
    return {
        "box_embeddings": torch.tensor([[[0.4, 0.5, 0.3, 0.2], [0.6, 0.5, 0.5, 0.8]]]),
        "box_mask": torch.ones(1, 2, dtype=torch.bool),
        "box_labels": torch.ones(1, 2, dtype=torch.long),
        "img_feats": (_maps(),),
        "img_pos_embeds": (_maps(),),
    }


@inputs("seggpt")
def _example_and_question(module: nn.Module, config: Any) -> dict[str, Any]:
    height, width = config.image_size
    shape = (1, 3, height // 2, width)
    return {
        "pixel_values": torch.randn(shape),
        "prompt_pixel_values": torch.randn(shape),
        "prompt_masks": torch.randn(shape),
    }


@tweak("seggpt")
def _upright(config: Any) -> None:
    config.image_size = [64, 32]


@inputs("oneformer")
def _task(module: nn.Module, config: Any) -> dict[str, Any]:
    length = config.task_seq_len
    return {"pixel_values": torch.randn(1, 3, 64, 64), "task_inputs": text(length)}
