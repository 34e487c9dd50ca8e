"""What mechanisms are called elsewhere, so that a name from a paper or a library finds its way."""

from collections.abc import Iterable

from attnprobe.errors import InputError, nearest

# By the paper, or by what a library calls it -> how to say it here.
ELSEWHERE = {
    "performer": "'favor'",
    "favor+": "'favor'",
    "flash": "'online'",
    "flash_attention": "'online'",
    "softmax": "'scaled_dot'",
    "full": "'scaled_dot'",
    "sdpa": "'scaled_dot'",
    "vanilla": "'scaled_dot'",
    "reformer": "'lsh'",
    "nystromformer": "'nystrom'",
    "nyströmformer": "'nystrom'",
    "sparse_transformer": "'top_k'",
    "mean": "'uniform'",
    "average": "'uniform'",
    "knn": "'nearest'",
    "longformer": "a mask: local_mask of attnprobe.attention.patterns, or swapped('local_window')",
    "big_bird": "a mask: big_bird_mask of attnprobe.attention.patterns",
    "local_window": "a mask: local_mask of attnprobe.attention.patterns, or swapped('local_window')",
    "temperature": "an option: Mechanism.of('scaled_dot', temperature=2.0), or swapped('temperature', …)",
    **{
        name: f"an option: Mechanism.of('scaled_dot', normalizer='{name}'), or swapped('{name}')"
        for name in ("sparsemax", "entmax15", "sigmoid", "softmax_plus_one")
    },
}


def unknown_mechanism(name: str, known: Iterable[str]) -> InputError:
    """The error for a name that no mechanism has; it says what is nearest, or what this is called here."""
    names, here = list(known), ELSEWHERE.get(name.lower().replace("-", "_").replace(" ", "_"))
    meant = here.strip("'") if here else ""
    if here and (not here.startswith("'") or meant in names):
        return InputError(f"no mechanism is named '{name}'; here it is {here}")
    return InputError(f"no mechanism is named '{name}'; {nearest(name, names)}")
