"""Study files: the options of `attnprobe report` in a file, so that one command makes a report again.

A file says the options by their long names, and the model; `[studies.NAME]` tables are several studies, which share
what stands above them. Options of methods may be a table: `[option.rollout]`, `identity = 0`.
"""

import json
import os
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin

from cyclopts import App, ArgumentCollection, Token

from attnprobe.cli.choices import chosen_methods, words_of
from attnprobe.cli.output import printable
from attnprobe.errors import InputError, nearest
from attnprobe.placing import placed

ENDINGS = (".toml", ".yaml", ".yml")
SEVERAL = "studies"
# They say where a study stands, not what it is.
NOT_IN_A_FILE = ("config", "study", "save-config", "restart", "invocation")
SOURCES = ("text", "file", "column")


def fill_from_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Give `report` what its --config says, wherever the command line says nothing."""
    typed = {_key(argument.name): argument for argument in arguments if argument.name and argument.parse}
    if commands != ("report",) or not typed["config"].tokens:
        return
    file = Path(typed["config"].tokens[0].value)
    named = typed["study"].tokens[0].value if typed["study"].tokens else None
    known = {name: one for name, one in typed.items() if name not in (*NOT_IN_A_FILE, "*")}
    found = _checked(chosen_study(file, named), known, file)
    if any(typed[name].tokens for name in ("text", "file")):
        found = {name: value for name, value in found.items() if name not in SOURCES}
    for name, value in found.items():
        if not known[name].tokens:
            for token in _tokens(name, value, file):
                known[name].append(token)


def every_study(words: Sequence[str]) -> list[list[str]]:
    """The command line as it is, or once for each study of a file that has several."""
    words = list(words)
    file = next((_value(words, i) for i, word in enumerate(words) if word.partition("=")[0] == "--config"), None)
    alone = any(word.partition("=")[0] in ("--study", "--help", "-h") for word in words)
    if words[:1] != ["report"] or file is None or alone:
        return [words]
    names = list(_studies(read_study_file(Path(file)), Path(file)))
    return [[*words, "--study", name] for name in names] or [words]


def _value(words: Sequence[str], at: int) -> str | None:
    _, equals, value = words[at].partition("=")
    return value if equals else next(iter(words[at + 1 : at + 2]), None)


def read_study_file(file: Path) -> dict[str, Any]:
    """What the file says; `InputError` that names the file where it cannot be read."""
    if file.suffix.lower() not in ENDINGS:
        raise InputError(f"a study file ends in {', '.join(ENDINGS)}, got '{file}'")
    if not file.is_file():
        what = "a folder; give a file" if file.is_dir() else "not there"
        raise InputError(f"the study file {file} is {what}")
    try:
        text = file.read_text("utf-8-sig")
        found = tomllib.loads(text) if file.suffix.lower() == ".toml" else _yaml(text, file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the study file {file} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"the study file {file} has no options; write name: value, such as model: attnprobe/sentiment")
    return found


def _yaml(text: str, file: Path) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise InputError(f"{file} needs PyYAML, which is not installed; write the study as .toml") from error
    try:
        found = yaml.safe_load(text)
        json.dumps(found, default=str, skipkeys=True)
        return found
    except ValueError as error:  # of a value that holds itself
        raise InputError(f"the study file {file} cannot be read: an alias in it stands for what holds it") from error
    except yaml.YAMLError as error:
        raise InputError(f"the study file {file} cannot be read: {' '.join(str(error).split())}") from error


def chosen_study(file: Path, name: str | None) -> dict[str, Any]:
    """The options of one study: what all share, and its own."""
    found = read_study_file(file)
    several = _studies(found, file)
    shared = {key: value for key, value in found.items() if key != SEVERAL}
    _check_spellings(shared, file)
    if name is None:
        return shared
    if name not in several:
        hint = nearest(name, several) if several else "it is a single study; leave --study out"
        raise InputError(f"{file} has no study '{name}'; {hint}")
    own = several[name]
    _check_spellings(own, file)
    taken = set(map(_key, own))
    return {key: value for key, value in shared.items() if _key(key) not in taken} | own


def _check_spellings(table: Mapping[str, Any], file: Path) -> None:
    """Refuse an option that is written twice, in two spellings (n-random, n_random): one would win without a word."""
    found: dict[str, str] = {}
    for written in map(str, table):
        before = found.setdefault(_key(written), written)
        if before != written:
            raise InputError(f"{file}: '{before}' and '{written}' are one option; leave one of them out")


def _studies(found: Mapping[str, Any], file: Path) -> dict[str, dict[str, Any]]:
    several = found.get(SEVERAL, {})
    if not isinstance(several, dict) or not all(isinstance(one, dict) for one in several.values()):
        raise InputError(f"{file}: {SEVERAL} holds a table for each study, such as [{SEVERAL}.first]")
    return several


def _checked(found: Mapping[str, Any], known: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Values by long name, each of a kind that its option takes; paths from the folder of the file."""
    checked: dict[str, Any] = {}
    for key, value in found.items():
        name = _key(str(key))
        if name not in known:
            raise InputError(f"{file}: there is no option '{key}'; {nearest(name, known)}")
        checked[name] = _paths(name, _of_kind(name, value, known[name].hint, file), file.parent)
    return checked


