"""Time series, decisions, molecules."""

from typing import Any

import torch
from torch import nn

from benchmarks.tiny_models.registry import inputs, settings

settings("autoformer informer time_series_transformer", prediction_length=6, context_length=12, lags_sequence=[1, 2],
         num_time_features=2, d_model=64, label_length=4, moving_average=5)  # fmt: skip
settings("patchtst patchtsmixer", context_length=32, patch_length=4, patch_stride=4, num_input_channels=2,
         prediction_length=8)  # fmt: skip
settings("timesfm timesfm2_5", context_length=64, horizon_length=8, patch_length=8)


@inputs("autoformer", "informer", "time_series_transformer")
def _past_and_future(module: nn.Module, config: Any) -> dict[str, Any]:
    past = config.context_length + max(config.lags_sequence)
    return {
        "past_values": torch.randn(1, past),
        "past_time_features": torch.randn(1, past, config.num_time_features),
        "past_observed_mask": torch.ones(1, past),
        "future_values": torch.randn(1, config.prediction_length),
        "future_time_features": torch.randn(1, config.prediction_length, config.num_time_features),
    }


@inputs("patchtst", "patchtsmixer")
def _past(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"past_values": torch.randn(1, config.context_length, config.num_input_channels)}


@inputs("timesfm", "timesfm2_5")
def _windows(module: nn.Module, config: Any) -> dict[str, Any]:
    found = {"past_values": torch.randn(1, 96), "past_values_padding": torch.zeros(1, 96, dtype=torch.long)}
    return found | ({"freq": torch.zeros(1, 1, dtype=torch.long)} if config.model_type == "timesfm" else {})


@inputs("decision_transformer")
def _episode(module: nn.Module, config: Any) -> dict[str, Any]:
    return {
        "states": torch.randn(1, 5, config.state_dim),
        "actions": torch.randn(1, 5, config.act_dim),
        "rewards": torch.randn(1, 5, 1),
        "returns_to_go": torch.randn(1, 5, 1),
        "timesteps": torch.arange(5)[None],
        "attention_mask": torch.ones(1, 5, dtype=torch.long),
    }
