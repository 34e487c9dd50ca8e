"""The options that commands share, in the groups under which --help shows them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

AtLeastOne = Annotated[int, Parameter(validator=Number(gte=1))]
Flag = Annotated[bool, Parameter(show_default=False)]
NotNegative = Annotated[int, Parameter(validator=Number(gte=0))]

READ = Group.create_ordered("What to read")
EXPLAIN = Group.create_ordered("What to explain")
HOW = Group.create_ordered("How to explain it")
WRITE = Group.create_ordered("What to write")
RUN = Group.create_ordered("How to run it")


@Parameter(name="*", group=READ)
@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Where the texts come from."""

    text: list[str] | None = None
    """A text to explain. Say it again for more texts."""

    file: Path | None = None
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

    methods: list[str] | None = None
    """Names, separated by commas; `attnprobe methods` lists them; all for all. [default: a dozen of all families]"""

    option: list[str] | None = None
    """An option of a method, as method.name=value, such as rollout.identity=0.3. Say it again for more."""

    operator: list[str] | None = None
    """How words are removed to judge the orders: mask, mean, pad, unk, zero, resample, infill, value_zero,
    attention_mask, pad_mask, delete. Several with commas, the main one first; verdicts on maps always go by mean and
    resample. [default: mask,mean,attention_mask, as far as the model has them]"""

    n_random: AtLeastOne = 50
    """How many random orders of its words a method has to beat on each text."""

    seed: NotNegative = 0
    """Number that all random choices follow from."""

    restart: Flag = False
    """Begin anew where an earlier run was interrupted, instead of going on."""


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
