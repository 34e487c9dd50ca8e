"""A copy of a model whose parameters may be changed, and random numbers in their place."""

import copy
import hashlib
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import nn

from attnprobe.experiments.parameter_groups import Group
from attnprobe.models.model import Model

# What a model remembers of its passes; a copy with other parameters finds it anew.
_REMEMBERED = ("_read_rows", "_projections", "_proved", "_first_attention")


def copy_of(model: Model) -> Model:
    """The same model around a deep copy of its module; tokenizer and vocabulary are shared, and nothing is remembered.

    Changes of the copy's parameters never reach the model.
    """
    shared = [vars(model).get(name) for name in ("processor", "tokenizer", "vocabulary", "inner")]
    made = copy.deepcopy(model, {id(part): part for part in shared if part is not None})
    computed = [n for kind in type(made).__mro__ for n, v in vars(kind).items() if isinstance(v, cached_property)]
    for name in (*_REMEMBERED, *computed):
        vars(made).pop(name, None)
    if "_paths" in vars(made):  # by identity of the modules, which are others now
        vars(made)["_paths"] = {id(module): path for path, module in made.module.named_modules()}
    return made


@torch.no_grad()
def randomise(module: nn.Module, groups: Sequence[Group], how: str, seed: int) -> None:
    """Replace the parameters of the groups, in place. A parameter's draw depends on its name and the seed alone.

    how: "normal", draws with the parameter's own mean and spread; "shuffle", its own numbers in another order.
    """
    for group in groups:
        for name in group.parameters:
            parameter = module.get_parameter(name)
            digest = hashlib.blake2b(f"{seed} {name}".encode(), digest_size=7).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(digest, "big"))
            flat = parameter.detach().cpu().flatten()
            if how == "shuffle":
                drawn = flat[torch.randperm(len(flat), generator=generator)]
            else:
                noise = torch.randn(len(flat), generator=generator, dtype=torch.float64)
                drawn = flat.double().mean() + flat.double().std(correction=0) * noise
            parameter.copy_(drawn.view_as(parameter).to(parameter))
