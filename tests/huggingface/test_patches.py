"""What stands in for a patch of a picture."""

import torch

from attnprobe.models import load
from attnprobe.models.huggingface.patches import patch_vectors
from tests import tiny


def test_the_blank_patch_is_the_mean_vector_of_pictures_whose_mean_is_0():
    model = load(tiny.build("vit"))
    with torch.no_grad():
        for name, parameter in model.module.named_parameters():
            if "patch_embeddings" in name and name.endswith("bias"):
                parameter.normal_()  # of 0 in a new model, where every blank vector is 0
    example = tiny.example(model, "vit")
    pixels = example.inputs["pixel_values"]
    pair = [model.example({"pixel_values": sign * pixels}) for sign in (1, -1)]
    vectors = torch.stack([patch_vectors(model, one) for one in pair])[:, 1:]
    assert (vectors.mean((0, 1)) - model.fillers["mask"]).abs().max() < 1e-5
    assert model.fillers["mask"].norm() > 1 and model.fillers["zero"].norm() == 0
