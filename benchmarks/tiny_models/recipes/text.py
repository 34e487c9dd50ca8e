"""Text models: sparse patterns short enough to bind, mixed layers, experts that are off by default."""

from typing import Any

from torch import nn

from benchmarks.tiny_models.inputs import text
from benchmarks.tiny_models.registry import inputs, settings, tweak

# Mixed layers: one of each kind.
settings("bamba", attn_layer_indices=[1], mamba_chunk_size=4)
settings("granitemoehybrid", layer_types=["linear_attention", "full_attention"], mamba_chunk_size=4)
settings("jamba", attn_layer_period=2, attn_layer_offset=1, use_mamba_kernels=False)
settings("recurrent_gemma", num_hidden_layers=3, lru_width=64)
settings(
    "zamba",
    attention_hidden_size=128,
    attention_head_dim=32,
    num_hidden_layers=4,
    layers_block_type=["linear_attention", "hybrid"] * 2,
    use_mamba_kernels=False,
)
settings("zamba2", num_hidden_layers=4, layers_block_type=["linear_attention", "hybrid"] * 2, chunk_size=4,
         mamba_ngroups=1, use_mamba_kernels=False)  # fmt: skip
settings("lfm2_moe", layer_types=["conv", "full_attention"])
settings("mamba2", num_heads=8, n_groups=2, chunk_size=4)
settings("gemma3n_text", num_hidden_layers=4, num_kv_shared_layers=2, intermediate_size=64,
         layer_types=["sliding_attention", "full_attention"] * 2, activation_sparsity_pattern=[0.0] * 4)  # fmt: skip

# Widths that hang together in a way of their own.
settings("lilt", hidden_size=48, intermediate_size=48)
settings("layoutlmv3 layoutlmv2 layoutxlm", coordinate_size=8, shape_size=16)
settings("mobilebert", intra_bottleneck_size=64)
settings("nemotron", num_key_value_heads=2)
settings("esm", pad_token_id=1, mask_token_id=4)
settings("xmod", languages=["en_XX"], default_language="en_XX")
settings("step3p5", sliding_window=4)

# Experts.
settings("dots1", n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1, n_shared_experts=1)
settings("diffusion_gemma_text", num_experts=4, top_k_experts=2, moe_intermediate_size=64)
settings("deepseek_v2", num_experts_per_tok=2, n_group=1, topk_group=1)
settings("deepseek_ocr2_text", mlp_layer_types=["dense", "sparse"], num_experts_per_tok=2, n_group=1, topk_group=1)
settings("dots3_note_text", num_key_value_heads=4, swa_num_attention_heads=4, swa_num_key_value_heads=4,
         swa_q_lora_rank=32, swa_kv_lora_rank=32, swa_head_dim=24, swa_qk_nope_head_dim=16,
         swa_v_head_dim=16)  # fmt: skip
settings("nemotron_h", n_groups=2)
settings("qwen4_exp_text", indexer_n_heads=4, indexer_kv_heads=1, indexer_head_dim=16, indexer_budget=4,
         indexer_compress_ratio=2)  # fmt: skip

# Layers that differ in more than their kind.
settings("gemma4_text gemma4_unified_text", global_head_dim=16)

# Windows, blocks, chunks.
settings("gpt_neo", window_size=4, num_layers=2, attention_types=[[["global", "local"], 1]])
settings("dory", num_hidden_layers=3, n_input_layers=1, n_recurrent_layers=1, n_output_layers=1)
settings("glm5_next_text", index_topk=4, index_kpool=2)
settings("longformer", attention_window=[4, 4])
settings("led", attention_window=[4, 4])
settings("big_bird bigbird_pegasus", block_size=2, num_random_blocks=1)
settings("longt5", local_radius=2, global_block_size=4)
settings("canine", local_transformer_stride=4)
settings("nystromformer", num_landmarks=4, segment_means_seq_len=16)
settings("reformer", attn_layers=["local", "lsh"], axial_pos_shape=[4, 4], axial_pos_embds_dim=[32, 32], hash_seed=0,
         local_attn_chunk_length=4, lsh_attn_chunk_length=4, num_buckets=2, feed_forward_size=64)  # fmt: skip


@inputs("reformer", "nystromformer", "canine", "longformer")
def _sixteen(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": text(16)}


@inputs("led", "longt5")
def _sixteen_and_nine(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": text(16), "decoder_input_ids": text(9, shift=3)}


@inputs("big_bird")
def _blocks(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": text(20)}


@inputs("bigbird_pegasus")
def _blocks_and_nine(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": text(20), "decoder_input_ids": text(9, shift=3)}


@tweak("ernie4_5_vl_moe_text")
def _equal_sides(config: Any) -> None:
    config.rope_parameters["mrope_section"] = [3, 3, 2]


@tweak("dbrx")
def _theta(config: Any) -> None:
    config.attn_config.rope_theta = 10000.0
    config.attn_config.clip_qkv = 8.0


@tweak("cohere_compass_text")
def _one_rope(config: Any) -> None:
    sections = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    config.rope_parameters = {"full_attention": dict(sections), "sliding_attention": dict(sections)}
    config.layer_types = ["sliding_attention", "full_attention"]


@inputs("dory", "blt")
def _without_cache(module: nn.Module, config: Any) -> dict[str, Any]:
    return {"input_ids": text(), "use_cache": False}
