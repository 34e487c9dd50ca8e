"""One score, one colour: in the page as a browser draws it, in the figures, by the one theme."""

import re
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from attnprobe import figures, theme
from attnprobe.appearance import AGAINST, FOR, FULL_SHARE, LOOKS, PAPER, WEIGHT, look
from attnprobe.colours import mixed
from attnprobe.report import write

READY = "html[data-ready=yes]"
# Of 255; what a browser rounds, and the 128 steps of a figure's scale.
NEAR = 3


def channels(page, query):
    """The colour that the browser mixed for an element, 0 to 255, drawn on a canvas so that any notation serves."""
    return page.locator(query).evaluate("""e => {
      const context = new OffscreenCanvas(1, 1).getContext('2d');
      context.fillStyle = getComputedStyle(e).backgroundColor;
      context.fillRect(0, 0, 1, 1);
      return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
    }""")


def drawn(colour):
    """A colour of CSS as numbers."""
    return [int(colour[i : i + 2], 16) for i in (1, 3, 5)]


@pytest.fixture
def planted(one):
    """One text on which attention and leave-one-out give known shares: 60, 30, 8, 2 and 0 %, some of them against."""
    study = one.studies[0]
    shares = torch.zeros(study.example.n_tokens)
    shares[1:5] = torch.tensor([0.30, 0.60, 0.08, 0.02])
    signs = torch.ones_like(shares)
    signs[2] = signs[4] = -1
    changed = {"raw_attention": shares, "leave_one_out": shares * signs}
    attributions = tuple(replace(a, scores=changed.get(a.method, a.scores)) for a in study.attributions)
    return replace(one, studies=(replace(study, attributions=attributions),))


@pytest.mark.parametrize(("method", "ends"), [("raw_attention", (WEIGHT, WEIGHT)), ("leave_one_out", (AGAINST, FOR))])
def test_a_score_has_the_colour_of_the_figure_in_the_browser(browser, planted, tmp_path, method, ends):
    page = browser.open(write(planted, tmp_path / "page.html"), ready=READY)
    attribution = planted.studies[0].attribution(method)
    axes = figures.token_scores(attribution)
    axes.figure.canvas.draw()
    figure = 255 * axes.collections[-1].get_facecolors()[:, :3]
    plt.close(axes.figure)
    row = page.evaluate(f"JSON.parse(document.getElementById('data').textContent).order.indexOf('{method}')")
    for token, share in enumerate(attribution.scores.tolist()):
        seen = channels(page, f'#rows .c[data-m="{row}"][data-i="{token}"]')
        ((red, green, blue),) = mixed(PAPER, ends[share > 0], [min(1, abs(share) / FULL_SHARE) ** 0.5])
        assert np.abs(np.array(seen) - 255 * np.array([red, green, blue])).max() <= NEAR
        assert np.abs(np.array(seen) - figure[token]).max() <= NEAR + 3


def test_page_and_figures_take_poles_and_methods_from_one_place(browser, one, tmp_path):
    page = browser.open(write(one, tmp_path / "page.html"), ready=READY)
    variable = "name => getComputedStyle(document.documentElement).getPropertyValue(name).trim()"
    for name, colour in {"--pos": FOR, "--neg": AGAINST, "--wt": WEIGHT, "--zero": PAPER}.items():
        assert page.evaluate(variable, name) == colour
    order = page.evaluate("JSON.parse(document.getElementById('data').textContent).order")
    for number, method in enumerate(order):
        assert page.evaluate(variable, f"--m{number}") == look(method).light


def test_themes_hold_the_same_variables_and_paper_is_light():
    assert set(theme.LIGHT) == set(theme.DARK)
    light, *_, dark, paper = [line for line in theme.css().splitlines() if line.strip() != "}"]
    values = [re.search(r"\{([^{}]*)\}", line).group(1) for line in (light, dark, paper)]
    assert values[0] == values[2] != values[1] and "@media print" in paper and "data-theme=dark" in dark


def luminance(colour):
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in np.array(drawn(colour)) / 255]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [theme.LIGHT, theme.DARK])
def test_words_can_be_read_on_every_ground(colours):
    for ground in ("page", "card", "pos", "neg", "wt"):
        assert contrast(colours["ink"], colours[ground]) >= 4.5
    for ink, ground in (
        ("mute", "page"),
        ("warn", "warn-bg"),
        ("good", "good-bg"),
        ("und", "und-bg"),
        ("accent", "page"),
    ):
        assert contrast(colours[ink], colours[ground]) >= 4.5


def test_no_two_methods_look_the_same_and_each_can_be_seen_on_its_card():
    seen = [(one.shape, one.light, one.filled) for one in LOOKS.values()]
    assert len(seen) == len(set(seen))
    for one in LOOKS.values():
        assert contrast(one.light, theme.LIGHT["card"]) >= 3 and contrast(one.dark, theme.DARK["card"]) >= 3


def test_every_registered_method_has_a_look_of_its_own():
    from attnprobe.methods import methods

    own = [entry.name for entry in methods.values() if entry.function.__module__.startswith("attnprobe.methods")]
    assert [name for name in own if name not in LOOKS] == []
