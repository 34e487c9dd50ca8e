"""Builds every model type, each in a process of its own: a table on standard output."""

import argparse
import csv
import os
import resource
import signal
import sys
import time
import warnings
from multiprocessing.connection import Connection, Pipe, wait

import torch
import transformers

from benchmarks.tiny_models import NotBuilt, build, model_types

SECONDS = 20
MEMORY = 3 * 2**30
COLUMNS = ("model_type", "built", "model_class", "seconds", "reason")
Row = tuple[str, bool, str, str, str]


def _child(model_type: str, end: Connection) -> None:
    """Builds the type and sends the row."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    start = time.perf_counter()
    built, name, reason = False, "", ""
    try:
        made = build(model_type)
        built, name = True, made.model_class
    except NotBuilt as error:
        reason = str(error)
    except MemoryError:
        reason = "too large: memory"
    except BaseException as error:
        reason = f"crash: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    end.send((model_type, built, name, f"{time.perf_counter() - start:.2f}", reason))
    end.close()


def _start(model_type: str) -> tuple[int, Connection]:
    ours, theirs = Pipe(duplex=False)
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        ours.close()
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        _child(model_type, theirs)
        os._exit(0)
    theirs.close()
    return process, ours


def sweep(types: list[str], jobs: int) -> None:
    """Writes a row for each type when it is done."""
    writer = csv.writer(sys.stdout)
    writer.writerow(COLUMNS)
    waiting = list(reversed(types))
    running: dict[Connection, tuple[int, str, float]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop()
            process, end = _start(name)
            running[end] = (process, name, time.perf_counter())
        ready = wait(list(running), timeout=0.2)
        for end in list(running):
            process, name, started = running[end]
            if end in ready:
                row = _receive(end, name)
            elif time.perf_counter() - started > SECONDS:
                os.kill(process, signal.SIGKILL)
                row = (name, False, "", f"{SECONDS}.00", f"slow: more than {SECONDS} seconds")
            else:
                continue
            os.waitpid(process, 0)
            del running[end]
            writer.writerow(row)
            sys.stdout.flush()


def _receive(end: Connection, name: str) -> Row:
    try:
        return end.recv()
    except EOFError:
        return (name, False, "", "", "crash: the process died")


def main() -> None:
    """Reads the types and the number of processes from the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tiny_models", description=__doc__)
    parser.add_argument("types", nargs="*", help="model types; none: all of them")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    build("llama")  # imports, once for all children, what nearly every model needs
    sweep(arguments.types or model_types(), arguments.jobs)


if __name__ == "__main__":
    main()
