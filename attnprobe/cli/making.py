"""From a model and texts to a page, and what is printed of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnprobe.cli.choices import chosen_methods, chosen_operators, chosen_options, chosen_target, words_of
from attnprobe.cli.options import MethodOptions, PageOptions, RunOptions, TargetOptions
from attnprobe.cli.output import UnwrittenError, shown, tell, unfinished
from attnprobe.cli.printing import terminal
from attnprobe.cli.surroundings import load, quiet

CONTROL = "random_scores"


@dataclass(frozen=True, kw_only=True)
class Job:
    """What one page is made from."""

    model: str
    texts: Sequence[str]
    out: Path
    invocation: str
    truncate: bool = False
    target: TargetOptions = field(default_factory=TargetOptions)
    methods: MethodOptions = field(default_factory=MethodOptions)
    page: PageOptions = field(default_factory=PageOptions)
    run: RunOptions = field(default_factory=RunOptions)


def make_page(job: Job) -> None:
    """Check everything that is cheap, load the model, compare, write the page, and print what was found."""
    with quiet():
        from attnprobe.report import check_tables
        from attnprobe.report.formats import check_formats, write_all

        check_formats(job.out, job.page.format)
        without = words_of(job.page.without, "--without")
        check_tables(without, f"--without {','.join(without)}")
        with unfinished(job.out) as folder:
            comparison = compared(job, folder)
            size = {} if job.page.map_bytes is None else {"map_bytes": job.page.map_bytes}
            told: dict[str, Any] = {
                "command": job.invocation,
                "summary": job.page.summary or (),
                "without": without,
                **size,
            }
            written = write_all(comparison, job.out, job.page.format, **told)
            if written.failed:
                raise UnwrittenError(_failed(written))
    _print_results(comparison, written.paths)


def compared(job: Job, folder: Path | None = None) -> Any:
    """The comparison that a job asks for; all that is cheap is checked before any work."""
    from attnprobe.choosing import operators_of

    names = chosen_methods(job.methods.methods)
    options = chosen_options(job.methods.option or (), names)
    operators = chosen_operators(job.methods.operator)
    tell(f"loading {job.model}")
    model = load(job.model, device=job.run.device, dtype=job.run.dtype)
    operators_of(model, operators)  # a single one that this model lacks is told before any text is read
    target = chosen_target(model, job.target)
    examples = read_examples(model, job.texts, job.truncate)
    others = [name for name in names if name != CONTROL]
    beside = " and the random control" if others and len(others) < len(names) else ""
    tell(f"explaining {_count(examples, 'text')} by {_count(others or names, 'method')}{beside}")
    comparison = _compare(job, model, examples, folder, target=target, methods=names, options=options,
                          operators=operators)  # fmt: skip
    for method, rows in comparison.failures.groupby("method", sort=False):
        tell(f"{method} failed on {len(rows)} of {len(comparison.studies)} texts: {rows.error.iloc[0]}")
    return comparison


def read_examples(model: Any, texts: Sequence[str], truncate: bool) -> list[Any]:
    """The texts as the model reads them; where they may be cut, says by how much."""
    if not truncate:
        return list(texts)
    examples = [model.example(text, truncate=True) for text in texts]
    for number, example in enumerate(examples, start=1):
        if example.n_truncated:
            tell(f"text {number} was cut by {example.n_truncated} tokens; the model takes {example.n_tokens}")
    return examples


def _compare(job: Job, model: Any, examples: list, folder: Path | None, **chosen: Any) -> Any:
    from attnprobe.comparison import compare
    from attnprobe.models.evaluator import batch_rows

    asked = job.methods
    with batch_rows(job.run.batch_rows):
        return compare(
            model,
            examples,
            **chosen,
            n_random=asked.n_random,
            seed=asked.seed,
            oracle=not asked.no_oracle,
            verdicts=not asked.no_verdicts,
            counterfactual=asked.counterfactual,
            folder=folder,
            resume=not asked.restart,
        )


def _failed(written: Any) -> str:
    """What could not be written, and what could."""
    made = ", ".join(f"{name}: {shown(path)}" for name, path in written.paths.items())
    missing = "; ".join(f"{one.format} could not be made: {one.reason}" for one in written.failed)
    return f"{missing}. {f'Written: {made}' if made else 'Nothing was written'}"


def _print_results(comparison: Any, paths: Mapping[str, Path]) -> None:
    from attnprobe.finding import findings

    for finding in findings(comparison):
        print(f"- {terminal(finding.claim)}")
    for name, path in paths.items():
        if name not in ("csv", "parquet"):
            print(f"{'page' if name == 'html' else name}:".ljust(8) + shown(path))
    folders = [path.with_suffix("") if name == "html" else path for name, path in paths.items()
               if name in ("html", "csv", "parquet")]  # fmt: skip
    if folders:
        print(f"tables: {shown(folders[0])}")


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}" + ("" if len(things) == 1 else "s")
