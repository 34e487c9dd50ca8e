"""Tiny random transformers models of many architectures, built from configurations: nothing is downloaded."""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import transformers as t

from attnprobe.models import load

IDS = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]

_BERT = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 60,
    "max_position_embeddings": 64,
    "num_labels": 3,
}
_DECODER = {k: v for k, v in _BERT.items() if k != "num_labels"} | {
    "num_key_value_heads": 2,
    "head_dim": 8,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_SPECIAL = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

_BUILDERS: dict[str, Callable[[], Any]] = {
    "bert": lambda: t.BertForSequenceClassification(t.BertConfig(**_BERT)),
    "roberta": lambda: t.RobertaForSequenceClassification(t.RobertaConfig(**_BERT)),
    "distilbert": lambda: t.DistilBertForSequenceClassification(
        t.DistilBertConfig(dim=32, n_layers=3, n_heads=4, hidden_dim=48, vocab_size=60, max_position_embeddings=64)
    ),
    "albert": lambda: t.AlbertForSequenceClassification(t.AlbertConfig(**_BERT, embedding_size=16)),
    "electra": lambda: t.ElectraForSequenceClassification(t.ElectraConfig(**_BERT, embedding_size=16)),
    "modernbert": lambda: t.ModernBertForSequenceClassification(
        t.ModernBertConfig(**_BERT, **_SPECIAL, cls_token_id=1, sep_token_id=2, local_attention=4)
    ),
    "gpt2": lambda: t.GPT2LMHeadModel(
        t.GPT2Config(n_embd=32, n_layer=3, n_head=4, vocab_size=60, n_positions=64, bos_token_id=1, eos_token_id=2)
    ),
    "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**_DECODER)),
    "mistral": lambda: t.MistralForCausalLM(t.MistralConfig(**_DECODER, sliding_window=4)),
    "qwen3": lambda: t.Qwen3ForCausalLM(t.Qwen3Config(**_DECODER)),
    "gemma2": lambda: t.Gemma2ForCausalLM(t.Gemma2Config(**_DECODER, query_pre_attn_scalar=8, sliding_window=4)),
    "gpt_oss": lambda: t.GptOssForCausalLM(
        t.GptOssConfig(**_DECODER, num_local_experts=2, num_experts_per_tok=1, sliding_window=4)
    ),
    "t5": lambda: t.T5ForConditionalGeneration(
        t.T5Config(d_model=32, d_kv=8, num_layers=3, num_heads=4, d_ff=48, vocab_size=60, decoder_start_token_id=0)
    ),
    "bart": lambda: t.BartForConditionalGeneration(
        t.BartConfig(
            d_model=32,
            encoder_layers=3,
            decoder_layers=3,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=48,
            decoder_ffn_dim=48,
            vocab_size=60,
            max_position_embeddings=64,
            forced_eos_token_id=None,
            decoder_start_token_id=2,
            **_SPECIAL,
        )
    ),
    "vit": lambda: t.ViTForImageClassification(
        t.ViTConfig(
            hidden_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=48,
            image_size=12,
            patch_size=4,
        )
    ),
}

NAMES = tuple(_BUILDERS)
TEXT_NAMES = tuple(n for n in NAMES if n != "vit")
# These have a soft cap or sinks, which the fused kernel cannot do.
EAGER_ONLY = ("gemma2", "gpt_oss")


def build(name: str, implementation: str = "eager", *, seed: int = 0, scale: float = 4.0) -> Any:
    """A tiny model with parameters large enough that attention is far from uniform."""
    torch.manual_seed(seed)
    model = _BUILDERS[name]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(scale)
    model.set_attn_implementation(implementation)
    return model


@cache
def loaded(name: str, implementation: str = "eager", *, scale: float = 4.0, dtype: torch.dtype = torch.float32) -> Any:
    """That model, loaded: the same one for all tests that ask, none of which changes it."""
    return shared(load(build(name, implementation, scale=scale).to(dtype)))


_SHARED: list[tuple[Any, dict[str, Any]]] = []


def shared(model: Any) -> Any:
    """A loaded model that many tests use; that they leave it as it was is looked at behind each file."""
    _SHARED.append((model, _state(model.module)))
    return model


def changed() -> list[str]:
    """What tests have changed in models that they share."""
    now = [(model.name, before, _state(model.module)) for model, before in _SHARED]
    return [
        f"{name}: {part}"
        for name, before, after in now
        for part in {**before, **after}
        if not _same(before.get(part), after.get(part))
    ]


def _state(module: Any) -> dict[str, Any]:
    tensors = {name: value.clone() for name, value in module.state_dict().items()}
    free = {f"gradients of {name}": (p.requires_grad, p.grad is None) for name, p in module.named_parameters()}
    parts = {
        f"module {name}": (part.training, "forward" in vars(part), sum(len(_hooks(part, kind)) for kind in _HOOKS))
        for name, part in module.named_modules()
    }
    return {**tensors, **free, **parts, "config": str(module.config)}


_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def _hooks(part: Any, kind: str) -> list[Any]:
    """Its hooks, but for those with which transformers itself hands out attentions once it was asked for them."""
    hooks = getattr(part, kind).values()
    return [one for one in hooks if not getattr(one, "__module__", "").startswith("transformers.")]


def _same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if torch.is_tensor(one) and torch.is_tensor(other) else one == other


def given(name: str) -> Any:
    """An input that a model of this name reads."""
    return torch.rand(3, 12, 12, generator=torch.Generator().manual_seed(0)) if name == "vit" else IDS


def example(model: Any, name: str) -> Any:
    """An example of a loaded model, with a fixed answer for encoder-decoders."""
    return model.example(given(name), **({"answer": [4, 5, 6]} if name in ("t5", "bart") else {}))


def reference(module: Any, inputs: dict[str, torch.Tensor]) -> tuple[dict[tuple[str, str], torch.Tensor], torch.Tensor]:
    """The model's own eager attentions by (stack, kind), [layer head query key], and its logits."""
    before = module.config._attn_implementation
    module.set_attn_implementation("eager")
    with torch.no_grad():
        out = module(**inputs, output_attentions=True)
    module.set_attn_implementation(before)
    if hasattr(out, "cross_attentions") and getattr(out, "encoder_attentions", None):
        maps = {
            ("encoder", "self"): out.encoder_attentions,
            ("decoder", "self"): out.decoder_attentions,
            ("decoder", "cross"): out.cross_attentions,
        }
    else:
        maps = {("", "self"): out.attentions}
    return {key: torch.stack(layers)[:, 0] for key, layers in maps.items()}, out.logits
