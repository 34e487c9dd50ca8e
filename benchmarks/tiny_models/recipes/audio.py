"""Sound: codecs, vocoders, speech encoders, models that speak."""

from typing import Any

import torch
from torch import nn

from benchmarks.tiny_models.inputs import text
from benchmarks.tiny_models.registry import inputs, model_class, settings, tweak

WIDTH = 64

settings("dac", encoder_hidden_size=8, decoder_hidden_size=64, n_codebooks=2, downsampling_ratios=[2, 4, 5, 8])
settings("xcodec2 neucodec", encoder_hidden_size=8, downsampling_ratios=[2, 2, 4, 4, 5])
settings("nemotron_asr_streaming_encoder", sliding_window=4, default_num_lookahead_tokens=1)
settings("moonshine", encoder_num_key_value_heads=4, decoder_num_key_value_heads=4)
settings("clvp_encoder", hidden_size=128, num_attention_heads=2, projection_dim=64, intermediate_size=64)
settings("qwen2_5_omni_bigvgan", upsample_initial_channel=64)
settings("xcodec", codebook_dim=192)
settings("xcodec2 neucodec", quantization_dim=128)
settings("univnet", model_in_channels=8, model_hidden_channels=8, kernel_predictor_hidden_channels=8, num_mel_bins=16)
settings("blt", encoder_hash_byte_group_vocab=64)
settings("fastspeech2_conformer_hifigan speecht5_hifigan", model_in_dim=16)
settings("pix2struct_text_model t5gemma2_text", initializer_range=0.02, dropout_rate=0.0)
settings("t5gemma2_decoder", dropout_rate=0.0)
settings("musicgen musicgen_melody", dropout=0.0)
settings("vits", spectrogram_bins=17, flow_size=16, duration_predictor_filter_channels=16, noise_scale=0.0,
         noise_scale_duration=0.0, use_stochastic_duration_prediction=False, window_size=2)  # fmt: skip
model_class(musicgen="MusicgenForConditionalGeneration", musicgen_melody="MusicgenMelodyForConditionalGeneration")


