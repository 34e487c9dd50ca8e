"""Tiny random models whose attention has no plain matrix, and inputs that make their patterns bind."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers as t
from torch import nn
from transformers.models.gemma3n.modeling_gemma3n import Gemma3nAudioAttention
from transformers.models.groupvit.modeling_groupvit import GroupViTAssignAttention
from transformers.models.mobilevitv2.modeling_mobilevitv2 import MobileViTV2LinearSelfAttention
from transformers.models.swiftformer.modeling_swiftformer import SwiftFormerEfficientAdditiveAttention

IDS = torch.tensor([[5, 9, 7, 30, 9, 10, 11, 12, 25, 14, 15, 16, 17, 18, 19, 8, 21, 22, 23, 24, 6, 40, 41]])
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


@dataclass(frozen=True)
class Tiny:
    """A model, the inputs of one example [1 ...], and how its output projection is found from a module's path."""

    name: str
    module: nn.Module
    inputs: dict[str, Any]
    projection: str


_BUILDERS: dict[str, Callable[[], tuple[nn.Module, dict[str, Any], str]]] = {}


def names() -> list[str]:
    """Every tiny model of this file."""
    return list(_BUILDERS)


def tiny(name: str) -> Tiny:
    """A tiny model, with weights large enough that attention is far from uniform."""
    torch.manual_seed(1)
    module, inputs, projection = _BUILDERS[name]()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1 and parameter.std() > 0:
                parameter.mul_(max(1.0, 0.25 / float(parameter.std())))
            elif parameter.ndim > 1:
                parameter.normal_(std=0.25)
    return Tiny(name, module.eval(), inputs, projection)


def model(builder: Callable[[], tuple[nn.Module, dict[str, Any], str]]) -> Callable:
    """Register a builder of (model, inputs, path of the output projection from the attention module)."""
    _BUILDERS[builder.__name__] = builder
    return builder


@model
def longformer() -> Any:
    config = t.LongformerConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        vocab_size=60,
        attention_window=[4, 6],
        max_position_embeddings=64,
        **SPECIAL,
    )
    return t.LongformerModel(config, add_pooling_layer=False), {"input_ids": IDS}, "../output.dense"


@model
def longformer_global() -> Any:
    module, inputs, projection = longformer()
    marks = torch.zeros_like(IDS)
    marks[0, [0, 9, 10]] = 1
    return module, {**inputs, "global_attention_mask": marks}, projection


@model
def led() -> Any:
    config = t.LEDConfig(
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        vocab_size=60,
        attention_window=4,
        max_encoder_position_embeddings=64,
        max_decoder_position_embeddings=64,
        decoder_start_token_id=2,
        **SPECIAL,
    )
    marks = torch.zeros_like(IDS)
    marks[0, 0] = 1
    return t.LEDModel(config), {"input_ids": IDS, "global_attention_mask": marks}, "../output"


_BIG_BIRD = {
    "vocab_size": 60,
    "attention_type": "block_sparse",
    "block_size": 2,
    "num_random_blocks": 1,
    "max_position_embeddings": 64,
}


@model
def big_bird() -> Any:
    config = t.BigBirdConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, **_BIG_BIRD, **SPECIAL
    )
    return t.BigBirdModel(config, add_pooling_layer=False), {"input_ids": IDS}, "../output.dense"


@model
def bigbird_pegasus() -> Any:
    config = t.BigBirdPegasusConfig(
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        decoder_start_token_id=2,
        **_BIG_BIRD,
        **SPECIAL,
    )
    return t.BigBirdPegasusModel(config), {"input_ids": IDS, "decoder_input_ids": IDS[:, :5]}, "../output"


_LONG_T5 = {
    "d_model": 32,
    "d_kv": 8,
    "num_layers": 2,
    "num_decoder_layers": 1,
    "num_heads": 4,
    "d_ff": 32,
    "vocab_size": 60,
    "local_radius": 3,
    "global_block_size": 5,
}


@model
def longt5() -> Any:
    config = t.LongT5Config(**_LONG_T5, encoder_attention_type="local")
    return t.LongT5EncoderModel(config), {"input_ids": IDS}, "o"


@model
def longt5_global() -> Any:
    config = t.LongT5Config(**_LONG_T5, encoder_attention_type="transient-global")
    return t.LongT5EncoderModel(config), {"input_ids": IDS}, "o"


@model
def pegasus_x() -> Any:
    config = t.PegasusXConfig(
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        vocab_size=60,
        block_size=4,
        num_global_tokens=3,
        stagger_local_blocks=True,
        decoder_start_token_id=2,
        **SPECIAL,
    )
    return t.PegasusXModel(config), {"input_ids": IDS, "decoder_input_ids": IDS[:, :5]}, "out_proj"


@model
def prophetnet() -> Any:
    config = t.ProphetNetConfig(
        hidden_size=32,
        num_encoder_layers=1,
        num_decoder_layers=2,
        num_encoder_attention_heads=4,
        num_decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        vocab_size=60,
        ngram=2,
        max_position_embeddings=64,
        num_buckets=8,
        relative_max_distance=16,
        decoder_start_token_id=2,
        **SPECIAL,
    )
    inputs = {"input_ids": IDS, "decoder_input_ids": IDS[:, 2:9], "use_cache": False}
    return t.ProphetNetModel(config), inputs, "out_proj"


