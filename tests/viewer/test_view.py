"""view(): what it gives back, what it refuses, and its page as text."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import attnprobe
from attnprobe.attention.seam import Keep
from attnprobe.errors import CaptureError, InputError
from attnprobe.viewer.markup import embedded, frame, page, script


def test_tables_hold_full_precision(bert):
    _, capture = bert
    table = attnprobe.view(capture).to_frame()
    assert list(table.columns) == ["stack", "kind", "layer", "head", "query_index", "key_index", "weight"]
    got = torch.tensor(table["weight"].to_numpy()).reshape(capture.weights().shape)
    assert torch.equal(got, capture.weights())


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda m, c: attnprobe.view("text"), InputError, "shows a Capture, got str"),
        (lambda m, c: attnprobe.view(replace(c, sites=())), CaptureError, "Keep.of"),
        (lambda m, c: attnprobe.view(m.capture(c.example, keep=Keep.of("z"))), CaptureError, "no weights were kept"),
        (lambda m, c: attnprobe.view(c, target=0), InputError, "need the model"),
        (lambda m, c: attnprobe.view(c, model="bert"), InputError, "attnprobe.load"),
        (lambda m, c: attnprobe.view(c, heads="9.9"), InputError, "layers 0 to 2, heads 0 to 3"),
        (lambda m, c: attnprobe.view(c, model=m, heads="9.9"), InputError, "layers 0 to 2"),
        (lambda m, c: attnprobe.view(c, heads="head"), InputError, "names no head"),
        (lambda m, c: attnprobe.view(c, max_bytes=10), InputError, "max_bytes=10"),
        (lambda m, c: attnprobe.view(c).save("/proc/none/view.html"), InputError, "choose another place"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_words(bert, make, error, said):
    with pytest.raises(error, match=said):
        make(*bert)


def test_the_title_says_which_model_and_text_and_no_folder_of_the_machine(bert):
    _, capture = bert
    view = attnprobe.view(
        replace(capture, model="/srv/secret/bert", example=replace(capture.example, text="a <b> text"))
    )
    assert view.title == "Attention of bert" and "/srv/secret" not in view.html
    assert "<bdi>a &lt;b&gt; text</bdi>" in view.html


def test_an_edited_capture_shows_no_effects_and_says_why(bert):
    model, capture = bert
    edited = model.capture(capture.example, edits=[attnprobe.uniform(layers=0)])
    view = attnprobe.view(edited, model=model, target=0)
    assert "the capture was edited" in view.html


def test_saving_that_breaks_off_leaves_the_old_page(bert, tmp_path, monkeypatch):
    _, capture = bert
    made, page = attnprobe.view(capture), tmp_path / "view.html"
    page.write_text("old", "utf-8")

    def breaks(path, *_, **__):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(page), "write_text", breaks)
    with pytest.raises(InputError, match="No space left"):
        made.save(page)
    assert page.read_bytes() == b"old" and list(tmp_path.iterdir()) == [page]


def test_the_page_asks_for_nothing_from_outside(full):
    text = full.html.replace("http://www.w3.org/2000/svg", "")
    assert not any(sign in text for sign in ("http://", "https://", "//cdn", "@import", "url(", "require("))


def test_data_cannot_end_its_tag():
    value = {"a": "</script><!--&\u2028\u2029"}
    assert json.loads(embedded(value)) == value and not set("<>&\u2028\u2029") & set(embedded(value))
    assert "</script" not in script()


def test_a_frame_holds_its_page_as_text():
    html = frame(page({"stacks": []}, "a <b> title"), "a <b> title", 300)
    assert html.count("<iframe") == 1 and "<script" not in html and "height:300px" in html


def test_the_module_is_quiet_to_import():
    code = "import sys, attnprobe; attnprobe.__all__; print('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        == "False"
    )
