"""The page on paper, as Chromium prints it: nothing is cut off, no row is on two sheets, tables are open, all light."""

import re
from dataclasses import replace

import pytest

from attnprobe.report import write
from tests.report.test_verdicts import judged

pdfium = pytest.importorskip("pypdfium2")
READY = "html[data-ready=yes]"
POINT = 72 / 25.4
MARGIN, WIDE, HIGH = 14 * POINT, 210 * POINT, 297 * POINT


class Sheet:
    """The words of one sheet with their places, in points from the lower left corner."""

    def __init__(self, page):
        self.size, text = page.get_size(), page.get_textpage()
        self.text = text.get_text_range()
        self.boxes = [text.get_charbox(i) for i in range(text.count_chars())]
        image = page.render(scale=0.5).to_pil().convert("L")
        self.corner = image.getpixel((3, 3))


@pytest.fixture
def printed(browser, tmp_path):
    """Prints the page of a comparison; a sheet each."""

    def prints(comparison, **how):
        page = browser.open(write(comparison, tmp_path / "page.html"), ready=READY, **how)
        page.pdf(path=str(tmp_path / "page.pdf"), prefer_css_page_size=True, print_background=True)
        with pdfium.PdfDocument(tmp_path / "page.pdf") as document:
            return [Sheet(document[i]) for i in range(len(document))]

    return prints


@pytest.fixture
def several(many):
    """Twenty-eight texts with verdicts: tables longer than a sheet."""
    verdicts = ["explains"] * 2 + ["misleads"] + ["undecided"] * 4
    return judged(replace(many, studies=many.studies * 4), verdicts * 4)


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
@pytest.mark.parametrize("which", ["one", "several", "hostile"])
def test_nothing_is_cut_off_and_all_is_light(request, printed, which, width, dark):
    for sheet in printed(request.getfixturevalue(which), width=width, dark=dark):
        assert sheet.size == pytest.approx((WIDE, HIGH), abs=1)
        assert sheet.corner > 240
        # A space may hang over the end of a line; what can be read may not.
        ends = [right for left, _, right, _ in sheet.boxes if right > left]
        assert (
            max(ends) <= WIDE - MARGIN + 2
            and min(left for left, _, right, _ in sheet.boxes if right > left) >= MARGIN - 2
        )
        assert all(
            bottom >= MARGIN - 3 and top <= HIGH - MARGIN + 3
            for left, bottom, right, top in sheet.boxes
            if right > left
        )


def test_no_row_of_a_table_is_on_two_sheets(browser, several, tmp_path):
    """Every row is made five lines high, with a mark in its first and in its last line; the sheets are low."""
    page = browser.open(write(several, tmp_path / "page.html"), ready=READY)
    n = page.evaluate("""() => {
      const rows = [...document.querySelectorAll('table.plain tbody tr')];
      rows.forEach((row, i) => {
        row.cells[0].insertAdjacentHTML('afterbegin', `<div>(${i}(</div><div>x</div><div>x</div><div>x</div>`);
        row.cells[0].insertAdjacentHTML('beforeend', `<div>)${i})</div>`);
      });
      return rows.length;
    }""")
    page.pdf(path=str(tmp_path / "low.pdf"), width="210mm", height="150mm", print_background=True)
    at = {}
    with pdfium.PdfDocument(tmp_path / "low.pdf") as document:
        for number in range(len(document)):
            for mark in re.findall(r"\(\d+\(|\)\d+\)", document[number].get_textpage().get_text_range()):
                at[mark] = number
    # A narrow column may break a mark in two, so that it is not found; most are.
    both = [i for i in range(n) if {f"({i}(", f"){i})"} <= at.keys()]
    assert len(both) > n / 2
    assert [i for i in both if at[f"({i}("] != at[f"){i})"]] == []


def test_what_is_printed_was_not_made_small_to_fit(several, one, printed):
    for comparison in (several, one):
        first = printed(comparison)[0]
        capital = max(top - bottom for _, bottom, _, top in first.boxes)
        assert capital > 12  # the headline: 38 px of the page at the size that the style sheet gives it


def test_tables_are_open_and_every_text_is_listed(several, printed):
    sheets = printed(several)
    rows = [
        line
        for sheet in sheets
        for line in sheet.text.splitlines()
        if re.match(r"\d+ (explains|misleads|undecided)", line)
    ]
    assert len(rows) == 28
    whole = " ".join(" ".join(sheet.text for sheet in sheets).split())  # a heading of a column may wrap
    for heading in ("Exact values", "All pairs", "Quartiles"):
        assert heading in whole
    for label in ("Random orders beaten", "Lower quartile", "Spearman"):
        assert label in whole


def test_no_heading_stands_alone_at_the_foot_of_a_sheet(several, one, printed):
    for comparison in (several, one):
        for sheet in printed(comparison)[:-1]:
            if "In this report" in sheet.text:
                continue  # the contents end with the name of a part
            last = [line for line in sheet.text.splitlines() if line.strip()][-1]
            assert not re.match(r"\d+\s*(Verdicts|Agreement|Faithfulness by removal|The text|How to read)", last), last


def test_what_only_a_screen_can_do_is_not_printed(several, printed):
    whole = "\n".join(sheet.text for sheet in printed(several))
    for part in ("Theme: ", "Copy command", "Show all", "arrow keys", "Skip to"):
        assert part not in whole


def test_the_page_is_as_it_was_after_printing(browser, one, tmp_path):
    page = browser.open(write(one, tmp_path / "page.html"), ready=READY)
    rows = page.inner_html("#rows")
    page.pdf()
    page.wait_for_function("document.querySelectorAll('details.vals[open]').length === 0")
    assert page.inner_html("#rows") == rows
