"""attnprobe compare: what a report says, on the terminal."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from attnprobe.cli.options import WRITE, Format, MethodOptions, RunOptions, TargetOptions, TextOptions
from attnprobe.cli.output import shown, tell
from attnprobe.cli.printing import emit, show_table


def compare(
    model: str,
    /,
    texts: TextOptions = TextOptions(),  # noqa: B008
    target: TargetOptions = TargetOptions(),  # noqa: B008
    methods: MethodOptions = MethodOptions(),  # noqa: B008
    run: RunOptions = RunOptions(),  # noqa: B008
    *,
    table: Annotated[str, Parameter(group=WRITE)] = "faithfulness",
    out: Annotated[Path | None, Parameter(group=WRITE)] = None,
    format: Format = "table",
    invocation: Annotated[str, Parameter(parse=False)] = "",
) -> None:
    """Compare methods on your own model and texts, and print what was found.

    Printed are the claim, whether each map explains the prediction, how far the answer
    falls when words are taken away in each method's order, beside random orders, how
    far the methods agree, and what they cost.

    Example:
      attnprobe compare attnprobe/sentiment --text "a dull film" --methods raw_attention,leave_one_out

    Parameters
    ----------
    model
        A Hugging Face Hub id, a folder with a saved model, or attnprobe/sentiment, which comes with attnprobe.
    table
        Which table --format csv prints, such as attributions, agreement, verdicts; json holds all.
    out
        A folder for all tables as csv. [default: they are only printed]
    """
    from attnprobe.cli.making import Job, compared
    from attnprobe.cli.places import check_folder
    from attnprobe.cli.surroundings import quiet
    from attnprobe.cli.texts import read_texts

    if out is not None:
        check_folder(out)
    given = read_texts(texts)
    job = Job(model=model, texts=given, truncate=texts.truncate, target=target, methods=methods, run=run,
              out=out or Path(), invocation=invocation)  # fmt: skip
    with quiet():
        _check_table(table)
        _print(compared(job), format, table, invocation, out)


def _check_table(name: str) -> None:
    from attnprobe.comparison import TABLES
    from attnprobe.errors import InputError, nearest

    known = ("attributions", "predictions", *TABLES, "heads", "texts")
    if name not in known:
        raise InputError(f"no table is named '{name}'; {nearest(name, known)}")


def _print(comparison: Any, format: str, table: str, command: str, out: Path | None) -> None:
    from attnprobe.report.formats.digest import digest
    from attnprobe.report.formats.document import document
    from attnprobe.report.formats.tabular import every_table, save_csv

    def show() -> None:
        found = digest(comparison)
        others = [one for one in found.findings if one.partition(":")[0] not in found.claim]
        show_table(["what was found"], [[found.claim], *([f"- {one}"] for one in others)])
        for block in found.blocks:
            print()
            show_table(block.headers, block.rows, left=block.left, title=block.title, note=block.note)

    emit(format, lambda: document(comparison, command=command), show, lambda: every_table(comparison)[table])
    if out is not None:
        save_csv(every_table(comparison), out)
        tell(f"tables: {shown(out)}")
