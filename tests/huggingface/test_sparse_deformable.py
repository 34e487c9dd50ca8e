"""Deformable attention: its map against a loop over the points that it samples, for every variant."""

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers as t
from torch import Tensor, nn

from attnprobe.errors import CaptureError
from attnprobe.models.huggingface.sparse.dense import merge
from attnprobe.models.huggingface.sparse.layouts import LaidOut, layout_of
from tests.huggingface.sparse_models import tiny
from tests.huggingface.sparse_runs import Seen, run

SHAPES = [(3, 4), (2, 2)]
N_KEYS = sum(height * width for height, width in SHAPES)
N_QUERIES, N_HEADS, WIDTH = 5, 4, 32


def _by_config(config: type) -> Callable[[type], nn.Module]:
    return lambda kind: kind(_config(config, num_feature_levels=2, d_model=WIDTH), num_heads=N_HEADS, n_points=3)


def _config(config: type, **options: Any) -> Any:
    made = config()
    for name, value in options.items():
        setattr(made, name, value)
    return made


def _pixel_decoder(kind: type) -> nn.Module:
    return kind(embed_dim=WIDTH, num_heads=N_HEADS, n_levels=2, n_points=3)


def _second(config: type, **options: Any) -> Callable[[type], nn.Module]:
    options = {
        "d_model": WIDTH,
        "decoder_attention_heads": N_HEADS,
        "decoder_n_levels": 2,
        "num_feature_levels": 2,
        "decoder_n_points": 3,
        **options,
    }
    return lambda kind: kind(_config(config, **options))


VARIANTS: dict[str, tuple[str, str, Callable[[type], nn.Module]]] = {
    "deformable_detr": ("deformable_detr", "DeformableDetr", _by_config(t.DeformableDetrConfig)),
    "lw_detr": ("lw_detr", "LwDetr", _by_config(t.LwDetrConfig)),
    "rf_detr": ("rf_detr", "RfDetr", _by_config(t.RfDetrConfig)),
    "grounding_dino": ("grounding_dino", "GroundingDino", _by_config(t.GroundingDinoConfig)),
    "mm_grounding_dino": ("mm_grounding_dino", "MMGroundingDino", _by_config(t.MMGroundingDinoConfig)),
    "omdet_turbo": ("omdet_turbo", "OmDetTurbo", _by_config(t.OmDetTurboConfig)),
    "pp_doclayout_v2": ("pp_doclayout_v2", "PPDocLayoutV2", _by_config(t.PPDocLayoutV2Config)),
    "pp_doclayout_v3": ("pp_doclayout_v3", "PPDocLayoutV3", _by_config(t.PPDocLayoutV3Config)),
    "pp_doclayout_v4": ("pp_doclayout_v4", "PPDocLayoutV4", _by_config(t.PPDocLayoutV4Config)),
    "rt_detr": ("rt_detr", "RTDetr", _by_config(t.RTDetrConfig)),
    "mask2former": ("mask2former", "Mask2FormerPixelDecoderEncoder", _pixel_decoder),
    "oneformer": ("oneformer", "OneFormerPixelDecoderEncoder", _pixel_decoder),
    "rt_detr_v2": ("rt_detr_v2", "RTDetrV2", _second(t.RTDetrV2Config)),
    "d_fine": ("d_fine", "DFine", _second(t.DFineConfig, decoder_n_points=[2, 4])),
    "deimv2": ("deimv2", "Deimv2", _second(t.Deimv2Config, decoder_n_points=[2, 4])),
    "rt_detr_v2 discrete": ("rt_detr_v2", "RTDetrV2", _second(t.RTDetrV2Config, decoder_method="discrete")),
    "d_fine discrete": ("d_fine", "DFine", _second(t.DFineConfig, decoder_n_points=[2, 4], decoder_method="discrete")),
}


def build(variant: str) -> nn.Module:
    """The attention module of a variant alone, with offsets of about a position, some of them outside of the map."""
    file, prefix, make = VARIANTS[variant]
    source = importlib.import_module(f"transformers.models.{file}.modeling_{file}")
    module = make(getattr(source, f"{prefix}MultiscaleDeformableAttention")).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.3)
    return module


def inputs(n_rows: int = 1) -> dict[str, Any]:
    return {
        "hidden_states": torch.randn(n_rows, N_QUERIES, WIDTH),
        "encoder_hidden_states": torch.randn(n_rows, N_KEYS, WIDTH),
        "reference_points": torch.rand(n_rows, N_QUERIES, 1, 4).expand(-1, -1, 2, -1),
        "spatial_shapes": torch.tensor(SHAPES),
        "spatial_shapes_list": SHAPES,
    }


def seen(variant: str, module: nn.Module, given: dict[str, Any], change: Any = None) -> Seen:
    if not variant.startswith(("mask2former", "oneformer")):
        given = {**given, "level_start_index": torch.tensor([0, 12])}
    else:
        given = {k: v for k, v in given.items() if k != "spatial_shapes" or variant == "oneformer"}
    if "discrete" in variant or variant in ("rt_detr_v2", "d_fine", "deimv2"):
        given = {**given, "reference_points": given["reference_points"][:, :, :1]}
    with torch.no_grad():
        return run(module, given, change)


