"""Text with pictures, where the two meet in a way of their own."""

from typing import Any

import torch
from torch import nn

from benchmarks.tiny_models.inputs import text
from benchmarks.tiny_models.registry import inputs, settings, tweak

WIDTH = 64

settings("gemma3 shieldgemma2 t5gemma2_encoder t5gemma2", mm_tokens_per_image=4)
settings("llama4_vision_model", intermediate_size=256, projector_input_dim=64, projector_output_dim=64)
settings("emu3", vocabulary_map={"<image>": 90, "<|extra_200|>": 91}
         | {f"<|visual token {i:06}|>": 64 + i for i in range(24)})  # fmt: skip
settings("aria", projector_patch_to_query_dict={16: 4})
settings("janus_vqgan", channel_multiplier=[1, 1, 2], num_patches=16, base_channels=32)
settings("deepseek_ocr2_sam_vision_model unlimited_ocr_sam_vision_model", downsample_channels=[64, 64])


@inputs("mllama")
def _tiles(module: nn.Module, config: Any) -> dict[str, Any]:
    picture = _tiled(module, config.vision_config)
    tiles = config.vision_config.max_num_tiles
    return picture | {"input_ids": text(), "cross_attention_mask": torch.ones(1, 14, 1, tiles, dtype=torch.long)}


@inputs("mllama_vision_model")
def _tiled(module: nn.Module, config: Any) -> dict[str, Any]:
    tiles, size = config.max_num_tiles, config.image_size
    return {
        "pixel_values": torch.randn(1, 1, tiles, 3, size, size),
        "aspect_ratio_ids": torch.ones(1, 1, dtype=torch.long),
        "aspect_ratio_mask": torch.ones(1, 1, tiles, dtype=torch.long),
    }


def _placed_patches(config: Any) -> torch.Tensor:
    rows, columns = torch.meshgrid(torch.arange(1.0, 4), torch.arange(1.0, 5), indexing="ij")
    spots = torch.stack([rows.flatten(), columns.flatten()], 1)
    return torch.cat([spots, torch.randn(12, config.patch_embed_hidden_size)], 1)[None]


@inputs("pix2struct_vision_model", "kosmos_2_5_vision_model")
def _patches(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"flattened_patches": _placed_patches(config)}


@inputs("pix2struct")
def _patches_and_words(module: nn.Module, config: Any) -> dict[str, Any]:
    return _patches(module, config.vision_config) | {"decoder_input_ids": text(12)}


@tweak("pix2struct_vision_model", "kosmos_2_5_vision_model")
def _patch_width(config: Any) -> None:
    config.patch_embed_hidden_size = 3 * 8 * 8
    config.patch_size = 8
    config.seq_len = 12


@inputs("kosmos-2.5")
def _kosmos_patches(module: nn.Module, config: Any) -> dict[str, Any]:
    count = config.latent_query_num
    marks = torch.tensor([[0] * 2 + [1] * count + [0] * 8])
    return _patches(module, config.vision_config) | {
        "input_ids": text(10 + count), "image_embeds_position_mask": marks, "width": torch.tensor([[32.0]]),
        "height": torch.tensor([[24.0]]),
    }  # fmt: skip


@inputs("kosmos-2")
def _kosmos(module: nn.Module, config: Any) -> dict[str, Any]:
    count, size = config.latent_query_num, config.vision_config.image_size
    marks = torch.tensor([[0] * 2 + [1] * count + [0] * 8])
    return {
        "pixel_values": torch.randn(1, 3, size, size),
        "input_ids": text(10 + count),
        "image_embeds_position_mask": marks,
    }


@inputs("xclip_vision_model")
def _frames(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"pixel_values": torch.randn(config.num_frames, 3, config.image_size, config.image_size)}


@inputs("idefics")
def _idefics(module: nn.Module, config: Any) -> dict[str, Any]:
    size = config.vision_config.image_size
    mask = torch.ones(1, 14, 1, dtype=torch.long)
    return {"input_ids": text(), "pixel_values": torch.randn(1, 1, 3, size, size), "image_attention_mask": mask}


@inputs("florence_vision")
def _picture(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"hidden_states": torch.randn(1, 3, 64, 64)}


@inputs("bridgetower_vision_model")
def _image(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"image": torch.randn(1, 3, config.image_size, config.image_size)}


