"""attnprobe declaration: one head, trained on 16 sentences, and its weights as a picture or as numbers."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from attnprobe.cli.options import HOW, WRITE, NotNegative
from attnprobe.cli.output import shown, tell
from attnprobe.errors import InputError

if TYPE_CHECKING:
    from attnprobe.models.declaration import Trained

PICTURES = (".png", ".svg", ".pdf")


def declaration(
    *,
    out: Annotated[Path | None, Parameter(group=WRITE)] = None,
    format: Annotated[Literal["picture", "json"], Parameter(group=WRITE)] = "picture",
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
        --format json (.json). [default: none for a picture; numbers are printed]
    format
        A picture, or json: loss_per_token, tokens, and the weights of the first sentence.
    seed
        Train a head from the parameters of this seed. [default: the head that comes with attnprobe]
    gradient
        Of a trained head's loss: cross_entropy, or guarded, which has none for words that are lost.
    """
    _check(out, format)
    from attnprobe.cli.surroundings import quiet

    with quiet():
        trained = _head(seed, gradient)
        if format == "json":
            _write_json(facts(trained), out)
        elif out is not None:
            _draw(trained, out)


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
    if format == "json" and out.suffix.lower() in PICTURES:
        raise InputError(f"numbers are no picture: '{out}' ends as one; take --out {out.with_suffix('.json')}")
    if out.is_dir():
        raise InputError(f"{out} is a folder; give the name of a file, such as {out / 'declaration.png'}")
    there = next(parent for parent in out.absolute().parents if parent.exists())
    if not there.is_dir():
        raise InputError(f"{out} cannot be written: {there} is a file; choose another place")


def _write_json(found: dict[str, Any], out: Path | None) -> None:
    text = json.dumps(found, ensure_ascii=False)
    if out is None:
        print(text)
        return
    _written(out, lambda: out.write_text(text + "\n", "utf-8"))


def _draw(trained: "Trained", out: Path) -> None:
    from attnprobe.declaration_figure import declaration_picture

    figure = declaration_picture(trained).figure
    _written(out, lambda: figure.savefig(out, dpi=160))  # type: ignore[union-attr]


def _written(out: Path, write: Any) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write()
    except OSError as error:
        raise InputError(f"{out} cannot be written ({error.strerror}); choose another place") from error
    print(shown(out))
