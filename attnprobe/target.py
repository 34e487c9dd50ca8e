"""The one number that all methods explain."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import InputError, nearest
from attnprobe.example import Example

Scale = Literal["logit", "log_probability", "probability"]


@runtime_checkable
class Outputs(Protocol):
    """What a model's outputs are called, classes or the words of a vocabulary, and where it answers."""

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the classes, None for a vocabulary."""
        ...

    @property
    def exclusive(self) -> bool:
        """Whether one output excludes the others (softmax), or each is true or false by itself (sigmoid)."""
        ...

    @property
    def causal(self) -> bool:
        """Whether an answer at a position depends on no token behind it."""
        ...

    def index(self, label: str | int) -> int:
        """Index of an output; `InputError` names the nearest one if there is none of that name."""
        ...

    def name(self, index: int) -> str:
        """Name of an output."""
        ...

    def position(self, example: Example) -> int | None:
        """Where the model answers, for outputs at every position; None for one answer an input."""
        ...


@dataclass(frozen=True)
class Target:
    """What to explain: an output, or the difference of two, on a scale.

    label: class or token, by name (str) or index (any whole number); None means what the model predicts.
    against: "label rather than this": the difference of the two.
    position: for outputs at every position (language models): which one; None means where the model answers.
    scale: "logit" (default), "log_probability" or "probability" (0 to 1), by softmax, or by sigmoid where a model's
    labels do not exclude one another. A whole answer of an encoder-decoder has no logit: "logit" means its
    log-probability there.
    function: instead of all that, any function of the logits [row ...] that gives [row].
    """

    label: Any = None
    against: Any = None
    position: Any = None
    scale: str = "logit"
    function: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.scale not in get_args(Scale):
            raise InputError(f"no scale is named '{self.scale}'; {nearest(self.scale, get_args(Scale))}")
        for name in ("label", "against"):
            object.__setattr__(self, name, _checked_label(name, getattr(self, name)))
        if self.position is not None:
            object.__setattr__(self, "position", _whole_number("position", self.position, "a whole number"))

    def resolve(self, logits: Tensor, outputs: Outputs, example: Example) -> "ResolvedTarget":
        """Fill in what was left open, from the logits [1 ...] of the example as it is.

        Errors: `InputError` for a name or a position that the model does not have.
        """
        if self.function is not None:
            name = getattr(self.function, "__name__", "function")
            return ResolvedTarget(
                -1, name, None, None, None, "logit", -1, "", float("nan"), float("nan"), self.function
            )
        # An answer at every position is asked for its place; one answer an input has none.
        given = outputs.position(example) if self.position is None and logits.ndim > 2 else self.position
        position = _check_position(logits, given)
        row = logits[0] if position is None else logits[0, position]
        predicted = int(row.argmax())
        label = predicted if self.label is None else _check_index(outputs.index(self.label), row)
        against = None if self.against is None else _check_index(outputs.index(self.against), row)
        if against == label:
            raise InputError(f"the target is '{outputs.name(label)}' against itself; choose another label or against")
        single = outputs.exclusive and row.numel() == 1
        if single and self.scale != "logit":
            raise InputError(
                f"the model gives one number, which has no {self.scale.replace('_', '-')}; use the scale 'logit'"
            )
        probabilities = _on_scale(row.detach().double(), "probability", outputs.exclusive)
        return ResolvedTarget(
            label=label,
            label_name=outputs.name(label),
            against=against,
            against_name=None if against is None else outputs.name(against),
            position=position,
            scale=self.scale,  # type: ignore[arg-type]
            predicted=predicted,
            predicted_name=outputs.name(predicted),
            predicted_probability=float("nan") if single else float(probabilities[predicted]),
            label_probability=float("nan") if single else float(probabilities[label]),
            exclusive=outputs.exclusive,
            last_seen=position if outputs.causal else None,
        )


@dataclass(frozen=True)
class ResolvedTarget:
    """A target with every choice made; called on logits [row ...], gives the number explained [row].

    exclusive: whether one output excludes the others (softmax), or not (sigmoid). last_seen: the last token that the
    answer can depend on, None for all.
    """

    label: int
    label_name: str
    against: int | None
    against_name: str | None
    position: int | None
    scale: Scale
    predicted: int
    predicted_name: str
    predicted_probability: float
    label_probability: float
    function: Callable[[Tensor], Tensor] | None = field(default=None, repr=False)
    last_seen: int | None = None
    exclusive: bool = True

    def __call__(self, logits: Float[Tensor, " row *rest"]) -> Float[Tensor, " row"]:
        """The explained number of each row, in the units of `scale`."""
        if self.function is not None:
            value = self.function(logits)
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            if got != tuple(logits.shape[:1]):
                raise InputError(f"a target function gives one number a row {tuple(logits.shape[:1])}, got {got}")
            return value
        scores = _on_scale(self._answers(logits), self.scale, self.exclusive)
        value = scores[:, self.label]
        return value if self.against is None else value - scores[:, self.against]

    def probability(self, logits: Float[Tensor, " row *rest"]) -> Float[Tensor, " row"]:
        """Probability of the label in each row, 0 to 1, whatever the scale."""
        return _on_scale(self._answers(logits), "probability", self.exclusive)[:, self.label]

    def _answers(self, logits: Tensor) -> Float[Tensor, "row output"]:
        if self.position is None:
            return logits
        if self.position >= logits.shape[1]:
            raise InputError(f"position {self.position} is explained, but this input has {logits.shape[1]} positions")
        return logits[:, self.position]

    def on(self, scale: Scale) -> "ResolvedTarget":
        """The same target on another scale."""
        return ResolvedTarget(**{**self.__dict__, "scale": scale})

    @property
    def description(self) -> str:
        """In words: "log-probability of positive rather than negative at position 5"."""
        if self.function is not None:
            return f"the function {self.label_name}"
        words = f"{self.scale.replace('log_', 'log-')} of {self.label_name}"
        words += f" rather than {self.against_name}" if self.against_name is not None else ""
        return words + (f" at position {self.position}" if self.position is not None else "")


def as_target(given: Any) -> Target:
    """A `Target` from a target, the name or the number of a label, or None for what the model predicts.

    Errors: `InputError` for anything else.
    """
    if isinstance(given, Target):
        return given
    return Target(label=given)


def _checked_label(name: str, given: Any) -> str | int | None:
    if given is None or isinstance(given, str):
        return given
    return _whole_number(name, given, "the name of an output or its whole number")


def _whole_number(name: str, given: Any, expected: str) -> int:
    truth = isinstance(given, bool) or getattr(given, "dtype", None) == torch.bool
    try:
        if truth:
            raise TypeError
        return operator.index(given)
    except TypeError as error:
        raise InputError(f"{name} is {expected}, got {given!r} ({type(given).__name__})") from error


def _on_scale(logits: Tensor, scale: str, exclusive: bool) -> Tensor:
    """Logits [... output] on a scale: by softmax, or by sigmoid where outputs do not exclude one another.

    In float32 at least: half precision has steps that are larger than most effects on a probability.
    """
    logits = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
    if scale == "log_probability":
        return logits.log_softmax(-1) if exclusive else torch.nn.functional.logsigmoid(logits)
    if scale == "probability":
        return logits.softmax(-1) if exclusive else logits.sigmoid()
    return logits


def _check_position(logits: Tensor, position: int | None) -> int | None:
    if logits.ndim == 2:
        if position is not None:
            raise InputError(
                f"this model gives one answer for the whole input; position {position} has no meaning here"
            )
        return None
    if position is None:
        raise InputError("this model gives an output at every position; say which one with Target(position=…)")
    length = logits.shape[1]
    if not -length <= position < length:
        raise InputError(f"position {position} is outside of the {length} positions (0 to {length - 1})")
    return position % length


def _check_index(index: int, row: Tensor) -> int:
    if not 0 <= index < row.numel():
        raise InputError(f"label {index} is outside of the model's {row.numel()} outputs (0 to {row.numel() - 1})")
    return index