@inputs("idefics2_perceiver")
def _context(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"context": torch.randn(1, 14, config.hidden_size), "attention_mask": torch.ones(1, 14, dtype=torch.long)}


@inputs("lxmert")
def _regions(module: nn.Module, config: Any) -> dict[str, Any]:
    return {
        "input_ids": text(),
        "visual_feats": torch.randn(1, 5, config.visual_feat_dim),
        "visual_pos": torch.rand(1, 5, config.visual_pos_dim),
    }


@inputs("minicpm_ocr_vision", "minicpmv4_6_vision", "minicpmv4_7_vision")
def _strip(module: nn.Module, config: Any) -> dict[str, Any]:
    patch = config.patch_size
    return {"pixel_values": torch.randn(1, 3, patch, 16 * patch), "target_sizes": torch.tensor([[4, 4]])}


@inputs("instructblip", "instructblipvideo")
def _instruct(module: nn.Module, config: Any) -> dict[str, Any]:
    size = config.vision_config.image_size
    film = config.model_type == "instructblipvideo"
    count = config.num_query_tokens * (4 if film else 1)
    token = (config.video_token_index or 91) if film else config.image_token_index
    config.video_token_index = token if film else None
    return {
        "pixel_values": torch.randn(1, 4, 3, size, size) if film else torch.randn(1, 3, size, size),
        "qformer_input_ids": text(7),
        "input_ids": torch.cat([torch.full((1, count), token), text(10)], 1),
    }


@inputs("deepseek_vl_hybrid")
def _two_sizes(module: nn.Module, config: Any) -> dict[str, Any]:
    size, high = config.vision_config.image_size, config.high_res_vision_config.image_size
    given = {"pixel_values": torch.randn(1, 3, size, size), "high_res_pixel_values": torch.randn(1, 3, high, high)}
    with torch.no_grad():
        rows = module.get_image_features(**given)
    rows = getattr(rows, "pooler_output", rows)
    count = rows.shape[:-1].numel()
    return given | {"input_ids": torch.cat([text(3), torch.full((1, count), config.image_token_id), text(10)], 1)}


@inputs("deepseek_ocr2_encoder")
def _numbered(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"inputs_embeds": torch.randn(1, 16, config.hidden_size), "num_patches": 8}


@inputs("pi0")
def _actions(module: nn.Module, config: Any) -> dict[str, Any]:
    part = config.vlm_config
    size = part.vision_config.image_size
    count = (size // part.vision_config.patch_size) ** 2
    ids = torch.cat([torch.full((1, count), part.image_token_id), text(10)], 1)
    return {
        "action_embeds": torch.randn(1, 5, config.dit_config.hidden_size), "input_ids": ids,
        "pixel_values": torch.randn(1, 1, 3, size, size), "pixel_attention_mask": torch.ones(1, 1, dtype=torch.long),
        "attention_mask": torch.ones_like(ids),
    }  # fmt: skip


@inputs("layoutlmv3")
def _page(module: nn.Module, config: Any) -> dict[str, Any]:
    corners = torch.arange(14)[:, None] * 3 + torch.tensor([1, 2, 9, 12])
    size = config.input_size
    return {"input_ids": text(), "bbox": corners[None], "pixel_values": torch.randn(1, 3, size, size)}


@tweak("layoutlmv3")
def _small_page(config: Any) -> None:
    config.input_size = 32
    config.patch_size = 8


@inputs("colqwen2")
def _padded_patches(module: nn.Module, config: Any) -> dict[str, Any]:
    token = config.vlm_config.image_token_id
    ids = torch.cat([text(5), torch.full((1, 8), token), text(6)], 1)
    return {"input_ids": ids, "pixel_values": torch.randn(1, 32, 384), "image_grid_thw": torch.tensor([[1, 4, 8]]),
            "attention_mask": torch.ones_like(ids)}  # fmt: skip


@inputs("neomme")
def _flat_patches(module: nn.Module, config: Any) -> dict[str, Any]:
    ids = torch.cat([text(5), torch.full((1, 16), config.image_token_id), text(6)], 1)
    return {"input_ids": ids, "pixel_values": torch.randn(16, 192)}


@inputs("xclip")
def _film(module: nn.Module, config: Any) -> dict[str, Any]:
    part = config.vision_config
    film = torch.randn(1, part.num_frames, 3, part.image_size, part.image_size)
    return {"input_ids": text(), "pixel_values": film, "attention_mask": torch.ones(1, 14, dtype=torch.long)}