@model
def informer() -> Any:
    config = t.InformerConfig(
        prediction_length=8,
        context_length=10,
        input_size=1,
        lags_sequence=[1, 2],
        num_time_features=1,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        sampling_factor=1,
        distil=False,
    )
    past, ahead = config.context_length + max(config.lags_sequence), config.prediction_length
    noise = torch.Generator().manual_seed(3)
    inputs = {
        "past_values": torch.randn(1, past, generator=noise),
        "past_time_features": torch.randn(1, past, 1, generator=noise),
        "past_observed_mask": torch.ones(1, past),
        "future_values": torch.randn(1, ahead, generator=noise),
        "future_time_features": torch.randn(1, ahead, 1, generator=noise),
        "use_cache": False,
    }
    return t.InformerModel(config), inputs, "out_proj"


def _nystromformer(**options: Any) -> Any:
    config = t.NystromformerConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        vocab_size=60,
        segment_means_seq_len=20,
        max_position_embeddings=64,
        **options,
        **SPECIAL,
    )
    return t.NystromformerModel(config), {"input_ids": IDS[:, :20]}, "../output.dense"


@model
def nystromformer() -> Any:
    return _nystromformer(num_landmarks=5, conv_kernel_size=3)


@model
def nystromformer_exact() -> Any:
    return _nystromformer(num_landmarks=20, conv_kernel_size=3)


def _reformer(*layers: str, **options: Any) -> Any:
    config = t.ReformerConfig(
        hidden_size=32,
        attn_layers=list(layers),
        num_attention_heads=4,
        attention_head_size=8,
        feed_forward_size=32,
        vocab_size=60,
        axial_pos_embds=False,
        max_position_embeddings=64,
        lsh_attn_chunk_length=4,
        local_attn_chunk_length=4,
        hash_seed=3,
        num_buckets=4,
        **options,
        **SPECIAL,
    )
    return t.ReformerModel(config), {"input_ids": IDS, "use_cache": False}, "../output.dense"


@model
def reformer_local() -> Any:
    return _reformer("local", "local", is_decoder=True)


@model
def reformer() -> Any:
    return _reformer("lsh", "lsh", num_hashes=1)


@model
def reformer_rounds() -> Any:
    return _reformer("lsh", "local", num_hashes=3)


class Only(nn.Module):
    """An attention module alone, run on one input `x`."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x)


def _noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


@model
def mobilevitv2() -> Any:
    return Only(MobileViTV2LinearSelfAttention(t.MobileViTV2Config(), 16)), {"x": _noise(1, 16, 4, 6)}, ""


@model
def swiftformer() -> Any:
    return Only(SwiftFormerEfficientAdditiveAttention(t.SwiftFormerConfig(), dim=16)), {"x": _noise(1, 9, 16)}, ""


@model
def vits() -> Any:
    config = t.VitsConfig(
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=32,
        window_size=4,
        flow_size=16,
        spectrogram_bins=8,
        upsample_initial_channel=16,
        use_stochastic_duration_prediction=False,
        duration_predictor_filter_channels=16,
        prior_encoder_num_flows=1,
        prior_encoder_num_wavenet_layers=1,
        posterior_encoder_num_wavenet_layers=1,
    )
    encoder = t.VitsModel(config).text_encoder
    ids = IDS[:, :12]
    return encoder, {"input_ids": ids, "padding_mask": torch.ones(1, 12, 1)}, "out_proj"


@model
def deformable_detr() -> Any:
    backbone = t.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], out_features=["stage2", "stage3", "stage4"]
    )
    config = t.DeformableDetrConfig(
        backbone_config=backbone,
        use_timm_backbone=False,
        use_pretrained_backbone=False,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_queries=5,
        num_feature_levels=4,
    )
    return t.DeformableDetrModel(config), {"pixel_values": _noise(1, 3, 128, 128)}, "output_proj"


@model
def gemma3n_audio() -> Any:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            config = t.Gemma3nAudioConfig(
                hidden_size=32,
                conf_num_attention_heads=4,
                conf_attention_chunk_size=4,
                conf_attention_context_left=4,
                conf_attention_context_right=1,
            )
            self.attention, self.projection = Gemma3nAudioAttention(config), nn.Linear(32, 32)

        def forward(self, frames: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return self.projection(self.attention(frames, mask).flatten(2))

    return Encoder(), {"frames": _noise(1, 11, 32), "mask": torch.zeros(1, 11, dtype=torch.bool)}, "../projection"


@model
def gemma4_audio() -> Any:
    config = t.Gemma4AudioConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        attention_chunk_size=4,
        attention_context_left=4,
        attention_context_right=1,
        subsampling_conv_channels=[128, 4],
        output_proj_dims=32,
    )
    inputs = {"input_features": _noise(1, 46, 128), "attention_mask": torch.ones(1, 46, dtype=torch.bool)}
    return t.Gemma4AudioModel(config), inputs, "post"


@model
def autoformer() -> Any:
    config = t.AutoformerConfig(
        prediction_length=8,
        context_length=10,
        input_size=1,
        lags_sequence=[1, 2],
        num_time_features=1,
        d_model=32,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        label_length=4,
        moving_average=3,
    )
    return t.AutoformerModel(config), informer()[1], "out_proj"


@model
def groupvit() -> Any:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = GroupViTAssignAttention(t.GroupViTVisionConfig(hidden_size=32))

        def forward(self, groups: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
            return self.attention(groups, tokens)[0]

    return Pair(), {"groups": _noise(1, 5, 32), "tokens": _noise(1, 12, 32)}, "proj"


@model
def convbert() -> Any:
    config = t.ConvBertConfig(
        hidden_size=32,
        embedding_size=32,
        num_hidden_layers=2,
        num_attention_heads=8,
        head_ratio=2,
        intermediate_size=32,
        conv_kernel_size=5,
        vocab_size=60,
        max_position_embeddings=64,
        **SPECIAL,
    )
    return t.ConvBertModel(config), {"input_ids": IDS}, "../output.dense"
