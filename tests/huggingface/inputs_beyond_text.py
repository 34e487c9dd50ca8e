"""Tiny random models that read pictures, sounds, series, or several of these, by name."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as t

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
PICTURE = SMALL | {"image_size": 12, "patch_size": 4}
TEXT = SMALL | {"vocab_size": 60, "max_position_embeddings": 32}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CONVOLUTIONS = {"conv_dim": (16, 16), "conv_stride": (5, 4), "conv_kernel": (10, 3)}
SPEECH = SMALL | CONVOLUTIONS | {"vocab_size": 30, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}
STACKS = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in (("layers", 2), ("attention_heads", 4))}
WIDTHS = {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
PYRAMID = {"hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1], "num_attention_heads": [1, 2, 2, 2]}
IMAGE_ID = 59


def _whisper() -> Any:
    unforced = {"suppress_tokens": None, "begin_suppress_tokens": None, "decoder_start_token_id": 3}
    config = t.WhisperConfig(
        **STACKS, **WIDTHS, **ENDS, **unforced, vocab_size=60, num_mel_bins=8, max_source_positions=20
    )
    return t.WhisperForConditionalGeneration(config)


def _clip() -> Any:
    text, vision = TEXT | ENDS | {"projection_dim": 16}, PICTURE | {"projection_dim": 16}
    return t.CLIPModel(t.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))


def _llava() -> Any:
    text = t.LlamaConfig(**TEXT, **ENDS, num_key_value_heads=2, head_dim=8)
    config = t.LlavaConfig(
        text_config=text,
        vision_config=t.CLIPVisionConfig(**PICTURE),
        image_token_index=IMAGE_ID,
        vision_feature_layer=-1,
    )
    return t.LlavaForConditionalGeneration(config)


def _qwen2vl() -> Any:
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
    sizes = {"embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2, "depth": 2}
    config = t.Qwen2VLConfig(
        text_config=TEXT | ENDS | {"num_key_value_heads": 2, "rope_parameters": rope},
        vision_config=sizes | {"patch_size": 4, "temporal_patch_size": 2, "spatial_merge_size": 2},
        image_token_id=IMAGE_ID,
        video_token_id=58,
        vision_start_token_id=57,
        vision_end_token_id=56,
    )
    return t.Qwen2VLForConditionalGeneration(config)


def _series() -> Any:
    config = t.TimeSeriesTransformerConfig(
        **STACKS,
        **WIDTHS,
        prediction_length=4,
        context_length=8,
        lags_sequence=[1, 2, 3],
        num_time_features=2,
    )
    return t.TimeSeriesTransformerForPrediction(config)


def _captioner() -> Any:
    decoder = t.BertConfig(**TEXT, **ENDS, is_decoder=True, add_cross_attention=True)
    return t.VisionEncoderDecoderModel(encoder=t.ViTModel(t.ViTConfig(**PICTURE)), decoder=t.BertLMHeadModel(decoder))


BUILDERS: dict[str, Callable[[], Any]] = {
    "ast": lambda: t.ASTForAudioClassification(
        t.ASTConfig(**SMALL, num_mel_bins=16, max_length=24, patch_size=8, frequency_stride=8, time_stride=8)
    ),
    "bart": lambda: t.BartForSequenceClassification(
        t.BartConfig(**STACKS, **WIDTHS, **ENDS, vocab_size=60, max_position_embeddings=32)
    ),
    "beit": lambda: t.BeitForImageClassification(t.BeitConfig(**PICTURE)),
    "captioner": _captioner,
    "clip": _clip,
    "clip_text": lambda: t.CLIPTextModel(t.CLIPTextConfig(**TEXT, **ENDS)),
    "convnext": lambda: t.ConvNextForImageClassification(
        t.ConvNextConfig(hidden_sizes=[8, 8], depths=[1, 1], num_stages=2)
    ),
    "hubert": lambda: t.HubertForSequenceClassification(t.HubertConfig(**SPEECH)),
    "llava": _llava,
    "patchtst": lambda: t.PatchTSTForPrediction(
        t.PatchTSTConfig(
            num_input_channels=2,
            context_length=16,
            patch_length=4,
            patch_stride=4,
            prediction_length=4,
            d_model=32,
            num_attention_heads=4,
            num_hidden_layers=2,
            ffn_dim=32,
        )
    ),
    "pvt": lambda: t.PvtForImageClassification(t.PvtConfig(image_size=64, **PYRAMID)),
    "qwen2vl": _qwen2vl,
    "resnet": lambda: t.ResNetForImageClassification(
        t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1])
    ),
    "segformer": lambda: t.SegformerForImageClassification(t.SegformerConfig(**PYRAMID, decoder_hidden_size=16)),
    "series": _series,
    "swin": lambda: t.SwinForImageClassification(
        t.SwinConfig(image_size=32, patch_size=4, embed_dim=16, depths=[2, 1], num_heads=[2, 4], window_size=4)
    ),
    "t5": lambda: t.T5ForSequenceClassification(
        t.T5Config(d_model=32, d_kv=8, num_layers=2, num_heads=4, d_ff=48, vocab_size=60, decoder_start_token_id=0)
    ),
    "videomae": lambda: t.VideoMAEForVideoClassification(t.VideoMAEConfig(**PICTURE, num_frames=4, tubelet_size=2)),
    "wav2vec2": lambda: t.Wav2Vec2ForCTC(t.Wav2Vec2Config(**SPEECH)),
    "whisper": _whisper,
}


def build(name: str, scale: float = 4.0) -> Any:
    """A tiny model with matrices large enough that its answers differ from input to input."""
    torch.manual_seed(0)
    module = BUILDERS[name]().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 2:
                parameter.mul_(scale)
    return module


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    """The same noise, 0 to 1, each time."""
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def picture_and_text(name: str, seed: int = 0) -> dict[str, Any]:
    """What a processor of this model would make of a picture between two words."""
    if name == "clip":
        return {"input_ids": torch.tensor([[5 + seed, 6, 7, 2]]), "pixel_values": noise(1, 3, 12, 12, seed=seed)}
    if name == "llava":
        ids = torch.tensor([[5 + seed, *[IMAGE_ID] * 9, 6, 7]])
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "pixel_values": noise(1, 3, 12, 12, seed=seed),
        }
    ids = torch.tensor([[5 + seed, 57, *[IMAGE_ID] * 4, 56, 6]])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == IMAGE_ID).long(),
        "pixel_values": noise(16, 96, seed=seed),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
    }


def series(n_lags: int = 3) -> dict[str, torch.Tensor]:
    """What a model of series reads: numbers of the past, and what is known of past and future."""
    past = noise(1, 8 + n_lags)
    return {
        "past_values": past,
        "past_time_features": noise(1, 8 + n_lags, 2, seed=1),
        "past_observed_mask": torch.ones_like(past),
        "future_values": noise(1, 4, seed=2),
        "future_time_features": noise(1, 4, 2, seed=3),
    }
