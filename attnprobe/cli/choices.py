"""Names and options of methods, the operator and the labels as typed, checked before any work."""

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from cyclopts import CoercionError, convert

from attnprobe.cli.options import TargetOptions
from attnprobe.errors import InputError, nearest
from attnprobe.registry import choices, in_words


def words_of(given: Sequence[str] | None, flag: str) -> list[str]:
    """Names from words that may hold several with commas between; none where none are given."""
    names = list(dict.fromkeys(name.strip() for word in given or () for name in word.split(",") if name.strip()))
    if given and not names:
        raise InputError(f"{flag} names nothing; give a name, or several with commas between")
    return names


def numbers(given: str | None, flag: str) -> list[int] | None:
    """Numbers with commas between; None where none are given."""
    if given is None:
        return None
    words = [word.strip() for word in given.split(",")]
    if not all(word.isdecimal() for word in words):
        raise InputError(f"{flag} takes numbers with commas between, such as 0,2, got '{given}'")
    return list(map(int, words))


def chosen_methods(given: Sequence[str] | None) -> list[str]:
    """Names of the methods, from words that may hold several with commas between; None means the default ones."""
    from attnprobe.choosing import named
    from attnprobe.methods import methods

    if given is None:
        return [str(name) for name in named(None)]
    names = [name.strip() for word in given for name in word.split(",") if name.strip()]
    if not names:
        raise InputError("--methods names no method; leave it out for the default ones")
    if names == ["all"]:
        return list(methods)
    return [methods[name].name for name in dict.fromkeys(names)]


def chosen_options(given: Iterable[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Options by method, from words such as "rollout.identity=0.3"; each is checked against its method."""
    options: dict[str, dict[str, Any]] = {}
    for word in given:
        key, equals, text = word.partition("=")
        method, dot, name = key.partition(".")
        if not (equals and dot and method and name):
            raise InputError(f"--option takes method.name=value, such as rollout.identity=0.3, got '{word}'")
        if method not in names:
            raise InputError(f"--option {word}: '{method}' is not among the methods; {nearest(method, names)}")
        options.setdefault(method, {})[name] = option_value(method, name, text)
    return options


def option_value(method: str, name: str, text: str) -> Any:
    """The value of a method's option, of the type that its function says."""
    from attnprobe.methods import methods

    entry = methods[method]
    if name not in entry.options:
        entry.check_options({name: text})  # says which options there are
    if text.lower() == "none" and entry.options[name] is None:
        return None
    hint = inspect.signature(entry.function).parameters[name].annotation
    if hint is inspect.Parameter.empty:
        return text
    try:
        return convert(hint, [text])
    except CoercionError as error:
        near = f"; {nearest(text, known)}" if (known := choices(hint)) and not text.isdigit() else ""
        raise InputError(f"option {name} of {method} is {in_words(hint)}, got '{text}'{near}") from error


def chosen_operators(given: Sequence[str] | None) -> list[str] | None:
    """Names of the operators, from words that may hold several with commas between; None means the default ones."""
    from attnprobe.models.rows import OPERATORS

    if given is None:
        return None
    names = [name.strip() for word in given for name in word.split(",") if name.strip()]
    if not names:
        raise InputError("--operator names no operator; leave it out for the default ones")
    for name in names:
        if name not in OPERATORS:
            raise InputError(f"no removal operator is named '{name}'; {nearest(name, OPERATORS)}")
    return list(dict.fromkeys(names))


def chosen_target(model: Any, options: TargetOptions) -> Any:
    """The target as typed; a label of the model that does not exist is an `InputError` with the nearest name."""
    from attnprobe.target import Target

    label, against = (None if word is None else _label(model, word) for word in (options.target, options.against))
    return Target(label=label, against=against, position=options.position, scale=options.scale)


def _label(model: Any, word: str) -> str | int:
    try:
        model.outputs.index(word)
    except InputError:
        # Of a vocabulary, digits are first the token that looks so, then a number of an output.
        if model.outputs.names is None and word.isdigit():
            return int(word)
        raise
    return word
