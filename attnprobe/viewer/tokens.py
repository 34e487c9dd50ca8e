"""Tokens as they can be seen: white space, control and zero-width characters get a visible stand-in."""

import unicodedata

from attnprobe.example import Example

LONGEST = 40
_SEEN = {" ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\N{NO-BREAK SPACE}": "⍽"}
# Letters that byte-level and SentencePiece vocabularies write for a space or a line break.
_BYTES = {"Ġ": " ", "Ċ": "\n", "▁": " "}


def visible(text: str) -> str:
    """The text with every invisible character shown; an empty one is ∅.

    >>> visible(" good"), visible("a\\u200bb"), visible("\\n"), visible("")
    ('␣good', 'a⟨200B⟩b', '⏎', '∅')
    """
    return "".join(map(_seen, text)) or "∅"


def _seen(character: str) -> str:
    if character in _SEEN:
        return _SEEN[character]
    kind = unicodedata.category(character)
    if kind == "Zs":
        return "␣"
    return f"⟨{ord(character):04X}⟩" if kind in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") else character


def shown(example: Example) -> list[str]:
    """Each token as the page shows it: the characters it covers, shortened where it is very long."""
    return [_short(visible(piece)) for piece in example.pieces]


def exact(example: Example) -> list[str]:
    """Each token as the vocabulary has it, for the note beside it; empty where that is what is shown already."""
    pairs = zip(example.tokens, example.pieces, strict=True)
    return [visible(token) if token != piece else "" for token, piece in pairs]


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def label(token: str) -> str:
    """A vocabulary entry that is the answer (a word that a language model predicts), readable.

    >>> label("Ġfilm"), label("negative")
    ('␣film', 'negative')
    """
    for letter, meaning in _BYTES.items():
        if token.startswith(letter):
            token = meaning + token[1:]
    return _short(visible(token)) if token.strip() != token or not token.isprintable() else token
