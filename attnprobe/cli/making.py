"""From a model and texts to a page, and what is printed of it."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attnprobe.cli.choices import chosen_methods, chosen_operators, chosen_options, chosen_target
from attnprobe.cli.options import MethodOptions, RunOptions, TargetOptions
from attnprobe.cli.output import shown, tell, unfinished
from attnprobe.cli.surroundings import load, quiet


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
    run: RunOptions = field(default_factory=RunOptions)


def make_page(job: Job) -> None:
    """Check everything that is cheap, load the model, compare, write the page, and print what was found."""
    with quiet():
        from attnprobe.choosing import operators_of
        from attnprobe.report import check_writable

        check_writable(job.out)
        names = chosen_methods(job.methods.methods)
        options = chosen_options(job.methods.option or (), names)
        operators = chosen_operators(job.methods.operator)
        tell(f"loading {job.model}")
        model = load(job.model, device=job.run.device, dtype=job.run.dtype)
        operators_of(model, operators)  # a single one that this model lacks is told before any text is read
        target = chosen_target(model, job.target)
        examples = read_examples(model, job.texts, job.truncate)
        tell(f"explaining {_count(examples, 'text')} by {_count(names, 'method')}")
        chosen = {"methods": names, "options": options, "operators": operators}
        comparison = _compare(job, model, examples, target, chosen)
    _print_results(comparison, job.out)


def read_examples(model: Any, texts: Sequence[str], truncate: bool) -> list[Any]:
    """The texts as the model reads them; where they may be cut, says by how much."""
    if not truncate:
        return list(texts)
    examples = [model.example(text, truncate=True) for text in texts]
    for number, example in enumerate(examples, start=1):
        if example.n_truncated:
            tell(f"text {number} was cut by {example.n_truncated} tokens; the model takes {example.n_tokens}")
    return examples


def _compare(job: Job, model: Any, examples: list, target: Any, chosen: dict[str, Any]) -> Any:
    from attnprobe.comparison import compare
    from attnprobe.models.evaluator import batch_rows

    with ExitStack() as stack:
        folder = stack.enter_context(unfinished(job.out))
        stack.enter_context(batch_rows(job.run.batch_rows))
        comparison = compare(
            model,
            examples,
            target=target,
            **chosen,
            n_random=job.methods.n_random,
            seed=job.methods.seed,
            folder=folder,
            resume=not job.methods.restart,
        )
        comparison.report(job.out, command=job.invocation)
    return comparison


def _print_results(comparison: Any, page: Path) -> None:
    from attnprobe.finding import findings

    for method, rows in comparison.failures.groupby("method", sort=False):
        tell(f"{method} failed on {len(rows)} of {len(comparison.studies)} texts: {rows.error.iloc[0]}")
    for finding in findings(comparison):
        print(f"- {finding.claim}")
    print(f"page:   {shown(page)}")
    print(f"tables: {shown(page.with_suffix(''))}")


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}" + ("" if len(things) == 1 else "s")
