"""What is explained has one name on a page: texts of tokens, or pictures of patches."""

import re
from dataclasses import replace

import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification

from attnprobe.comparison import compare
from attnprobe.models import load
from attnprobe.report import page, write
from attnprobe.report.formats.digest import digest
from attnprobe.report.formats.markdown import markdown
from attnprobe.viewer.nouns import PICTURES, TEXTS

READY = "html[data-ready=yes]"
OF_TEXTS = re.compile(r"\b(texts?|words?|tokens?|\[MASK\])", re.IGNORECASE)
# Marks that a model adds are tokens; scores of heads, options and files are called what they are called.
STAY = re.compile(
    r"[Ss]pecial tokens?|[Ff]ive words|Rests on the first token|Mass on .*|Distance, tokens|Set: .*|\S+\.csv"
)
READ = """() => {
  document.querySelectorAll("details").forEach(d => { d.open = true; });
  const roots = [document, document.querySelector("#attention").shadowRoot], found = [document.body.innerText];
  found.push(roots[1].querySelector(".av").innerText);
  roots.forEach(root => root.querySelectorAll("[aria-label]").forEach(e => found.push(e.getAttribute("aria-label"))));
  return found.join("\\n");
}"""


@pytest.fixture(scope="module")
def pictures():
    """Four pictures of 4 x 4 patches, all parts of the page."""
    torch.manual_seed(0)
    labels = {0: "cat", 1: "dog", 2: "bird"}
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = ViTConfig(
        **sizes, image_size=16, patch_size=4, id2label=labels, label2id={v: k for k, v in labels.items()}
    )
    model = ViTForImageClassification(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0 if parameter.ndim > 1 else 1.0)
    given = [torch.rand(3, 16, 16) for _ in range(4)]
    return compare(load(model), given, n_random=20, n_resamples=20, counterfactual=True, progress=False)


def told_of_texts(words: str) -> list[str]:
    """Lines that speak of texts, words or tokens, but for what stays."""
    return [line for line in dict.fromkeys(words.splitlines()) if OF_TEXTS.search(STAY.sub("", line))]


def test_a_page_of_pictures_speaks_of_pictures_and_patches_alone(pictures, browser, tmp_path):
    opened = browser.open(write(pictures, tmp_path / "page.html"), ready=READY)
    opened.wait_for_selector("#attention[data-ready=yes]", state="attached")
    words = opened.evaluate(READ)
    assert told_of_texts(words) == []
    for said in (
        "All pictures at a glance",
        "The picture under each method",
        "a removed patch is replaced by an empty one",
    ):
        assert said in words


def test_a_page_of_texts_says_nothing_of_pictures(many):
    words = re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", page(many), flags=re.DOTALL)
    assert not re.search(r"\b(pictures?|patch|patches)\b", words)


def test_tables_for_the_terminal_and_markdown_say_pictures_too(pictures):
    found = digest(pictures)
    said = [found.claim, found.scope, *found.findings, *(block.note for block in found.blocks)]
    assert [line for line in said if OF_TEXTS.search(line)] == []
    assert "; 4 pictures." in markdown(pictures) and "an empty one, all pixels 0" in markdown(pictures)


def test_the_short_form_of_a_comparison_says_pictures_and_leaves_the_control_out_of_its_count(pictures):
    assert repr(pictures).startswith("<Comparison of 12 methods and a control on 4 pictures by ViT")
    assert told_of_texts(repr(pictures)) == []


def test_what_stands_in_quotes_is_not_renamed():
    said = "Each text puts “the word” first, and 'token' is attention's text: two tokens, special tokens apart."
    assert PICTURES.said(said) == (
        "Each picture puts “the word” first, and 'token' is attention's picture: two patches, special tokens apart."
    )
    assert PICTURES.said("Texts and words") == "Pictures and patches" and TEXTS.said(said) == said


def test_none_and_all_have_words_of_their_own():
    said = [TEXTS.of(n, 4) for n in (0, 1, 4)]
    assert said == ["none of the 4 texts", "1 of 4 texts", "all 4 texts"] and PICTURES.of(1, 1) == "1 of 1 picture"


def test_the_short_form_of_a_comparison_hides_the_folders_above_a_model_as_the_page_does(one):
    hidden = replace(one, model={**one.model, "name": "/srv/secret/models/bert"})
    assert "by …/bert" in repr(hidden) and "secret" not in repr(hidden) and "secret" not in page(hidden)
    assert "by org/bert" in repr(replace(one, model={**one.model, "name": "org/bert"}))
