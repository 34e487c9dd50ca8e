"""Where no script runs (turned off, or forbidden by the page around a frame) a viewer is a sentence and a table."""

import re

import pytest

from attnprobe.viewer.groups import head_table
from attnprobe.viewer.still import MOST

STRICT = '<meta http-equiv="Content-Security-Policy" content="script-src \'self\'">'


def inside(page):
    """The frame of a notebook's cell."""
    page.wait_for_selector("iframe")
    frame = page.frames[1]
    frame.wait_for_selector(".still", state="attached")
    return frame


def test_a_frame_whose_scripts_are_forbidden_says_so_and_shows_the_sharpest_heads(browser, full):
    page = browser.open(f"<html><head>{STRICT}</head><body>{full._repr_html_()}</body></html>")
    frame = inside(page)
    browser.said.clear()  # the browser tells of each script that it did not run
    still = frame.locator(".still")
    assert still.is_visible() and "Scripts do not run here" in still.inner_text() and "save" in still.inner_text()
    table = head_table(full.capture).sort_values("spread", kind="stable").head(MOST)
    rows = still.locator("tbody tr").all_inner_texts()
    assert len(rows) == len(table)
    for row, (_, head) in zip(rows, table.iterrows(), strict=True):
        assert row.startswith(f"layer {int(head.layer)}, head {int(head['head'])}")
        assert float(re.split(r"\s+", row)[4]) == pytest.approx(head.spread, abs=0.006)


def test_a_frame_whose_scripts_run_shows_nothing_of_it(browser, full):
    page = browser.open(f"<html><body>{full._repr_html_()}</body></html>")
    page.wait_for_selector("iframe")
    page.frames[1].wait_for_selector("#viewer[data-ready=yes]")
    assert page.frames[1].locator(".still").count() == 0


def test_several_stacks_are_told_apart_and_hostile_names_stay_text(browser, several, hostile, tmp_path):
    import attnprobe

    _, capture = several
    for number, view in enumerate((attnprobe.view(capture), hostile)):
        page = browser.open(view.save(tmp_path / f"{number}.html"), java_script_enabled=False)
        assert page.locator(".still").is_visible() and page.locator(".still tbody tr").count() > 0
    places = {(site.place.stack, site.place.kind) for site in capture.sites}
    told = browser.open(tmp_path / "0.html", java_script_enabled=False).locator(".still tbody th").all_inner_texts()
    assert all(name.startswith("layer") for name in told) == (len(places) == 1)
