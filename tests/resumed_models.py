"""More tiny models: layers whose attention and feed-forward part run beside each other, and other layouts."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as t

from tests import tiny

_SIZE = {"vocab_size": 60, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
_LLAMA_LIKE = {
    **_SIZE,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}

_BUILDERS: dict[str, Callable[[], Any]] = {
    "gptj": lambda: t.GPTJForCausalLM(
        t.GPTJConfig(n_embd=32, n_layer=3, n_head=4, rotary_dim=4, n_positions=64, **_SIZE)
    ),
    "falcon": lambda: t.FalconForCausalLM(
        t.FalconConfig(
            hidden_size=32, num_hidden_layers=3, num_attention_heads=4, alibi=False, multi_query=False, **_SIZE
        )
    ),
    "gpt_neox": lambda: t.GPTNeoXForCausalLM(t.GPTNeoXConfig(**_LLAMA_LIKE)),
    "opt": lambda: t.OPTForCausalLM(
        t.OPTConfig(
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            ffn_dim=48,
            word_embed_proj_dim=32,
            max_position_embeddings=64,
            **_SIZE,
        )
    ),
    "bloom": lambda: t.BloomForCausalLM(t.BloomConfig(hidden_size=32, n_layer=3, n_head=4, **_SIZE)),
    "phi": lambda: t.PhiForCausalLM(t.PhiConfig(**_LLAMA_LIKE)),
    "mixtral": lambda: t.MixtralForCausalLM(
        t.MixtralConfig(**_LLAMA_LIKE, num_key_value_heads=2, num_local_experts=2, num_experts_per_tok=1)
    ),
}
MORE = tuple(_BUILDERS)


def build(name: str, implementation: str = "eager", *, scale: float = 4.0) -> Any:
    """A tiny model, one of `tiny` or one of these."""
    if name in tiny.NAMES:
        return tiny.build(name, implementation, scale=scale)
    torch.manual_seed(0)
    model = _BUILDERS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(scale)
    model.set_attn_implementation(implementation)
    return model
