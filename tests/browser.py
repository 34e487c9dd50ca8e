"""A real browser for tests: Debian's Chromium, driven by playwright, with the network off.

A test that takes the fixture `browser` fails where a page says an error or a warning on the console, throws, or asks
for anything that is not the page itself (file:, data:, blob:).

    def test_it_opens(browser, tmp_path):
        page = browser.open(path, width=390, dark=True)
        page.click("#more")
        browser.accessible(page)

One Chromium serves a file of tests, each test has a profile of its own. Where there is no Chromium the tests skip.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
LOCAL = ("file:", "data:", "blob:", "about:")
# At most as long as a page may take to be drawn, ms; a loaded machine is slower than the bars allow.
PATIENCE = 30_000


class Browser:
    """Opens pages, and remembers what they said on the console and what they asked the network for."""

    def __init__(self, chromium: Any) -> None:
        self.chromium = chromium
        self.said: list[str] = []
        self.asked: list[str] = []
        self._contexts: list[Any] = []

    def open(
        self,
        where: str | Path,
        *,
        width: int = 1280,
        height: int = 900,
        dark: bool = False,
        at: str = "",
        ready: str = "",
        **settings: Any,
    ) -> Any:
        """A page (playwright's) of a file, or of a document given as text; complete, and `ready` found in it.

        at: the fragment behind #. ready: a selector to wait for, such as "html[data-ready]". settings: of playwright's
        `new_context`: reduced_motion="reduce", forced_colors="active", java_script_enabled=False, ...
        """
        context = self.chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", **settings
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE)
        context.set_offline(True)
        context.on("request", self._asks)
        page = context.new_page()
        page.on("console", self._says)
        page.on("pageerror", lambda error: self.said.append(f"thrown: {error}"))
        if isinstance(where, str) and where.lstrip().startswith("<"):
            page.set_content(where)
        else:
            page.goto(Path(where).resolve().as_uri() + (f"#{at}" if at else ""))
        if ready:
            page.wait_for_selector(ready, state="attached")
        return page

    def faults(self, page: Any, inside: str = "", impacts: tuple[str, ...] = ("serious", "critical")) -> list[str]:
        """What axe finds, one line a fault: rule, impact, the elements. inside: a selector to look at alone."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(page, context=inside or None).response["violations"]
        return [
            f"{fault['id']} ({fault['impact']}): {fault['help']}: "
            + "; ".join(f"{node['target']} {node['html'][:160]}" for node in fault["nodes"][:4])
            for fault in found
            if fault["impact"] in impacts
        ]

    def accessible(self, page: Any, inside: str = "") -> None:
        """Fail where axe finds a serious or a critical fault."""
        faults = self.faults(page, inside)
        assert not faults, "\n".join(faults)

    def picture(self, page: Any, path: str | Path, *, whole: bool = True) -> Path:
        """The page as PNG, whole or as much as the window shows."""
        page.screenshot(path=str(path), full_page=whole, animations="disabled")
        return Path(path)

    def quiet(self) -> None:
        """Fail where a page said something on the console, or asked for what is not in the page."""
        assert not self.said, "on the console: " + "; ".join(self.said)
        assert not self.asked, "asked for: " + "; ".join(self.asked)

    def close(self) -> None:
        """Close all pages."""
        for context in self._contexts:
            context.close()
        self._contexts.clear()

    def _says(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.said.append(f"{message.type}: {message.text}")

    def _asks(self, request: Any) -> None:
        if not request.url.startswith(LOCAL):
            self.asked.append(request.url[:200])


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A running Chromium; of a module, since playwright's loop must not run while other tests run theirs."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Browser]:
    """Opens pages; behind the test it fails on what they said or asked for."""
    opened = Browser(chromium)
    yield opened
    opened.close()
    opened.quiet()
