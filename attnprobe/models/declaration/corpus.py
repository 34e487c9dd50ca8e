"""16 sentences of the Universal Declaration of Human Rights (1948, public domain), and how they are cut into words."""

import re

SENTENCES = (
    "All human beings are born free and equal in dignity and rights.",
    "They are endowed with reason and conscience and should act towards one another in a spirit of brotherhood.",
    "Everyone has the right to life, liberty and security of person.",
    "No one shall be held in slavery or servitude.",
    "Slavery and the slave trade shall be prohibited in all their forms.",
    "No one shall be subjected to torture or to cruel, inhuman or degrading treatment or punishment.",
    "Everyone has the right to recognition everywhere as a person before the law.",
    "All are equal before the law and are entitled without any discrimination to equal protection of the law.",
    "No one shall be subjected to arbitrary arrest, detention or exile.",
    "Everyone has the right to freedom of movement and residence within the borders of each state.",
    "Everyone has the right to own property alone as well as in association with others.",
    "No one shall be arbitrarily deprived of his property.",
    "Everyone has the right to freedom of thought, conscience and religion.",
    "Everyone has the right to freedom of opinion and expression.",
    "Everyone has the right to rest and leisure, including reasonable limitation of working hours and periodic "
    "holidays with pay.",
    "Everyone has the right to education.",
)
# Runs of letters; what is between them is dropped.
LETTERS = "[A-Za-z]+"


def words(sentence: str) -> tuple[str, ...]:
    """The sentence's words in lower case.

    >>> words("No one shall, in Law.")
    ('no', 'one', 'shall', 'in', 'law')
    """
    return tuple(re.findall(LETTERS, sentence.lower()))


VOCABULARY: tuple[str, ...] = tuple(sorted({word for sentence in SENTENCES for word in words(sentence)}))
