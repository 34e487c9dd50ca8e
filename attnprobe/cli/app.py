"""The command `attnprobe`: which commands there are, and how each ends.

Exit codes: 0 done; 2 what was asked for cannot be done, one message says why; 130 stopped by the user; 1 a fault
of attnprobe's own, with its traceback.
"""

import os
import shlex
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Parameter

from attnprobe import __version__
from attnprobe.cli.attribute import attribute
from attnprobe.cli.benchmark import benchmark
from attnprobe.cli.capture import capture
from attnprobe.cli.compare import compare
from attnprobe.cli.completion import register as register_completion
from attnprobe.cli.declaration import declaration
from attnprobe.cli.demo import demo
from attnprobe.cli.head import head
from attnprobe.cli.heads import heads
from attnprobe.cli.help import Help
from attnprobe.cli.inspecting import inspect
from attnprobe.cli.mechanisms import mechanisms
from attnprobe.cli.methods import methods
from attnprobe.cli.metrics import metrics
from attnprobe.cli.output import show_everything, tell
from attnprobe.cli.report import report
from attnprobe.cli.study_file import every_study, fill_from_file
from attnprobe.cli.swap import swap
from attnprobe.cli.view import view
from attnprobe.errors import AttnprobeError

STOPPED = 130

app = App(
    name="attnprobe",
    help="Does this attention map explain this prediction? Sets a model's attention beside other ways of asking which "
    "words mattered, and measures which of them hold up.\n\nStart with `attnprobe demo`.",
    version=__version__,
    help_format="plaintext",
    help_formatter=Help(),
    config=(fill_from_file,),
    default_parameter=Parameter(negative=()),
)
for command in (
    *(demo, report, compare, attribute, heads, head, capture, view, inspect),
    *(methods, metrics, mechanisms, swap, declaration, benchmark),
):
    app.command(command)
register_completion(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name (default: those of the process) and give its exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    show_everything()
    try:
        # A study file may hold several reports: one that cannot be made does not keep the others from it.
        codes: list[int] = []
        for study in every_study(words):
            codes.append(_ended(study))
            if codes[-1] == STOPPED:
                break
    except AttnprobeError as error:
        return _refuse(str(error))
    return max(codes)


def _ended(words: list[str]) -> int:
    try:
        _run(words)
    except CycloptsError as error:
        return _refuse(str(error), _help_for(words))
    except AttnprobeError as error:
        return _refuse(str(error))
    except KeyboardInterrupt as stopped:
        tell(f"attnprobe: stopped; {str(stopped) or 'nothing was written'}")
        return STOPPED
    except BrokenPipeError:
        # Whoever read our output has gone (`attnprobe methods | head`); keep Python from complaining at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _run(words: list[str]) -> None:
    command, bound, ignored = app.parse_args(words, exit_on_error=False, print_error=False)
    # What cyclopts leaves to us: the command itself, for the page to say how it was made.
    ours = {"invocation": shlex.join(["attnprobe", *words])} if "invocation" in ignored else {}
    command(*bound.args, **bound.kwargs, **ours)
    sys.stdout.flush()


def _refuse(message: str, hint: str = "") -> int:
    tell(f"attnprobe: error: {message}{hint}")
    return 2


def _help_for(words: list[str]) -> str:
    command = f" {words[0]}" if words and words[0] in app else ""
    return f" See `attnprobe{command} --help`."