def _of_kind(name: str, value: Any, hint: Any, file: Path) -> Any:
    many = any(get_origin(kind) is list for kind in (hint, *get_args(hint)))
    if name == "option" and isinstance(value, dict):
        value = [f"{key}={_word(one)}" for key, one in _flat(value)]
    if isinstance(value, dict) or value is None:
        raise InputError(f"{file}: {name} takes a value, got {'a table' if value is not None else 'nothing'}")
    if (hint is bool) != isinstance(value, bool):
        raise InputError(
            f"{file}: {name} {'is true or false' if hint is bool else 'takes a value'}, got {_word(value)!r}"
        )
    if isinstance(value, list) and not many:
        raise InputError(f"{file}: {name} takes one value, got a list of {len(value)}")
    if many and not isinstance(value, list):
        value = [value]
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, list | dict) or one is None:
            raise InputError(f"{file}: {name} takes values, got {_word(one)!r} among them")
        if isinstance(one, float) and _is_whole(hint):
            raise InputError(f"{file}: {name} is a whole number, got {one}")
    return value


def _is_whole(hint: Any) -> bool:
    """Whether an option takes whole numbers alone, so that 1.5 is not rounded without a word."""
    kinds = [kind for one in (hint, *get_args(hint)) for kind in (one, *get_args(one))]
    return int in kinds and float not in kinds and str not in kinds


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        name = f"{before}.{key}" if before else str(key)
        yield from _flat(value, name) if isinstance(value, dict) else [(name, value)]


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _paths(name: str, value: Any, folder: Path) -> Any:
    """Paths count from the folder of the file; so does a model that is a folder there."""
    if name in ("out", "file") or (name == "model" and (folder / str(value)).is_dir()):
        return str(folder / str(value))
    return value


def _tokens(name: str, value: Any, file: Path) -> Iterator[Token]:
    if isinstance(value, bool):
        yield Token(keyword=name, source=str(file), implicit_value=value)
        return
    for index, one in enumerate(value if isinstance(value, list) else [value]):
        yield Token(keyword=name, value=str(one), source=str(file), index=index)


def _key(name: Any) -> str:
    return str(name).lstrip("-").replace("_", "-").lower()


# ---------------------------------------------------------------- writing


def check_study_file(file: Path) -> None:
    """`InputError` before any work where a study cannot be saved."""
    if file.suffix.lower() != ".toml":
        raise InputError(f"a study is saved as .toml, got '{file}'")
    if file.is_dir():
        raise InputError(f"{file} is a folder; give the name of a file, such as {file / 'study.toml'}")
    there = next(parent for parent in file.absolute().parents if parent.exists())
    if not there.is_dir():
        raise InputError(f"{file} cannot be written: {there} is a file; choose another place")


def save_study(file: Path, model: str, out: Path, groups: Sequence[Any]) -> None:
    """Write what was asked for, defaults left out, paths as they are reached from the file's folder.

    The methods stand there by name even where they are the defaults, so that another version makes the same study.
    """
    folder = file.parent
    said: dict[str, Any] = {"model": _reached(Path(model), folder) if Path(model).is_dir() else model}
    for group in groups:
        for one in fields(group):
            value, name = getattr(group, one.name), _key(one.name)
            # Two numbers are written even where they are the defaults, which may be others one day.
            value = _names(name, value)
            if name not in NOT_IN_A_FILE and (value != one.default or name in ("n-random", "seed")):
                said[name] = _reached(value, folder) if isinstance(value, Path) else value
    said["out"] = _reached(out, folder)
    lines = "".join(f"{name} = {_toml(value)}\n" for name, value in said.items())
    whole = f"# Made again by: attnprobe report --config {_typed(file)}\n\n{lines}"
    try:
        placed(file, lambda new: new.write_text(whole, "utf-8"))
    except OSError as error:
        raise InputError(f"{file} cannot be written ({error.strerror}); choose another place") from error


def _names(name: str, value: Any) -> Any:
    """Options that hold names: one name an entry; the default methods by their names."""
    if name == "methods":
        return chosen_methods(value)
    return words_of(value, name) if value and name in ("format", "without", "operator") else value


def _typed(file: Path) -> str:
    """The path as it is typed from here, on one line."""
    return printable(shlex.quote(str(file)))


def _reached(path: Path, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path, folder)).as_posix()
    except ValueError:  # another drive
        return path.absolute().as_posix()


def _toml(value: Any) -> str:
    """A value as TOML says it; its strings are those of JSON, and DEL may not stand in them."""
    if isinstance(value, list):
        return "[\n" + "".join(f"  {_toml(one)},\n" for one in value) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
