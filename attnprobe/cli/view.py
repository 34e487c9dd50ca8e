"""attnprobe view: the attention of a model on a text as a page that opens anywhere, offline."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from attnprobe.cli.choices import words_of
from attnprobe.cli.options import READ, WRITE, Flag, LoadOptions, TargetOptions
from attnprobe.errors import InputError


def view(
    model: str,
    /,
    target: TargetOptions = TargetOptions(),  # noqa: B008
    run: LoadOptions = LoadOptions(),  # noqa: B008
    *,
    text: Annotated[str | None, Parameter(group=READ)] = None,
    capture: Annotated[Path | None, Parameter(group=READ)] = None,
    truncate: Annotated[Flag, Parameter(group=READ)] = False,
    heads: Annotated[list[str] | None, Parameter(group=WRITE)] = None,
    out: Annotated[Path, Parameter(group=WRITE)],
) -> None:
    """Show every head's attention on a text: arcs between the words, all heads at once, one map, one cell.

    The page holds everything in one file and opens in any browser, without a network.

    Example:
      attnprobe view attnprobe/sentiment --text "a dull film" --out dull.html

    Parameters
    ----------
    model
        A Hugging Face Hub id, a folder with a saved model, or attnprobe/sentiment, which comes with attnprobe.
    text
        The text to read.
    capture
        In place of a text: a folder that `attnprobe capture --out` wrote with this model.
    truncate
        Cut a text that is longer than the model takes, instead of refusing it.
    heads
        Heads that stay whole on long texts, with commas between, such as 2.1,0.3; the first is opened.
        [default: chosen by what they do]
    out
        Where the page goes (.html).
    """
    from attnprobe.cli.places import check_place, written
    from attnprobe.cli.surroundings import quiet

    check_place(out, (".html",), what="a page")
    if (text is None) == (capture is None):
        raise InputError("give the text with --text, or the folder of a capture with --capture; one of them")
    if capture is not None and not (capture / "capture.json").is_file():
        raise InputError(f"{capture} holds no capture; give a folder that `attnprobe capture --out` wrote")
    with quiet():
        page = _view(model, text, capture, truncate, target, run, words_of(heads, "--heads"))
        print(f"page:   {written(out, lambda: page.save(out))}")


def _view(
    model: str,
    text: str | None,
    folder: Path | None,
    truncate: bool,
    target: TargetOptions,
    run: LoadOptions,
    heads: list[str],
) -> Any:
    import attnprobe
    from attnprobe.cli.choices import chosen_target
    from attnprobe.cli.making import read_examples
    from attnprobe.cli.options import TextOptions
    from attnprobe.cli.surroundings import load
    from attnprobe.cli.texts import read_texts

    given = [] if text is None else read_texts(TextOptions(text=[text]))
    loaded = load(model, device=run.device, dtype=run.dtype)
    goal = chosen_target(loaded, target)
    if folder is not None:
        captured = attnprobe.Capture.load(folder)
    else:
        (example,) = read_examples(loaded, given, truncate)
        keep = attnprobe.Keep.of("weights", "scores", "query", "key", "value")
        captured = loaded.capture(loaded.example(example), keep=keep)
    return attnprobe.view(captured, model=loaded, target=goal, heads=heads or None)
