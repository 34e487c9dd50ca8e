"""Small values for the fields of a config, by the name of the field."""

import re
from collections.abc import Callable
from typing import Any

WIDTH = 64
HEADS = 4
HEAD_WIDTH = WIDTH // HEADS
VOCABULARY = 128
POSITIONS = 128
LAYERS = 2

Rule = Callable[[Any], Any]


def _at_most(limit: int) -> Rule:
    return lambda old: min(old, limit)


def _to(value: Any) -> Rule:
    return lambda old: value


def _stay(old: Any) -> Any:
    return old


def _positive(rule: Rule) -> Rule:
    """The rule for counts that are on; 0 and -1 mean that something is off."""
    return lambda old: rule(old) if old > 0 else old


_WIDTHS = (
    r"hidden_size|hidden_dim|d_model|dim|embed_dim|embed_size|embedding_dim|embedding_size|emb_dim|n_embd|"
    r"embd_dim|model_dim|projection_dim|proj_dim|project_dim|projection_size|output_size|output_dim|"
    r"out_dim|feature_dim|fpn_dim|hidden_features|d_embed|width|text_hidden|text_width|lstm_hidden_dim|"
    r"units|pooler_output_size|decoder_dim|latent_dim|state_dim_model|reduce_dim|cond_dim|out_hidden_dims|"
    r"output_proj_dims|feat_dim|feature_size|mask_feature_size|adapter_in_dim|adapter_out_dim|unit_dim|"
    r"hidden_size_global|hidden_size_per_layer_input|vision_output_dim|d_inner_model|conv_dim|"
    r"vector_quantization_hidden_dimension|bottleneck_features|codebook_dim|codevector_dim|mm_hidden_size"
)
_INNER = (
    r"intermediate_size|intermediate_dim|ffn_dim|ffn_size|d_ff|dff|n_inner|mlp_dim|ffn_hidden_size|dim_ff|"
    r"dim_feedforward|feedforward_dim|mlp_hidden_size|inner_dim|d_inner|linear_units|"
    r"feed_forward_hidden_size|feed_forward_size|ffn_hidden_dim|feed_forward_dim|mlp_hidden_dim|"
    r"feedforward_size"
)


def _any(names: str) -> str:
    """The names, with or without something before them."""
    return f"(.*_)?({names})"


