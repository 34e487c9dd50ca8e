"""How the numbers were made: methods, checks, failures, warnings, provenance. No absolute path gets through."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from attnprobe.appearance import FAMILY_WORDS, look, number, scientific, seconds
from attnprobe.comparison import Comparison
from attnprobe.methods import methods as registry
from attnprobe.report.nouns import PICTURES, TEXTS, Nouns, nouns
from attnprobe.report.tokens import visible

_PATH = re.compile(r"(?<![\w/.~:<>-])(/(?:[\w.@+~-]+/)+[\w.@+~-]+|[A-Za-z]:\\[^\s\"']+)")


# Settings of more letters than this are folded.
LINE = 80


def without_paths(text: str) -> str:
    """The text with absolute paths cut down: to the working directory, to home, else to their last part.

    >>> without_paths("attnprobe report /srv/secret/models/bert --out page.html")
    'attnprobe report …/bert --out page.html'
    """

    def short(match: re.Match[str]) -> str:
        path = match.group(1)
        for root, name in ((Path.cwd(), ""), (Path.home(), "~/")):
            if path.startswith(f"{root}/") and str(root) != "/":
                return name + path[len(str(root)) + 1 :]
        return "…/" + re.split(r"[/\\]", path)[-1]

    return _PATH.sub(short, text)


def is_shortened(command: str) -> bool:
    """Whether a command cannot be run as the page shows it, since a path outside of the folder was cut down.

    >>> is_shortened("attnprobe report m --file /srv/x/t.csv"), is_shortened("attnprobe report m --file t.csv")
    (True, False)
    """
    return without_paths(command).count("…/") > command.count("…/")


def lines(command: str) -> str:
    """A long command with an option a line; what stands in quotes stays as it is.

    >>> print(lines("attnprobe report some/model --text 'a text with -- in it, longer than a line' --out page.html"))
    attnprobe report some/model \\
      --text 'a text with -- in it, longer than a line' \\
      --out page.html
    """
    if len(command) < 70:
        return command
    words = re.findall(r"(?:\"(?:\\.|[^\"\\])*\"|'[^']*'|\\.|[^\s\"'])+|[\"']", command)
    if " ".join(words) != command:
        return command
    return "".join(f" \\\n  {word}" if word.startswith("--") else f" {word}" for word in words).lstrip()


def methods(comparison: Comparison, names: list[str]) -> list[dict[str, Any]]:
    """A row a method: what it computes, where it is from, what it cost, how it was set."""
    costs = comparison.costs.set_index("method")
    said = nouns(comparison).said
    return [_method(comparison, name, costs, said) for name in names]


def _method(comparison: Comparison, name: str, costs: Any, said: Callable[[str], str]) -> dict[str, Any]:
    entry = next((e for e in registry.values() if e.name == name), None)
    a = next(found for s in comparison.studies if (found := s.attribution(name)) is not None)
    facts = entry.facts if entry else {}
    signs = {found.signed for s in comparison.studies if (found := s.attribution(name)) is not None}
    cost = costs.loc[name]
    passes = [
        f"{_count(cost[kind])} {kind.split('_')[0]}" for kind in ("forward_passes", "backward_passes") if cost[kind] > 0
    ]
    return {
        "name": name,
        "label": look(name).label,
        "family": FAMILY_WORDS.get(a.family, a.family),
        "description": said(entry.description) if entry else "a function given by the caller",
        "formula": said(str(facts.get("formula", ""))),
        "source": entry.source if entry else "",
        "signed": "yes" if signs == {True} else "none",
        "passes": ", ".join(passes) or "none of its own",
        "seconds": seconds(float(cost.seconds)),
        "settings": (set_so := settings(a.options, a.used)),
        "brief": brief(set_so),
    }


def _count(passes: float) -> str:
    return number(passes, 0 if float(passes).is_integer() or passes >= 100 else 1)


def settings(options: dict[str, Any], used: dict[str, Any]) -> str:
    """Options, with what the method chose for those left open.

    >>> settings({"operator": None, "window": 3}, {"operator": "mask"})
    'operator mask, window 3'
    """
    chosen = {
        **options,
        **{k: v for k, v in used.items() if options.get(k, ...) is None or k not in options or k == "n_steps"},
    }
    words = []
    for name, value in chosen.items():
        if value is None or callable(value) or name == "change":
            continue
        words.append(f"{name} {_plain(value)}")
    return without_paths(", ".join(words))


def brief(said: str) -> str:
    """The first of the settings, and how many more there are; empty where all of them fit on a line.

    >>> brief("window 3, operator mask"), brief(f"window 3, parts ({'a 1, ' * 30}b 2), seed 0")
    ('', 'window 3 and 2 more')
    """
    if len(said) <= LINE:
        return ""
    whole = re.split(r", (?![^(]*\))", said)
    n = max(1, next(n for n in range(len(whole), -1, -1) if len(", ".join(whole[:n])) <= LINE))
    return ", ".join(whole[:n]) + (f" and {len(whole) - n} more" if n < len(whole) else "")


def _plain(value: Any) -> str:
    """A setting without the marks of a programming language."""
    if isinstance(value, Mapping):
        return f"({', '.join(f'{key} {_plain(one)}' for key, one in value.items())})"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value))
    return f"{value:.4g}".replace("-", "\N{MINUS SIGN}") if isinstance(value, float) else str(value)


def checks(comparison: Comparison) -> list[dict[str, Any]]:
    """What was measured, the largest value, what is allowed, whether it passed."""
    return [
        {
            "check": r["check"],
            "value": scientific(r["value"]),
            "tolerance": scientific(r["tolerance"]),
            "passed": bool(r["passed"]),
            "n": int(r["n"]),
            "where": str(r["where"]),
        }
        for r in comparison.checks.to_dict("records")
    ]


def failures(comparison: Comparison) -> list[dict[str, Any]]:
    """Methods that gave no answer on a text, with the message."""
    rows = comparison.failures.to_dict("records")
    return [
        {"text": r["example_index"] + 1, "method": look(r["method"]).label, "error": without_paths(str(r["error"]))}
        for r in rows
    ]


def warnings(comparison: Comparison) -> list[dict[str, Any]]:
    """What the methods warned of: method, message, on which texts."""
    found: dict[tuple[str, str], list[int]] = {}
    for index, study in enumerate(comparison.studies, 1):
        for a in study.attributions:
            for message in a.warnings:
                found.setdefault((a.method, without_paths(message)), []).append(index)
    return [{"method": look(m).label, "message": said, "texts": at} for (m, said), at in found.items()]


def provenance(comparison: Comparison) -> list[tuple[str, str]]:
    """Facts that it takes to make the page again."""
    s, model, noun = comparison.settings, comparison.model, nouns(comparison)
    facts = [
        ("Seed", str(s.seed)),
        ("Removal", f"a removed {noun.token} {operator(s.operator, noun)}"),
        *([("Also judged by", ", ".join(s.operators[1:]))] if len(s.operators) > 1 else []),
        ("Random orders", f"{s.n_random} a {noun.text}"),
        ("Resamples", number(float(s.n_resamples), 0)),
        ("Model", without_paths(str(model.get("name", "")))),
    ]
    words = {
        "architecture": "Architecture",
        "dtype": "Precision",
        "device": "Device",
        "implementation": "Attention code",
        "n_parameters": "Parameters",
    }
    facts += [
        (words[k], f"{model[k]:,}".replace(",", "\N{NARROW NO-BREAK SPACE}") if k == "n_parameters" else str(model[k]))
        for k in words
        if k in model
    ]
    known = [(key, value) for key, value in facts if key != "Architecture" or value != model.get("name")]
    return [(key, visible(value).replace("␣", " ")) for key, value in [*known, ("Time", seconds(comparison.seconds))]]


def versions(comparison: Comparison) -> str:
    """Versions in one line."""
    return ", ".join(f"{name} {version}" for name, version in comparison.provenance.items())


def operator(name: str, noun: Nouns = TEXTS) -> str:
    """What happens to a removed token, as the end of "a removed token …"."""
    if noun is PICTURES and name in OF_PATCHES:
        return OF_PATCHES[name]
    words = {
        "mask": "is replaced by [MASK]",
        "mean": "is replaced by the mean embedding",
        "pad": "is replaced by [PAD]",
        "unk": "is replaced by [UNK]",
        "zero": "is replaced by zeros",
        "resample": "is replaced by a token drawn from elsewhere in the text",
        "infill": "is replaced by a token drawn from what the model expects there",
        "attention_mask": "is hidden from attention",
        "pad_mask": "is replaced by [PAD] and hidden from attention",
        "delete": "is taken out of the text",
    }
    return noun.said(words.get(name, f"is treated by “{name}”"))


# What stands in for a patch: there is no [MASK] among pixels.
OF_PATCHES = {"mask": "is replaced by an empty one, all pixels 0", "mean": "is replaced by the mean patch"}


def model_name(comparison: Comparison) -> str:
    """The model's name, without the folders above it."""
    return without_paths(str(comparison.model.get("name", "model")))


def stacks_in_words(comparison: Comparison) -> str:
    """Layers and heads: "2 layers × 4 heads", or each stack where there are several."""
    found = [str(s) for s in comparison.model.get("stacks", ())]
    if len(found) == 1:
        return found[0].split(": ")[-1].replace(", ", " × ")
    return "; ".join(found)
