"""attnprobe inspect: what there is to probe in a model."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from attnprobe.cli.options import READ, Format, LoadOptions
from attnprobe.cli.printing import emit
from attnprobe.errors import CaptureError

if TYPE_CHECKING:
    from attnprobe.models.inspecting import Inspection


def inspect(
    model: str,
    /,
    run: LoadOptions = LoadOptions(),  # noqa: B008
    *,
    text: Annotated[str | None, Parameter(group=READ)] = None,
    format: Format = "table",
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
    """
    from attnprobe.cli.surroundings import load, quiet

    with quiet():
        from attnprobe.models.inspecting import inspect as look

        found = look(load(model, device=run.device, dtype=run.dtype), text)
    if found.reason is not None:
        raise CaptureError(found.reason)
    emit(format, lambda: facts(found), lambda: print(found), found.to_frame)


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
