"""attnprobe demo: the first page, from what comes with the package."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

# Six or more, so that intervals over texts exist. Mixed, plain, negated and ironic; long and short.
TEXTS = (
    "the actors are wonderful but the plot is wasted on a tired, predictable script.",
    "a warm and funny film with a great cast.",
    "i expected a dull evening, and got a moving, beautifully shot story instead.",
    "it is not a bad film, but it never becomes a good one.",
    "the worst thing about this movie is that it will not end.",
    "slow, loud and painfully boring from the first scene to the last.",
    "the music is lovely, the jokes are fresh, and the ending is perfect.",
    "somewhere in these three hours hides a charming little comedy that nobody bothered to cut free.",
)


def demo(
    *,
    out: Path = Path("attnprobe-demo.html"),
    invocation: Annotated[str, Parameter(parse=False)] = "",
) -> None:
    """Make a first page: eight short film reviews, the small model that comes with attnprobe, a dozen methods.

    Parameters
    ----------
    out
        Where the page goes; its tables go into the folder of the same name.
    """
    from attnprobe.cli.making import Job, make_page
    from attnprobe.cli.options import MethodOptions

    methods = MethodOptions(counterfactual=True)
    make_page(Job(model="attnprobe/sentiment", texts=TEXTS, methods=methods, out=out, invocation=invocation))
