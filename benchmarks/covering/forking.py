"""Every item in a process of its own, with a limit of time and memory."""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

MEMORY = 4 * 2**30


def forked(
    work: Callable[[str], Any], items: Sequence[str], *, jobs: int = 1, seconds: float = 40.0
) -> Iterator[tuple[str, Any, str]]:
    """(item, result, "") of each item as it is done; (item, None, why) where its process died or took too long."""
    waiting = list(reversed(items))
    running: dict[Connection, tuple[int, str, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            process, end = _start(work, waiting[-1])
            running[end] = (process, waiting.pop(), time.perf_counter())
        ready = wait(list(running), timeout=0.1)
        for end in list(running):
            process, item, started = running[end]
            late = time.perf_counter() - started > seconds
            if end not in ready and not late:
                continue
            result, why = _received(end) if end in ready else (None, f"took longer than {seconds:.0f} seconds")
            if late:
                os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            del running[end]
            yield item, result, why


def _start(work: Callable[[str], Any], item: str) -> tuple[int, Connection]:
    ours, theirs = Pipe(duplex=False)
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process == 0:
        ours.close()
        _work(work, item, theirs)
        os._exit(0)
    theirs.close()
    return process, ours


def _work(work: Callable[[str], Any], item: str, end: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        end.send((work(item), ""))
    except BaseException as error:
        end.send((None, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"))
    end.close()


def _received(end: Connection) -> tuple[Any, str]:
    try:
        return end.recv()  # type: ignore[no-any-return]
    except EOFError:
        return None, "the process died"