@inputs("audio-spectrogram-transformer")
def _spectrogram(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_values": torch.randn(1, config.max_length, config.num_mel_bins)}


@tweak("audio-spectrogram-transformer")
def _short(config: Any) -> None:
    config.max_length, config.num_mel_bins, config.patch_size = 32, 16, 8
    config.time_stride = config.frequency_stride = 6


@inputs("clap_audio_model")
def _mels(module: nn.Module, config: Any) -> dict[str, Any]:
    found = {"input_features": torch.randn(1, 1, config.spec_size // 4, config.num_mel_bins)}
    return found | {"is_longer": torch.tensor([[False]])}


@inputs("clap")
def _mels_and_words(module: nn.Module, config: Any) -> dict[str, Any]:
    return _mels(module, config.audio_config) | {"input_ids": text()}


@tweak("clap_audio_model")
def _square(config: Any) -> None:
    config.spec_size, config.num_mel_bins, config.window_size = 64, 16, 4
    config.patch_embeds_hidden_size = config.hidden_size // 2 ** (len(config.depths) - 1)


@inputs("phi4_multimodal_audio")
def _masked(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"hidden_states": torch.randn(1, 96, config.input_size), "mask": torch.ones(1, 96, dtype=torch.bool)}


@inputs("gemma3n_audio")
def _padding_mask(module: nn.Module, config: Any) -> dict[str, Any]:
    mel = torch.randn(1, 96, config.input_feat_size)
    return {"audio_mel": mel, "audio_mel_mask": torch.zeros(1, 96, dtype=torch.bool)}


@inputs("qwen2_5_omni_audio_encoder", "qwen3_omni_moe_audio_encoder")
def _chunks(module: nn.Module, config: Any) -> dict[str, Any]:
    found = {"input_features": torch.randn(config.num_mel_bins, 64), "feature_lens": torch.tensor([64])}
    return found | ({"aftercnn_lens": torch.tensor([32])} if "2_5" in config.model_type else {})


@inputs("inkling_audio")
def _binned(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"audio_input_ids": torch.randint(0, config.mel_vocab_size, (1, 14, config.n_mel_bins))}


@inputs("muse_spark_audio")
def _wave(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_values": torch.randn(1, 1920 * 12) * 0.3}


@inputs("speecht5")
def _speech_to_speech(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_values": torch.randn(1, 14, WIDTH), "decoder_input_values": torch.randn(1, 9, WIDTH)}


@inputs("fun_asr_nano_encoder")
def _stacked(module: nn.Module, config: Any) -> dict[str, Any]:
    width = config.num_mel_bins * config.num_stacked_frames
    return {"input_features": torch.randn(1, 20, width), "input_features_mask": torch.ones(1, 20, dtype=torch.long)}


@inputs("speech_to_text")
def _speech(module: nn.Module, config: Any) -> dict[str, Any]:
    width = config.input_feat_per_channel * config.input_channels
    return {"input_features": torch.randn(1, 64, width), "decoder_input_ids": text(9)}


@tweak("speech_to_text")
def _narrow(config: Any) -> None:
    config.input_feat_per_channel = 16


@inputs("clvp")
def _text_and_mels(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": text(), "input_features": torch.randn(1, config.decoder_config.feature_size, 32)}


@inputs("xcodec", "mimi", "vibevoice_acoustic_tokenizer_encoder")
def _mono(module: nn.Module, config: Any) -> dict[str, Any]:
    name = "hidden_states" if config.model_type.startswith("vibevoice") else "input_values"
    return {name: torch.randn(1, 1, 6400) * 0.3}


@inputs("vibevoice_acoustic_tokenizer")
def _fixed_sample(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_values": torch.randn(1, 1, 6400) * 0.3, "sample": False}


@inputs("vibevoice_acoustic_tokenizer_decoder")
def _latent(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"hidden_states": torch.randn(1, config.hidden_size, 14)}


@inputs("mimi_decoder", "pocket_tts_audio_tokenizer_decoder")
def _latents(module: nn.Module, config: Any) -> Any:
    for width in (WIDTH, 32):
        yield {"latents": torch.randn(1, width, 14)}
        yield {"latents": torch.randn(1, 14, width)}


@inputs("neucodec", "xcodec2")
def _wave_and_features(module: nn.Module, config: Any) -> Any:
    part = config.semantic_model_config
    for width in (getattr(part, "feature_projection_input_dim", 160), 160, 16):
        yield {"input_values": torch.randn(1, 1, 6400) * 0.3, "input_features": torch.randn(1, 20, width)}


@inputs("fastspeech2_conformer_hifigan", "speecht5_hifigan")
def _mel(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"spectrogram": torch.randn(1, 20, config.model_in_dim)}


@inputs("qwen2_5_omni_bigvgan")
def _big_mel(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"mel_spectrogram": torch.randn(1, config.mel_dim, 20)}


@inputs("fastspeech2_conformer", "fastspeech2_conformer_with_hifigan")
def _two_frames_a_letter(module: nn.Module, config: Any) -> dict[str, Any]:
    """The predicted durations are fixed: random ones may be of any length."""
    inner = getattr(module, "model", module)
    last = inner.duration_predictor.linear
    last.weight.zero_()
    last.bias.fill_(1.1)
    return {"input_ids": text()}


@inputs("vits")
def _few_letters(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": text(14) % config.vocab_size, "speaking_rate": 1.0}


@inputs("univnet")
def _noise(module: nn.Module, config: Any) -> dict[str, Any]:
    noise = torch.randn(1, 20, config.model_in_channels)
    return {"input_features": torch.randn(1, 20, config.num_mel_bins), "noise_sequence": noise}


@inputs("musicgen_decoder", "musicgen_melody_decoder")
def _codes(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": torch.randint(3, 60, (config.num_codebooks, 14))}


@inputs("musicgen")
def _words_and_codes(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": text(), "decoder_input_ids": torch.randint(3, 60, (config.decoder.num_codebooks, 9))}


@inputs("musicgen_melody")
def _melody(module: nn.Module, config: Any) -> dict[str, Any]:
    chroma = torch.randn(1, 6, config.num_chroma)
    return _words_and_codes(module, config) | {"input_features": chroma}


@inputs("kyutai_speech_to_text")
def _frames(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": torch.randint(3, 60, (1, 14, config.num_codebooks + 1))}


@inputs("csm")
def _text_and_codes(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": torch.randint(5, 60, (1, 14, config.num_codebooks))}


@inputs("moshi_depth")
def _depth(module: nn.Module, config: Any) -> dict[str, Any]:
    return {
        "input_ids": torch.randint(3, 60, (1, config.num_codebooks)),
        "last_hidden_state": torch.randn(1, 1, config.input_size),
    }


@inputs("dia")
def _dialogue(module: nn.Module, config: Any) -> dict[str, Any]:
    codes = torch.randint(3, 60, (1, 9, config.decoder_config.num_channels))
    return {"input_ids": text(), "decoder_input_ids": codes}


@inputs("dia_decoder")
def _channels(module: nn.Module, config: Any) -> dict[str, Any]:
    codes = torch.randint(3, 60, (1, 9, config.num_channels))
    width = config.cross_hidden_size
    spots = torch.arange(9)[None]
    return {"input_ids": codes, "position_ids": spots, "encoder_hidden_states": torch.randn(1, 14, width)}


@inputs("qwen2_5_omni_dit")
def _flow(module: nn.Module, config: Any) -> dict[str, Any]:
    return {
        "hidden_states": torch.randn(1, 20, config.mel_dim), "condition_vector": torch.randn(1, 20, config.mel_dim),
        "speaker_embedding": torch.randn(1, 20, config.enc_emb_dim), "quantized_code": torch.randint(0, 30, (1, 10)),
        "time_step": torch.tensor([0.3]), "apply_cfg": False,
    }  # fmt: skip


@inputs("pop2piano")
def _piano(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_features": torch.randn(1, 14, config.d_model), "decoder_input_ids": text(9)}


@inputs("qwen2_audio")
def _heard(module: nn.Module, config: Any) -> dict[str, Any]:
    ids = torch.cat([text(5), torch.full((1, 32), config.audio_token_id), text(6)], 1)
    return {
        "input_ids": ids, "attention_mask": torch.ones_like(ids), "input_features": torch.randn(1, 16, 128),
        "feature_attention_mask": torch.ones(1, 128, dtype=torch.long),
    }  # fmt: skip


@inputs("granite_speech", "granite_speech_plus")
def _projected(module: nn.Module, config: Any) -> dict[str, Any]:
    sound = torch.randn(1, 64, config.encoder_config.input_dim)
    with torch.no_grad():
        rows = module.get_audio_features(sound)
    rows = getattr(rows, "pooler_output", rows)
    ids = torch.cat([text(5), torch.full((1, rows.shape[-2]), config.audio_token_id), text(6)], 1)
    return {"input_ids": ids, "input_features": sound}


@inputs("musicflamingo")
def _timed(module: nn.Module, config: Any) -> dict[str, Any]:
    ids = torch.cat([text(5), torch.full((1, 32), config.audio_token_id), text(6)], 1)
    mask = torch.ones(1, 128, dtype=torch.long)
    return {"input_ids": ids, "input_features": torch.randn(1, 16, 128), "input_features_mask": mask}
