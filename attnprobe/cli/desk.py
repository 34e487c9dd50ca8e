"""What the commands of heads share: names of scores, effects and stacks as they are typed, and what there is."""

from collections.abc import Sequence
from typing import Any

from attnprobe.cli.printing import emit, show_note, show_table
from attnprobe.errors import InputError, nearest

UNITS = {"target": "of --scale", "number": "no unit", "share": "share"}
LIST_NOTE = """
Scores look at a head's map on your texts, probes at random tokens or at parameters: --score, --probe. Effects are what
the prediction owes to a head: --effect; those marked * compare two inputs, and are for Python: head_effect(). What
resample_ablation takes in place of a head's own is of your other texts: it needs 5 or more. Pairs are
of the head that writes and the one that reads; `attnprobe head` shows them, in Python head_pairs_of()."""


def scores_named(given: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names of head scores; None for all."""
    from attnprobe.heads import head_scores

    return None if given is None else _checked(given, head_scores, "--score")


def effects_named(given: Sequence[str] | None, default: Sequence[str], n_texts: int) -> tuple[str, ...]:
    """Names of head effects, the default ones, or none; those that need another input cannot be asked for here, nor
    of few texts those that take others."""
    from attnprobe.heads import head_effects
    from attnprobe.heads.asked import FEWEST_OTHERS

    if given is None:
        return tuple(default)
    if list(given) == ["none"]:
        return ()
    names = _checked(given, head_effects, "--effect")
    for name in names:
        if "corrupt" in head_effects[name].options:
            known = [known for known in head_effects if "corrupt" not in head_effects[known].options]
            raise InputError(f"{name} compares two inputs, which a command does not take; here: {', '.join(known)}")
        if name == "resample_ablation" and n_texts <= FEWEST_OTHERS:
            raise InputError(
                f"{name} takes what heads give on other texts, and {n_texts - 1} are too few: give "
                f"{FEWEST_OTHERS + 1} texts or more to `attnprobe heads`"
            )
    return names


def probes_named(given: Sequence[str] | None) -> tuple[str, ...]:
    """Names of probe scores; none by default."""
    from attnprobe.heads import probe_scores

    return () if given is None else _checked(given, probe_scores, "--probe")


def stack_named(model: Any, given: str | None) -> tuple[str | None, Any]:
    """Stack and kind of a name such as decoder, cross or decoder.cross; (None, None) for all."""
    if given is None:
        return None, None
    fitting = [s for s in model.stacks if given in (s.name, s.kind, f"{s.name}.{s.kind}")]
    if not fitting:
        known = list(dict.fromkeys(f"{s.name}.{s.kind}" for s in model.stacks))
        raise InputError(f"{model.name} has no stack '{given}'; {nearest(given, known)}")
    names, kinds = {s.name for s in fitting}, {s.kind for s in fitting}
    return (names.pop() if len(names) == 1 else None), (kinds.pop() if len(kinds) == 1 else None)


def _checked(given: Sequence[str], registry: Any, flag: str) -> tuple[str, ...]:
    names = list(dict.fromkeys(name.strip() for word in given for name in word.split(",") if name.strip()))
    if not names:
        raise InputError(f"{flag} names nothing; give a name, or several with commas between")
    for name in names:
        _check_kind(name, flag)
    return tuple(registry[name].name for name in names)


def _check_kind(name: str, flag: str) -> None:
    """`InputError` that names the right flag, for what is known as something else."""
    from attnprobe.heads import head_effects, head_scores, probe_scores

    known = {"--score": head_scores, "--effect": head_effects, "--probe": probe_scores}
    right = next((other for other, registry in known.items() if name in registry), flag)
    if name not in known[flag] and right != flag:
        raise InputError(f"{name} is asked for by {right}, not by {flag}: {right} {name}")


def print_known(format: str) -> None:
    """Every score, probe, effect and pair score: its unit, what it says, where it was published."""
    from attnprobe.cli.surroundings import quiet

    with quiet():
        from attnprobe.heads import head_effects, head_pairs, head_scores, probe_scores

        registries = {"score": head_scores, "probe": probe_scores, "effect": head_effects, "pair": head_pairs}
        known = [_known(form, registry[name]) for form, registry in registries.items() for name in registry]
    emit(format, lambda: known, lambda: _show_known(known))


def _show_known(known: list[dict[str, Any]]) -> None:
    rows = [
        [one["form"], one["name"] + "*" * one["needs_pair"], one["unit"], f"{one['description']} {one['source']}."]
        for one in known
    ]
    show_table(["asked by", "name", "unit", "what it says, and its source"], rows, left=range(4))
    print()
    show_note(LIST_NOTE)


def _known(form: str, entry: Any) -> dict[str, Any]:
    """What is known of one entry; ends None where it has none."""
    facts = {"label": entry.name, "unit": "number", "low": None, "high": None, **entry.facts}
    return {
        "form": form,
        "name": entry.name,
        "label": facts["label"],
        "unit": UNITS.get(facts["unit"], facts["unit"]),
        "low": facts["low"],
        "high": facts["high"],
        "needs_pair": "corrupt" in entry.options,
        "description": entry.description,
        "source": entry.source,
        "options": {name: repr(value) for name, value in entry.options.items()},
    }


def read(model: Any, texts: Sequence[str], truncate: bool) -> list[Any]:
    """The texts as the model reads them; a model without a tokenizer is refused with what to do about it."""
    from attnprobe.cli.making import read_examples

    if getattr(model, "tokenizer", "") is None:
        try:
            model.example(texts[0])
        except InputError as error:
            if "no tokenizer" not in str(error):
                raise
            raise InputError(
                f"{model.name} holds no tokenizer, so no text can be read; save the one of its training beside it: "
                "AutoTokenizer.from_pretrained('its name').save_pretrained('the folder')"
            ) from error
    return read_examples(model, texts, truncate)
