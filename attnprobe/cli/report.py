"""attnprobe report: a page for a model and texts of your own, or for a study that stands in a file."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from attnprobe.cli.options import (
    WRITE,
    MethodOptions,
    PageOptions,
    RunOptions,
    StudyOptions,
    TargetOptions,
    TextOptions,
)


def report(
    model: str,
    /,
    texts: TextOptions = TextOptions(),  # noqa: B008
    target: TargetOptions = TargetOptions(),  # noqa: B008
    methods: MethodOptions = MethodOptions(),  # noqa: B008
    page: PageOptions = PageOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    study: StudyOptions = StudyOptions(),  # noqa: B008
    *,
    out: Annotated[Path, Parameter(group=WRITE)],
    invocation: Annotated[str, Parameter(parse=False)] = "",
) -> None:
    """Compare methods on your own model and texts, and write a page.

    The page shows each text coloured by each method, the attention itself, where
    the methods agree, and which of them point at words whose removal changes the
    prediction, against random orders. It opens in any browser, without a network.
    Its tables are written beside it as CSV.

    Example:
      attnprobe report attnprobe/sentiment --text "a dull, lifeless film" --out dull.html

    Parameters
    ----------
    model
        A Hugging Face Hub id, a folder with a saved model, or attnprobe/sentiment, which comes with attnprobe.
    out
        Where the page goes; its tables go into the folder of the same name.
    """
    from attnprobe.cli.making import Job, make_page
    from attnprobe.cli.study_file import check_study_file, save_study
    from attnprobe.cli.texts import read_texts

    given = read_texts(texts)
    check_inputs_kept(out, page, texts, study)
    if study.save_config is not None:
        check_study_file(study.save_config)
    asked: dict[str, Any] = {"target": target, "methods": methods, "page": page, "run": run}
    make_page(Job(model=model, texts=given, truncate=texts.truncate, out=out, invocation=invocation, **asked))
    if study.save_config is not None:
        save_study(study.save_config, model, out, (texts, *asked.values()))


def check_inputs_kept(out: Path, page: PageOptions, texts: TextOptions, study: StudyOptions) -> None:
    """`InputError` where the report, its tables or the saved study would be written over a file that is read."""
    from attnprobe.cli.places import check_kept
    from attnprobe.cli.surroundings import quiet

    with quiet():
        from attnprobe.report.formats.names import FOLDERS, chosen_formats, places

        asked = places(out, chosen_formats(page.format, out))
    folders = [path.with_suffix("") if name == "html" else path for name, path in asked.items()
               if name in ("html", *FOLDERS)]  # fmt: skip
    saved = [] if study.save_config is None else [study.save_config]
    check_kept([texts.file, study.config], [*asked.values(), *saved], folders[0] if folders else None)
