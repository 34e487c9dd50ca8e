"""The options that commands share, in the groups under which --help shows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import CoercionError, Group, Parameter, Token
from cyclopts.validators import Number

from attnprobe.cli.completion import Formats, MethodNames, Operators


def whole(_: Any, tokens: Sequence[Token]) -> int:
    """A whole number as typed; 1.5 is refused, not rounded."""
    word = tokens[0].value
    try:
        return int(word)
    except ValueError as error:
        raise CoercionError(token=tokens[0], target_type=int) from error


AtLeastOne = Annotated[int, Parameter(validator=Number(gte=1), converter=whole)]
Flag = Annotated[bool, Parameter(show_default=False)]
NotNegative = Annotated[int, Parameter(validator=Number(gte=0), converter=whole)]

READ = Group.create_ordered("What to read")
EXPLAIN = Group.create_ordered("What to explain")
HOW = Group.create_ordered("How to explain it")
WRITE = Group.create_ordered("What to write")
RUN = Group.create_ordered("How to run it")
STUDY = Group.create_ordered("Study files")


Format = Annotated[
    Literal["table", "json", "csv"],
    Parameter(group=WRITE, help="A table to read, or json or csv for programs: then nothing else is printed."),
]


@Parameter(name="*", group=READ)
@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Where the texts come from."""

    text: list[str] | None = None
    """A text, such as "A warm, clever film." Say it again for more; intervals over texts take six."""

    file: Annotated[Path | None, Parameter(name=["--file", "--texts"])] = None
    """Texts: a table (.csv or .tsv) with one a row, or any other text file with one a line."""

    column: str | None = None
    """The column of the table that holds the texts. [default: text]"""

    truncate: Flag = False
    """Cut a text that is longer than the model takes, instead of refusing it."""


@Parameter(name="*", group=EXPLAIN)
@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Which number of the model's answer all methods explain."""

    target: str | None = None
    """The answer to explain: a class, a word of the vocabulary, or a number. [default: the predicted one]"""

    against: str | None = None
    """Explain why the target rather than this answer."""

    position: int | None = None
    """For language models: the answer at which token, from 0; -1 is the last. [default: where the model answers]"""

    scale: Literal["logit", "log_probability", "probability"] = "logit"
    """Unit of the answer: the model's raw score (logit), or its probability, with or without a logarithm."""


@Parameter(name="*", group=HOW)
@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """Which methods, with which options, judged how."""

    methods: MethodNames = None
    """Names, separated by commas; `attnprobe methods` lists them; all for all. [default: a dozen of all families]"""

    option: list[str] | None = None
    """An option of a method, as method.name=value, such as rollout.identity=0.3. Say it again for more."""

    operator: Operators = None
    """How words are removed to judge the orders: mask, mean, pad, unk, zero, resample, infill, value_zero,
    attention_mask, pad_mask, delete. Several with commas, the main one first; verdicts on maps always go by mean and
    resample. [default: mask,mean,attention_mask, as far as the model has them]"""

    n_random: AtLeastOne = 50
    """How many random orders of its words a method has to beat on each text."""

    no_oracle: Flag = False
    """Do not look for the best order of removal, which takes a third of the passes on long texts."""

    no_verdicts: Flag = False
    """Do not judge each map as an explanation of each prediction, which takes another third of them."""

    counterfactual: Flag = False
    """Look on each text for another attention that gives the same answer; takes some 650 passes a text."""

    seed: NotNegative = 0
    """Number that all random choices follow from."""

    restart: Flag = False
    """Begin anew where an earlier run was interrupted, instead of going on."""


@Parameter(name="*", group=WRITE)
@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """What a report is written as."""

    format: Formats = None
    """html, pdf, md, json, csv or parquet; several with commas between. Each takes the name of --out with its own
    ending; html also writes its tables as csv, and csv and parquet go into the folder of the name. A pdf is printed
    by Chromium, where it is installed. [default: by the ending of --out]"""

    without: list[str] | None = None
    """Tables that are not written, with commas between. [default: none]"""

    summary: list[str] | None = None
    """A sentence of your own for the top of the page. Say it again for more."""

    map_bytes: NotNegative | None = None
    """How many bytes of attention weights the page carries, texts in their order. [default: some 3 MB]"""


@Parameter(name="*", group=STUDY)
@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """Reports that stand in files."""

    config: Path | None = None
    """A study file (.toml or .yaml) with these options by their long names, and the model; its paths count from its
    own folder. What is typed here goes before what it says."""

    study: str | None = None
    """One study of a file that has several. [default: all, one after the other]"""

    save_config: Path | None = None
    """Write what was asked for into a study file, from which --config makes it again."""


@Parameter(name="*", group=RUN)
@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where the model runs."""

    batch_rows: AtLeastOne | None = None
    """The most inputs that run at once; fewer need less memory. [default: by the length of the text]"""

    device: str | None = None
    """Where the model runs, such as cpu or cuda. [default: cpu]"""

    dtype: Literal["float32", "float64", "float16", "bfloat16"] | None = None
    """Precision of the model's numbers. [default: that of the saved model]"""


@Parameter(name="*", group=RUN)
@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Where the model runs, for commands that run it once."""

    device: str | None = None
    """Where the model runs, such as cpu or cuda. [default: cpu]"""

    dtype: Literal["float32", "float64", "float16", "bfloat16"] | None = None
    """Precision of the model's numbers. [default: that of the saved model]"""
