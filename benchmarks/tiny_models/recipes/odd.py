"""Models that ask for something of their own."""

from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from benchmarks.tiny_models.inputs import text, with_features
from benchmarks.tiny_models.registry import inputs, model_class, part, settings, start, tweak

WIDTH = 64

settings("perceiver", num_latents=6, d_latents=64, d_model=64, num_self_attends_per_block=2, num_blocks=1,
         qk_channels=64, v_channels=64)  # fmt: skip
settings("kolibri1", num_experts=4, num_experts_per_tok=2)
settings("chameleon_vqgan", resolution=32, base_channels=32, channel_multiplier=[1, 1, 2], num_embeddings=24)
settings("emu3_vqgan", base_channels=32, channel_multiplier=[1, 1, 2, 2], codebook_size=24)
settings("apertus1p5_vision_tokenizer", base_channels=32, channel_multiplier=[1, 1, 1, 1, 1])
settings("tvp", visual_prompt_size=4, max_img_size=64, num_frames=2)
settings("mgp-str", num_bpe_labels=64, num_wordpiece_labels=64)
settings("muse_spark_audio", num_hidden_layers=4)
settings("align", projection_dim=24)
settings("muse_glimmer muse_spark", out_hidden_size=256)
settings("grounding-dino mm-grounding-dino", max_text_len=14)
settings("inkling_vision", patch_size=8, num_hidden_layers=3, text_hidden_size=64)
settings("qwen3_omni_moe_talker_text", shared_expert_intermediate_size=64)
settings("pp_doclayout_v2", class_thresholds=[0.5, 0.5], class_order=[0, 1])
settings("granite4_vision", deepstack_layer_map=[[-1, 0]], downsample_rate="2/4",
         spatial_target_layers=[1, 1, 1, 1])  # fmt: skip
settings("moonshine_streaming", num_key_value_heads=4)
settings("xlstm", qk_dim_factor=1.0)
settings("t5_gemma_module", dropout_rate=0.0, attention_dropout=0.0)
settings(
    "chameleon",
    vocabulary_map={"<image>": 90} | {f"IMGIMG{chr(65 + i // 10)}{chr(65 + i % 10)}Z": 64 + i for i in range(24)},
)
settings("apertus1p5", image_token_offset=64, audio_token_offset=40)
model_class(idefics_vision="IdeficsVisionTransformer", t5_gemma_module="t5gemma.T5GemmaEncoder",
            pp_chart2table_vision="got_ocr2.GotOcr2VisionEncoder")  # fmt: skip
part("bark", "semantic_config", "BarkSemanticModel")
part("qwen2_5_omni", "thinker_config", "Qwen2_5OmniThinkerForConditionalGeneration")
part("qwen3_omni_moe", "thinker_config", "Qwen3OmniMoeThinkerForConditionalGeneration")


@start("gemma4")
def _all_kinds() -> Any:
    return transformers.Gemma4Config(
        vision_config=transformers.Gemma4VisionConfig(), audio_config=transformers.Gemma4AudioConfig()
    )


@start("gemma4_unified")
def _all_kinds_in_one() -> Any:
    return transformers.Gemma4UnifiedConfig(
        vision_config=CONFIG_MAPPING["gemma4_unified_vision"](), audio_config=CONFIG_MAPPING["gemma4_unified_audio"]()
    )


@start("embedding_gemma2")
def _all_kinds_embedded() -> Any:
    given = {"vision_config": transformers.Gemma4VisionConfig(), "audio_config": transformers.Gemma4AudioConfig()}
    for kind in ("vision", "audio"):
        if isinstance(usual := CONFIG_MAPPING.get(f"embedding_gemma2_{kind}", None), type):
            given[f"{kind}_config"] = usual()
    return CONFIG_MAPPING["embedding_gemma2"](**given)


@start("gemma4_assistant")
def _without_layer_embeddings() -> Any:
    text = transformers.Gemma4TextConfig(hidden_size_per_layer_input=0, vocab_size_per_layer_input=0)
    return transformers.Gemma4AssistantConfig(text_config=text)


@tweak("paddleocr_vl_text")
def _sections(config: Any) -> None:
    config.rope_parameters["mrope_section"] = [2, 3, 3]


@inputs("perceiver")
def _rows(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"inputs": torch.randn(1, 14, config.d_model)}


