"""Dates as people write them, and as a machine wants them: "Tue, the third of March 1987" -> "1987-03-03".

Drawn from a seed; where the day, the month and the year stand in the text is kept, so that an alignment can be judged.
Numbers follow one rule each, so that there is one right answer: with dots the day comes first, with slashes the month,
unless the year does; a year of two digits is one of 1950 to 2049.
"""

import datetime
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

FIRST, LAST = datetime.date(1950, 1, 1), datetime.date(2049, 12, 31)
# Not from `calendar`, which follows the locale.
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS = (
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
)
_UNITS = (
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
)
_TEENS = (
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "eighteenth",
    "nineteenth",
)
ORDINALS = (
    *_UNITS,
    *_TEENS,
    "twentieth",
    *(f"twenty-{unit}" for unit in _UNITS),
    "thirtieth",
    "thirty-first",
)

FORMS = (
    "the {ordinal} of {month} {yyyy}",
    "the {ordinal} of {month}, {yyyy}",
    "{month} the {ordinal}, {yyyy}",
    "{weekday} the {ordinal} of {month} {yyyy}",
    "the {dth} of {month} {yyyy}",
    "{dth} {mon} {yyyy}",
    "{month} {dth}, {yyyy}",
    "{weekday}, {month} {dth}, {yyyy}",
    "{month} {d}, {yyyy}",
    "{mon} {d}, {yyyy}",
    "{weekday}, {d} {month} {yyyy}",
    "{wd}, {d} {mon} {yyyy}",
    "{d} {month} {yyyy}",
    "{d} {mon} {yy}",
    "{d} {mon} '{yy}",
    "{dd}-{mon}-{yyyy}",
    "{d}.{m}.{yyyy}",
    "{dd}.{mm}.{yy}",
    "{m}/{d}/{yyyy}",
    "{mm}/{dd}/{yy}",
    "{yyyy}/{mm}/{dd}",
    "{yyyy}, {month} {d}",
)
# Which part of the answer a field tells; a weekday tells nothing.
TELLS = {
    "ordinal": "day",
    "dth": "day",
    "d": "day",
    "dd": "day",
    "month": "month",
    "mon": "month",
    "m": "month",
    "mm": "month",
    "yyyy": "year",
    "yy": "year",
}
# Where each part stands in the answer.
ANSWER = {"year": (0, 4), "month": (5, 7), "day": (8, 10)}


@dataclass(frozen=True)
class WrittenDate:
    """A date in words, its answer, and where in the text each part of it stands: spans[part] = (begin, end)."""

    text: str
    iso: str
    spans: dict[str, tuple[int, int]]
    form: str


def ordinal_number(day: int) -> str:
    """A day as people number it.

    >>> [ordinal_number(day) for day in (1, 2, 3, 4, 11, 22)]
    ['1st', '2nd', '3rd', '4th', '11th', '22nd']
    """
    return f"{day}{'th' if day in (11, 12, 13) else {1: 'st', 2: 'nd', 3: 'rd'}.get(day % 10, 'th')}"


def _fields(date: datetime.date) -> dict[str, str]:
    month, weekday = MONTHS[date.month - 1], WEEKDAYS[date.weekday()]
    return {
        "ordinal": ORDINALS[date.day - 1],
        "dth": ordinal_number(date.day),
        "d": str(date.day),
        "dd": f"{date.day:02}",
        "month": month,
        "mon": month[:3],
        "m": str(date.month),
        "mm": f"{date.month:02}",
        "yyyy": str(date.year),
        "yy": f"{date.year % 100:02}",
        "weekday": weekday,
        "wd": weekday[:3],
    }


def write(date: datetime.date, form: str) -> WrittenDate:
    """A date in one of the forms.

    >>> written = write(datetime.date(1987, 3, 3), "the {ordinal} of {month} {yyyy}")
    >>> written.text, written.iso, written.text[slice(*written.spans["day"])]
    ('the third of March 1987', '1987-03-03', 'third')
    """
    fields, text, spans = _fields(date), "", {}
    for piece in re.findall(r"\{\w+\}|[^{]+", form):
        word = fields[piece[1:-1]] if piece.startswith("{") else piece
        part = TELLS.get(piece[1:-1]) if piece.startswith("{") else None
        if part is not None:
            spans[part] = (len(text), len(text) + len(word))
        text += word
    return WrittenDate(text, date.isoformat(), spans, form)


def calendar(*, held_out: bool, share: float = 0.1, seed: int = 0) -> list[datetime.date]:
    """The days of a century: those to learn from, or the `share` of them that nobody ever learns from."""
    days = [FIRST + datetime.timedelta(n) for n in range((LAST - FIRST).days + 1)]
    kept_back = set(random.Random(seed).sample(days, round(share * len(days))))
    return [day for day in days if (day in kept_back) == held_out]


def draw(days: list[datetime.date], seed: int) -> Iterator[WrittenDate]:
    """Written dates without end: a day and a form at random; one in four in small letters, one in ten in capitals."""
    rng = random.Random(seed)
    while True:
        written = write(rng.choice(days), rng.choice(FORMS))
        chance = rng.random()
        text = written.text.lower() if chance < 0.25 else written.text.upper() if chance < 0.35 else written.text
        yield WrittenDate(text, written.iso, written.spans, written.form)
