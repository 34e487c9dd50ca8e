"""A comparison's page as PDF, printed by a Chromium that is installed; nothing is fetched for it."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnprobe import report as pages
from attnprobe.comparison import Comparison
from attnprobe.errors import InputError
from attnprobe.placing import placed

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
ELSEWHERE = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "C:/Program Files/Google/Chrome/Application/chrome.exe",
    "C:/Program Files (x86)/Microsoft/Edge/Application/msedge.exe",
)
# Virtual time: what scripts draw is there before the page is printed, however slow the machine.
DRAWN_MS = 20_000
LONGEST_S = 180
# Links to the tables beside a page: in a PDF they would name a folder of this machine.
LINK = re.compile(r'(?<=<a) href="(?!#|https?:)[^"]*"')
FLAGS = (
    *("--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--disable-extensions", "--host-resolver-rules=MAP * ~NOTFOUND"),
    *("--no-pdf-header-footer", "--generate-pdf-document-outline", "--run-all-compositor-stages-before-draw"),
    f"--virtual-time-budget={DRAWN_MS}",
)


def browser() -> str:
    """The Chromium that prints; `InputError` that says what to do where there is none."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    found = found or next((path for path in ELSEWHERE if Path(path).is_file()), None)
    if found is None:
        raise InputError(
            "a PDF is printed by Chromium or Chrome, and none is installed here; install one, "
            "or take html and print it from your browser"
        )
    return found


def printed(comparison: Comparison, path: Path, **page: Any) -> Path:
    """The page as it prints, in `path`; its tables are not written. Errors: `InputError` with what Chromium said."""
    chromium = browser()
    # Chromium's own processes may still write into their profile when it has ended.
    with tempfile.TemporaryDirectory(prefix="attnprobe-", ignore_cleanup_errors=True) as folder:
        html = pages.write(comparison, Path(folder) / f"{path.stem}.html", **page)
        html.write_text(LINK.sub("", html.read_text("utf-8")), "utf-8")
        made = print_page(html, Path(folder) / "made.pdf", chromium)
        try:
            placed(path, lambda new: shutil.copyfile(made, new))
        except OSError as error:
            raise InputError(f"{path} cannot be written ({error.strerror or error}); choose another place") from error
    return path


def print_page(html: Path, pdf: Path, chromium: str | None = None) -> Path:
    """A page as PDF. Containers often have no room for Chromium's sandbox: then it is tried without."""
    chromium = chromium or browser()
    tries: list[Sequence[str]] = [(), ("--no-sandbox",)]
    # The root user has no sandbox at all.
    if sys.platform != "win32" and os.geteuid() == 0:
        tries = tries[1:]
    said = ""
    for more in tries:
        said = _run([chromium, *FLAGS, *more, f"--user-data-dir={pdf.parent / 'profile'}",
                     f"--print-to-pdf={pdf}", html.resolve().as_uri()])  # fmt: skip
        if pdf.is_file() and pdf.stat().st_size:
            return pdf
    raise InputError(f"{Path(chromium).name} made no PDF of the page{f': {said}' if said else ''}; take html")


def _run(command: list[str]) -> str:
    """What Chromium said last; nothing where it said nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
    except subprocess.TimeoutExpired:
        return f"it took longer than {LONGEST_S} s"
    except OSError as error:
        return error.strerror or str(error)
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