@inputs("tvp")
def _film_and_words(module: nn.Module, config: Any) -> dict[str, Any]:
    words = {"input_ids": text(), "attention_mask": torch.ones(1, 14, dtype=torch.long)}
    return words | {"pixel_values": torch.randn(1, config.num_frames, 3, 64, 64)}


@inputs("molmo2_vision")
def _flat(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"pixel_values": torch.randn(1, 64, 3 * config.patch_size**2)}


@inputs("vilt")
def _embedded(module: nn.Module, config: Any) -> dict[str, Any]:
    """The picture as embeddings: the model draws patches of a real one at random."""
    return {
        "input_ids": text(), "image_embeds": torch.randn(1, 16, config.hidden_size),
        "pixel_mask": torch.ones(1, 16, dtype=torch.long),
    }  # fmt: skip


@inputs("vit_mae")
def _drawn(module: nn.Module, config: Any) -> dict[str, Any]:
    size = config.image_size
    count = (size // config.patch_size) ** 2
    return {"pixel_values": torch.randn(1, 3, size, size), "noise": torch.rand(1, count)}


@inputs("fun_asr_nano")
def _heard(module: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    part = config.audio_config
    width = part.num_mel_bins * part.num_stacked_frames
    sound = {"input_features": torch.randn(1, 40, width), "input_features_mask": torch.ones(1, 40, dtype=torch.long)}
    yield from with_features(module, config, audio=sound)


@inputs("voxtral_realtime")
def _frame_by_frame(module: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    for frames in (96, 128, 192):
        sound = torch.randn(1, config.audio_config.num_mel_bins, frames)
        for count in (12, 16, 24):
            yield {"input_ids": text(count), "input_features": sound}


@inputs("voxtral_realtime_text")
def _timed(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": text(), "t_cond": torch.randn(1, 1, config.hidden_size)}


@inputs("inkling2_vision")
def _cells(module: nn.Module, config: Any) -> dict[str, Any]:
    side = config.spatial_merge_size * config.patch_size
    return {"pixel_values": torch.randn(8, side, side, 3), "image_grid_thw": torch.tensor([[1, 2, 4]])}


@inputs("inkling2", "inkling2_loop")
def _words_and_cells(module: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    yield from with_features(module, config, image=_cells(module, config.vision_config))


@inputs("inkling_vision")
def _cubes(module: nn.Module, config: Any) -> dict[str, Any]:
    size = config.patch_size
    return {"pixel_values": torch.randn(6, config.temporal_patch_size, size, size, 3)}


@inputs("inkling_mm_model")
def _words_and_cubes(module: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    yield from with_features(module, config, image=_cubes(module, config.vision_config))


@inputs("jev")
def _options(module: nn.Module, config: Any) -> dict[str, Any]:
    return {
        "input_ids": text(), "marks": torch.tensor([[5, 12]]), "num_options": torch.tensor([[2, 3]]),
        "question_type_ids": torch.tensor([[0, 1]]),
    }  # fmt: skip


@inputs("blt_local_decoder")
def _patches(module: nn.Module, config: Any) -> dict[str, Any]:
    wide = torch.randn(1, 4, config.hidden_size_global)
    return {"inputs_embeds": torch.randn(1, 14, config.hidden_size), "patch_embeds": wide}


@inputs("blt_local_encoder")
def _bytes(module: nn.Module, config: Any) -> dict[str, Any]:
    spots = torch.arange(14)[None] // 4
    return {"input_ids": text(), "inputs_embeds": torch.randn(1, 14, config.hidden_size), "patch_embeds": None,
            "num_patches": 4, "patch_ids": spots}  # fmt: skip


@inputs("granite_docling")
def _tiles(module: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    size = config.vision_config.image_size
    tiles = {
        "pixel_values": torch.randn(1, 1, 3, size, size),
        "pixel_attention_mask": torch.ones(1, 1, dtype=torch.bool),
    }
    yield from with_features(module, config, image=tiles)


@inputs("muse_glimmer_assistant")
def _noise(module: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    for times in (len(config.target_layer_ids), 1):
        context = torch.randn(1, 14, times * config.hidden_size)
        yield {"noise_embeds": torch.randn(1, 9, config.hidden_size), "context_hidden_states": context}


@inputs("qwen2_5_omni_token2wav")
def _codes(module: nn.Module, config: Any) -> dict[str, Any]:
    mel = torch.randn(1, 20, config.dit_config.mel_dim)
    condition = torch.randn(1, config.dit_config.enc_emb_dim)
    return {"code": torch.randint(0, 30, (1, 10)), "conditioning": condition, "reference_mel": mel, "num_steps": 3}


@inputs("rag")
def _documents(module: nn.Module, config: Any) -> dict[str, Any]:
    return {
        "input_ids": text(),
        "decoder_input_ids": text(9),
        "context_input_ids": torch.cat([text(14), text(14, shift=9)]),
        "context_attention_mask": torch.ones(2, 14, dtype=torch.long),
        "doc_scores": torch.tensor([[1.0, 0.3]]),
        "n_docs": 2,
    }


@inputs("unlimited_ocr_vision_encoder")
def _grid(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"patch_embeds": torch.randn(1, config.hidden_size, 4, 4)}


@inputs("vibevoice_asr")
def _wave(module: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    for shape in ((1, 1, 6400), (1, 6400)):
        sound = {"input_values": torch.randn(*shape) * 0.3, "sample": False}
        yield from with_features(module, config, audio=sound)


@inputs("vibevoice")
def _spoken(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": text(), "sample": False}


@inputs("dots3_note_audio_encoder")
def _chunks(module: nn.Module, config: Any) -> dict[str, Any]:
    frames = 96
    length = torch.tensor([frames * config.hop_length])
    return {"input_features": torch.randn(1, config.feature_size, frames), "chunk_sample_lengths": length}


@tweak("dots3_note_audio_encoder")
def _after_three_halvings(config: Any) -> None:
    config.conv_output_size = config.downsample_hidden_size * config.feature_size // 8
    config.adapter_input_size = config.hidden_size


@inputs("gemma4_audio")
def _mels(module: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    for mask in (torch.ones(1, 96, dtype=torch.bool), None):
        yield {"input_features": torch.randn(1, 96, 128)} | ({"attention_mask": mask} if mask is not None else {})


@inputs("t5gemma2_decoder")
def _second_half(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": text(), "encoder_hidden_states": torch.randn(1, 9, config.hidden_size)}


@inputs("apertus1p5")
def _tokenized(module: nn.Module, config: Any) -> dict[str, Any]:
    ids = torch.cat([text(5), torch.full((1, 4), config.image_token_id), text(6)], 1)
    return {"input_ids": ids, "pixel_values": torch.randn(1, 3, 32, 32), "image_sizes": torch.tensor([[32, 32]])}


@inputs("gemma4_assistant", "gemma4_unified_assistant")
def _with_keys_of_another(module: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    inner = config.text_config
    spots = torch.arange(9, 14)[None]
    for width in (128, 64):
        for heads in (2, 4, 1):
            states = {}
            for kind in set(inner.layer_types):
                size = 16
                states[kind] = (torch.randn(1, heads, 14, size), torch.randn(1, heads, 14, size))
            yield {"inputs_embeds": torch.randn(1, 5, width), "shared_kv_states": states, "position_ids": spots}


@inputs("glm_image")
def _one_given_one_to_make(module: nn.Module, config: Any) -> dict[str, Any]:
    ids = torch.cat([text(5), torch.full((1, 16), config.image_token_id), text(6)], 1)
    grids = torch.tensor([[1, 4, 4], [1, 4, 4]])
    return {"input_ids": ids, "pixel_values": torch.randn(16, 192), "image_grid_thw": grids}


@inputs("granite4_vision")
def _three_tiles(module: nn.Module, config: Any) -> dict[str, Any]:
    sizes = torch.tensor([[32, 32]])
    tiles = torch.randn(1, 3, 3, 32, 32)
    with torch.no_grad():
        found = module.get_image_features(pixel_values=tiles, image_sizes=sizes)
    count = found.deepstack_features[0][1][0].shape[0]
    ids = torch.cat([text(5), torch.full((1, count), config.image_token_id), text(6)], 1)
    return {"input_ids": ids, "pixel_values": tiles, "image_sizes": sizes}


@inputs("gemma4_unified")
def _merged_patches(module: nn.Module, config: Any) -> Iterator[dict[str, Any]]:
    spots = torch.tensor([[[0, 0], [1, 0], [0, 1], [1, 1]]])
    side = config.vision_config.model_patch_size
    given = {"pixel_values": torch.rand(1, 4, 3 * side * side), "image_position_ids": spots}
    yield from with_features(module, config, image=given)
