"""The page in headless Chromium: its scripts run, its figures are filled, nothing is said on the console."""

import re
import shutil
import subprocess

import pytest

from attnprobe.report import write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--no-first-run", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=3000", "--dump-dom",
)  # fmt: skip


def opened(comparison, folder):
    """The document after its scripts have run (they themselves left out), and what the console said."""
    path = write(comparison, folder / "page.html", command="attnprobe demo")
    command = [
        CHROMIUM,
        *QUIET,
        f"--user-data-dir={folder / 'profile'}",
        "--window-size=1280,3000",
        path.resolve().as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    drawn = re.sub(r"<script.*?</script>", "", done.stdout, flags=re.S)
    return drawn, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("which", ["one", "many", "hostile"])
def test_scripts_run_without_a_word_and_fill_every_figure(which, request, tmp_path):
    comparison = request.getfixturevalue(which)
    html, said = opened(comparison, tmp_path)
    assert said == [] and 'data-ready="yes"' in html
    n, methods = comparison.studies[0].example.n_tokens, len(comparison.methods)
    assert len(re.findall(r'<td class="c [su][^>]*data-i=', html)) == n * methods
    assert len(re.findall(r'<svg viewBox[^>]*tabindex="0"[^>]*data-m="', html)) == methods
    assert len(re.findall(r'<button type="button" role="option"', html)) == 4
    assert "looks at" in html and 'id="cur"' in html
    assert len(re.findall(r'<td class="self"', html)) == methods


def test_bars_of_disagreement_are_as_high_as_the_number_above_them(one, tmp_path):
    html, _ = opened(one, tmp_path)
    bars = re.findall(r'<td class="d[^"]*" title="[^"]*">([\d.]+)<i style="height: ?(\d+)px', html)
    numbers, heights = [float(n) for n, _ in bars], [int(h) for _, h in bars]
    assert len(bars) == one.studies[0].example.n_tokens - 2 and max(heights) == 28
    for value, height in zip(numbers, heights, strict=True):
        assert abs(height - (2 + 26 * value / max(numbers))) <= 1 + 26 * 0.05 / max(numbers) * 2


def test_hostile_tokens_stay_text_in_the_browser(hostile, tmp_path):
    html, _ = opened(hostile, tmp_path)
    assert "<b></b>" not in html
    assert html.count("&lt;/script&gt;&lt;b&gt;") > len(hostile.methods)
