"""attnprobe declaration: one head, trained on 16 sentences, and its weights as a picture or as numbers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from attnprobe.cli.options import HOW, WRITE, NotNegative
from attnprobe.cli.output import tell
from attnprobe.cli.places import PICTURES, check_place, written
from attnprobe.cli.printing import as_csv
from attnprobe.errors import InputError

if TYPE_CHECKING:
    from attnprobe.models.declaration import Trained


def declaration(
    *,
    out: Annotated[Path | None, Parameter(group=WRITE)] = None,
    format: Annotated[Literal["picture", "json", "csv"], Parameter(group=WRITE)] = "picture",
    seed: Annotated[NotNegative | None, Parameter(group=HOW)] = None,
    gradient: Annotated[Literal["cross_entropy", "guarded"], Parameter(group=HOW)] = "cross_entropy",
) -> None:
    """Draw the attention of one head that puts each word of a sentence together from the others.

    It learned from 16 sentences of the Universal Declaration of Human Rights. The head
    that comes with attnprobe is shown; --seed trains another, in some 10 seconds.

    Example:
      attnprobe declaration --out declaration.png

    Parameters
    ----------
    out
        Where the picture goes (.png, .svg or .pdf; a picture needs a place), or the numbers of
        --format json (.json) or csv (.csv). [default: none for a picture; numbers are printed]
    format
        A picture, or json: loss_per_token, tokens, and the weights of the first sentence; or csv: those weights,
        a row each.
    seed
        Train a head from the parameters of this seed. [default: the head that comes with attnprobe]
    gradient
        Of a trained head's loss: cross_entropy, or guarded, which has none for words that are lost.
    """
    _check(out, format)
    from attnprobe.cli.surroundings import quiet

    with quiet():
        trained = _head(seed, gradient)
        if format == "picture" and out is not None:
            _draw(trained, out)
        elif format != "picture":
            _write_numbers(facts(trained), format, out)


def _head(seed: int | None, gradient: str) -> "Trained":
    from attnprobe.models.declaration import stored_head, train

    if seed is None:
        if gradient != "cross_entropy":
            raise InputError(f"--gradient {gradient} is for training; say with --seed which head to train")
        return stored_head()
    tell(f"training one head on 16 sentences, seed {seed}")
    return train(seed, gradient=gradient, progress=True)


def facts(trained: "Trained") -> dict[str, Any]:
    """The head for programs: how it was made, how it stands, and the weights of the first sentence, a row a query."""
    from attnprobe.models.declaration import SENTENCES, words

    return {
        "seed": trained.seed,
        "gradient": trained.gradient,
        "roundings": trained.roundings,
        "loss_per_token": trained.loss_per_token,
        "words_named": trained.n_right,
        "words_lost": trained.n_lost,
        "tokens": list(words(SENTENCES[0])),
        "weights": trained.weights.tolist(),
    }


def _check(out: Path | None, format: str) -> None:
    """`InputError` before any work where the result has no place to go."""
    if out is None and format == "picture":
        raise InputError("say where the picture goes with --out, such as --out declaration.png, or take --format json")
    if out is None:
        return
    if format == "picture" and out.suffix.lower() not in PICTURES:
        raise InputError(f"a picture ends in {', '.join(PICTURES)}, got '{out}'; numbers are written by --format json")
    if format != "picture" and out.suffix.lower() in PICTURES:
        raise InputError(f"numbers are no picture: '{out}' ends as one; take --out {out.with_suffix('.' + format)}")
    check_place(out, (out.suffix.lower(),))


def weights(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The weights of the first sentence, a record each."""
    tokens = found["tokens"]
    return [
        {"query": query, "key": key, "weight": weight}
        for query, row in zip(tokens, found["weights"], strict=True)
        for key, weight in zip(tokens, row, strict=True)
    ]


def _write_numbers(found: dict[str, Any], format: str, out: Path | None) -> None:
    text = json.dumps(found, ensure_ascii=False) + "\n" if format == "json" else as_csv(weights(found))
    if out is None:
        print(text, end="")
        return
    print(written(out, lambda: out.write_text(text, "utf-8")))


def _draw(trained: "Trained", out: Path) -> None:
    from attnprobe.declaration_figure import declaration_picture
    from attnprobe.figure_files import save

    figure = declaration_picture(trained).figure
    print(written(out, lambda: save(figure, out)))
