"""attnprobe inspect: what there is to probe in a model."""

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from attnprobe.cli.options import READ, RUN, WRITE
from attnprobe.errors import CaptureError

if TYPE_CHECKING:
    from attnprobe.models.inspecting import Inspection


def inspect(
    model: str,
    /,
    *,
    text: Annotated[str | None, Parameter(group=READ)] = None,
    format: Annotated[Literal["table", "json"], Parameter(group=WRITE)] = "table",
    device: Annotated[str | None, Parameter(group=RUN)] = None,
    dtype: Annotated[Literal["float32", "float64", "float16", "bfloat16"] | None, Parameter(group=RUN)] = None,
) -> None:
    """Print what there is to probe in a model: its attention, layers and heads, and how each is reached.

    Example:
      attnprobe inspect attnprobe/sentiment

    Parameters
    ----------
    model
        A Hugging Face Hub id, a folder with a saved model, or attnprobe/sentiment, which comes with attnprobe.
    text
        Look at the model while it reads this text. [default: a short input made from its configuration]
    format
        A table to read, or json for programs.
    device
        Where the model runs, such as cpu or cuda. [default: cpu]
    dtype
        Precision of the model's numbers. [default: that of the saved model]
    """
    from attnprobe.cli.surroundings import load, quiet

    with quiet():
        from attnprobe.models.inspecting import inspect as look

        found = look(load(model, device=device, dtype=dtype), text)
    if found.reason is not None:
        raise CaptureError(found.reason)
    print(json.dumps(facts(found), indent=2, ensure_ascii=False) if format == "json" else found)


def facts(found: "Inspection") -> dict[str, Any]:
    """What was found, for programs: facts of the model, a record a layer, and what cannot be shown."""
    named = ("model", "architecture", "n_parameters", "dtype", "implementation", "probed")
    return {
        **{name: getattr(found, name) for name in named},
        "layers": found.to_frame().to_dict(orient="records"),
        "mapless": [
            {"path": layer.path, "class": layer.layer_class, "reason": layer.reason} for layer in found.mapless
        ],
        "unseen": list(found.unseen),
        "blank": list(found.blank),
    }