# The first pattern that fits the whole name decides.
_TABLE: tuple[tuple[str, Rule], ...] = (
    (
        r".*(coefficient|_cost|_index_start|_every_n_layers|_layer_interval|ignore_index|_loss_.*|_factor)|query_dim"
        r"|num_feat_extract_layers",
        _stay,
    ),
    (r"(num|in|input|audio|image|patch_embed_input|vision)_(in_)?channels", _stay),
    (r".*channels?", _at_most(WIDTH)),
    (r".*vocab_size.*|.*_num_embeddings|num_embeddings", _positive(_at_most(VOCABULARY))),
    (r"upsample_groups", _at_most(WIDTH)),
    (r"num_filters|n_filters", _at_most(4)),
    (r"base_channels|.*upsample_initial_channel", _at_most(32)),
    (r"num_res_blocks", _at_most(1)),
    (r"codebook_size", _positive(_at_most(32))),
    (r".*(kv_lora_rank|q_lora_rank|o_lora_rank|lora_rank)", _positive(_to(32))),
    (r"qk_rope_head_dim", _positive(_to(8))),
    (r"qk_nope_head_dim", _to(16)),
    (r"qk_head_dim", _to(24)),
    (
        r"(swa_|cross_|global_|index_|linear_|mamba_|attention_|resampler_)?(key_|value_)?head_dim|d_head|d_kv|v_head_dim"
        r"|.*_head_dim|dim_head|kv_channels|head_size|rotary_dim|attention_head_size",
        _positive(_to(HEAD_WIDTH)),
    ),
    (r".*(num|n)_(key_value|kv)_heads.*", _positive(_at_most(2))),
    (
        r".*(num_attention_heads|attention_heads|num_heads|n_heads|n_head|num_query_heads|_heads)",
        _positive(_at_most(HEADS)),
    ),
    (r".*rank", _positive(_at_most(8))),
    (
        r"(num_)?(layers|hidden_layers|n_layer|n_layers)|.*(num_hidden_layers|num_layers|n_layers|_layers|n_layer|_depth"
        r"|num_blocks)|depth",
        _positive(_at_most(LAYERS)),
    ),
    (r".*experts_per_tok(en)?|moe_topk|moe_k|.*top_k_experts|moe_top_k|num_selected_experts", _positive(_at_most(2))),
    (r"n_shared_experts|num_shared_experts|moe_num_shared_experts", _positive(_at_most(1))),
    (r".*(n_routed_experts|num_experts|num_local_experts|num_experts_.*|n_experts)", _positive(_at_most(4))),
    (r"n_group|num_expert_group", _positive(_at_most(2))),
    (r"topk_group", _positive(_at_most(1))),
    (r"index_topk|sparse_topk.*|.*index_top_?k", _positive(_at_most(3))),
    (
        r"sliding_window|attention_chunk_size|local_attention|sliding_window_size|keep_window_size|local_attention_window_len|attention_window_size",
        _positive(_at_most(4)),
    ),
    (
        r"max_(2d_)?position_embeddings|n_positions|max_seq_len|n_ctx|.*max_position_embeddings|model_max_length"
        r"|context_length|max_sequence_length|max_text_len.*|max_text_tokens",
        _positive(_at_most(POSITIONS)),
    ),
    (r".*max_source_positions", _positive(_at_most(64))),
    (r".*max_target_positions", _positive(_at_most(POSITIONS))),
    (r"(num|n)_mel_bins|mel_bins|n_mels|input_feat_size|mel_dim|num_mel_bands", _to(16)),
    (
        r"num_queries|.*num_query_tokens|.*num_latents|.*n_latents|latent_query_num|num_object_queries|query_length"
        r"|two_stage_num_proposals",
        _positive(_at_most(6)),
    ),
    (r"num_denoising", _to(0)),
    (r"num_position_embeddings|num_patches", _positive(_at_most(64))),
    (_any(_INNER), _positive(_to(WIDTH))),
    (_any(_WIDTHS), _positive(_to(WIDTH))),
    (r"mamba_d_state|state_size|mamba_state_dim|ssm_state_size", _positive(_at_most(8))),
    (r".*_hidden_size.*|.*_embed_dim|.*_embedding_dim", _positive(_to(WIDTH))),
    (r"num_conv_pos_embeddings", _to(8)),
    (r"num_conv_pos_embedding_groups", _to(4)),
    (r"num_parallel_samples|num_negatives", _at_most(2)),
    (r"train_num_points", _at_most(16)),
)
_PATTERNS = tuple((re.compile(pattern), rule) for pattern, rule in _TABLE)
_WIDTH_LISTS = re.compile(
    r".*(hidden_sizes|embed_dims?|channels|hidden_dims?|feature_dims|conv_dim|_dims|channel_list|dim_per_stage|out_features"
    r"|embed_dim|hidden_size)"
)


def small(name: str, old: Any) -> Any:
    """A small value for the field, of the type of the old one; the old one where the name says nothing."""
    if isinstance(old, bool) or not isinstance(old, (int, list, tuple)):
        return old
    if name == "image_grid_pinpoints":
        return [[32, 64], [64, 32]]
    if isinstance(old, (list, tuple)):
        return _small_list(name, old)
    for pattern, rule in _PATTERNS:
        if pattern.fullmatch(name):
            return rule(old)
    return old


def _small_list(name: str, old: Any) -> Any:
    if not old or not all(isinstance(item, int) and not isinstance(item, bool) for item in old):
        return old
    if name in ("depths", "layers", "num_block_repeats", "blocks_per_stage", "stage_num_blocks"):
        return type(old)(min(item, 2 if place == 0 else 1) for place, item in enumerate(old))
    if name.endswith(("heads", "heads_per_stage")):
        return type(old)(1 if item == 1 else 2 if item < 8 else 4 for item in old)
    if _WIDTH_LISTS.fullmatch(name) and name != "subsampling_conv_channels" and max(old) > 32:
        return type(old)(narrow(item) for item in old)
    return old


def narrow(width: int) -> int:
    """A width of a stage: a quarter, a multiple of 8. Channels of a picture stay."""
    return width if width <= 4 else max(8, -(-width // 32) * 8)


def absent(name: str, config: Any) -> Any:
    """A value for a field that is None by default and that models need nevertheless; None for all others."""
    if name == "head_dim" and hasattr(config, "qk_rope_head_dim"):
        return None
    return {
        "head_dim": HEAD_WIDTH, "vocab_size": VOCABULARY, "image_token_id": 90, "image_token_index": 90,
        "video_token_id": 91, "audio_token_id": 92,
    }.get(name)  # fmt: skip