def points_of(module: Any, given: dict[str, Any]) -> tuple[Tensor, list[int], Tensor]:
    """Where each point lies, 0 to 1 in a map [query head point xy], the points of each level, and the attention."""
    counts = getattr(module, "n_points_list", None) or getattr(module, "num_points_list", None) or [3, 3]
    hidden, box = given["hidden_states"][0], given["reference_points"][0, :, :1, None]
    offsets = module.sampling_offsets(hidden).unflatten(-1, (N_HEADS, sum(counts), 2))
    scale = torch.cat([torch.full((n, 1), 1 / n) for n in counts])
    half = getattr(module, "offset_scale", 0.5)
    places = box[..., :2] + offsets * scale * box[..., 2:] * half
    return places, counts, module.attention_weights(hidden).unflatten(-1, (N_HEADS, -1)).softmax(-1)


def slow_map(module: Any, given: dict[str, Any], discrete: bool) -> Tensor:
    """[head query key], point by point."""
    places, counts, attention = points_of(module, given)
    level_of = [level for level, count in enumerate(counts) for _ in range(count)]
    first = [0, SHAPES[0][0] * SHAPES[0][1]]
    wanted = torch.zeros(N_HEADS, N_QUERIES, N_KEYS)
    for query in range(N_QUERIES):
        for head in range(N_HEADS):
            for point, level in enumerate(level_of):
                height, width = SHAPES[level]
                x, y = (places[query, head, point] * torch.tensor([width, height])).tolist()
                for row in range(height):
                    for column in range(width):
                        if discrete:
                            at = min(max(int(x + 0.5), 0), width - 1), min(max(int(y + 0.5), 0), height - 1)
                            share = float(at == (column, row))
                        else:  # the middle of a position is half a position from its edge
                            share = max(0.0, 1 - abs(x - 0.5 - column)) * max(0.0, 1 - abs(y - 0.5 - row))
                        wanted[head, query, first[level] + row * width + column] += (
                            share * attention[query, head, point]
                        )
    return wanted


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_are_shares_of_points_and_value_is_the_map(variant: str):
    module, given = build(variant), inputs()
    result = seen(variant, module, given)
    ((_, noted, (part,)),) = result.runs
    with torch.no_grad():
        wanted = slow_map(module, given, "discrete" in variant)
    torch.testing.assert_close(part.weights[0], wanted, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(part.weights @ part.value, part.z, atol=1e-5, rtol=1e-4)
    project = getattr(module, "output_proj", nn.Identity())
    torch.testing.assert_close(project(merge(part.z)), noted.output[0], atol=1e-5, rtol=1e-5)
    assert part.kind == "cross"
    sums = part.weights.sum(-1)
    assert sums.max() < 1 + 1e-5
    assert ("discrete" in variant) == bool((sums > 1 - 1e-5).all())  # some points are beyond the edge


@pytest.mark.parametrize("variant", VARIANTS)
def test_putting_z_back(variant: str):
    module, given = build(variant), inputs(2)
    before = seen(variant, module, given).output[0]
    assert torch.equal(seen(variant, module, given, lambda part: part.z).output[0], before)

    def silence(part: LaidOut) -> Tensor:
        return part.z * (torch.arange(N_HEADS) != 1)[:, None, None]

    silent = seen(variant, module, given, silence).output[0]
    assert (silent - before).abs().max() > 1e-2
    if not hasattr(module, "output_proj"):
        torch.testing.assert_close(silent[..., 8:16], torch.zeros(2, N_QUERIES, 8))
        return
    kept = (torch.arange(WIDTH) // 8 != 1).float()
    module.output_proj.register_forward_pre_hook(lambda _, args: (args[0] * kept,))
    torch.testing.assert_close(silent, seen(variant, module, given).output[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("variant", ["deformable_detr", "mask2former", "rt_detr_v2", "rt_detr_v2 discrete"])
def test_masked_positions_have_no_value(variant: str):
    given = inputs()
    mask = torch.ones(1, N_KEYS, dtype=torch.bool)
    mask[0, [1, 14]] = False
    given["attention_mask"] = ~mask if variant == "mask2former" else mask  # which has it the other way round
    ((_, _, (part,)),) = seen(variant, build(variant), given).runs
    assert bool((part.value[0, :, ~mask[0]] == 0).all())
    torch.testing.assert_close(part.weights @ part.value, part.z, atol=1e-5, rtol=1e-4)


def test_the_map_of_an_encoder_is_self_attention_and_that_of_a_decoder_is_not():
    model = tiny("deformable_detr")
    with torch.no_grad():
        parts = run(model.module, model.inputs).parts
    kinds = [("encoder" in path.split(".")[0], part.kind, part.weights.shape[2:]) for path, part in parts]
    n_keys = parts[0][1].weights.shape[-1]
    assert [(kind, shape[0] == n_keys) for _, kind, shape in kinds] == [("self", True)] * 2 + [("cross", False)] * 2


def test_discrete_points_around_reference_points_without_a_box_are_refused():
    ((_, noted, _),) = seen("deformable_detr", build("deformable_detr"), inputs()).runs
    module = build("rt_detr_v2 discrete")
    noted = replace(
        noted,
        module=module,
        kwargs={**noted.kwargs, "reference_points": torch.rand(1, N_QUERIES, 2, 2)},
        calls=tuple(call for call in noted.calls if call.name != "grid_sample"),
    )
    with pytest.raises(CaptureError, match="4 numbers"):
        layout_of(module)(noted)
