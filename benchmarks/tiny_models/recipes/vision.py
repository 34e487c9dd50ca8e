"""Pictures: encoders and backbones, and what is built on them."""

from typing import Any

import torch
from torch import nn

from benchmarks.tiny_models.registry import inputs, settings, tweak

settings("sam2_hiera_det_model", hidden_size=24)
settings("bit", num_groups=8, embedding_size=16)
settings("textnet", stem_out_channels=16, stem_num_channels=3)
settings("align_vision_model efficientnet", width_coefficient=1.0, depth_coefficient=1.0, in_channels=[32, 16],
         out_channels=[16, 24], kernel_sizes=[3, 3], strides=[1, 2], num_block_repeats=[1, 1], expand_ratios=[1, 6],
         depthwise_padding=[], hidden_dim=1280)  # fmt: skip
settings("pvt", image_size=128)
settings("efficientloftr", num_attention_heads=8, num_key_value_heads=8)
settings("vjepa2", crop_size=32, frames_per_clip=4, patch_size=8, pred_num_mask_tokens=2)
settings("lw_detr", projector_scale_factors=[1.0])
settings("lw_detr_vit", num_windows=4)
settings("uvdoc uvdoc_backbone", kernel_size=3)
settings("superpoint", keypoint_decoder_dim=65)
settings("depth_pro", intermediate_hook_ids=[1, 0])
settings("mllama_vision_model", intermediate_layers_indices=[0, 1], vision_output_dim=192)


@tweak("vitmatte")
def _as_list(config: Any) -> None:
    config.fusion_hidden_sizes = list(config.fusion_hidden_sizes)
    config.convstream_hidden_sizes = list(config.convstream_hidden_sizes)
    config.backbone_config.patch_size, config.backbone_config.image_size = 16, 64


@inputs("lightglue", "superglue", "efficientloftr")
def _pair(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"pixel_values": torch.randn(1, 2, 3, 64, 64)}


@tweak("sam2_vision_model", "sam3_vision_model", "edgetam_vision_model")
def _pyramid(config: Any) -> None:
    """Three maps, each half as wide as the one before."""
    config.backbone_feature_sizes = [[16, 16], [8, 8], [4, 4]]
    if hasattr(config.backbone_config, "blocks_per_stage"):
        config.backbone_config.image_size = [64, 64]
