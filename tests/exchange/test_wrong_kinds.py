"""What another tool's record cannot be made of is refused by name: what the function takes, and what it got."""

import pytest

import attnprobe
from attnprobe.errors import InputError
from attnprobe.exchange import (
    from_transformer_lens,
    to_bertviz,
    to_captum,
    to_circuitsvis,
    to_inseq,
    to_shap,
    to_transformer_lens,
)

TEXT = "a dull film"


@pytest.fixture(scope="module")
def model():
    return attnprobe.load("attnprobe/sentiment")


@pytest.mark.parametrize("function", [to_captum, to_shap, to_inseq])
def test_scores_are_made_of_attributions(model, function):
    for given, name in ((model.capture(model.example(TEXT)), "Capture"), (TEXT, "str"), (None, "NoneType")):
        with pytest.raises(InputError, match=f"{function.__name__} takes an Attribution, .*; got {name}$"):
            function(given)


@pytest.mark.parametrize("function", [to_shap, to_inseq])
def test_one_that_is_no_attribution_among_several_is_refused(model, function):
    good = attnprobe.attribute(model, TEXT, "raw_attention")
    with pytest.raises(InputError, match=r"takes an Attribution, .*; got Capture$"):
        function([good, model.capture(model.example(TEXT))])


@pytest.mark.parametrize("function", [to_bertviz, to_circuitsvis, to_transformer_lens])
def test_maps_are_made_of_a_capture(model, function):
    given = attnprobe.attribute(model, TEXT, "raw_attention")
    with pytest.raises(InputError, match=f"{function.__name__} takes a Capture, .*; got Attribution$"):
        function(given)


def test_circuitsvis_asks_for_a_layer_and_names_those_that_there_are(model):
    capture = model.capture(model.example(TEXT))
    layers = ", ".join(str(site.layer) for site in capture.sites)
    with pytest.raises(InputError, match=f"say layer=…; there are {layers}$"):
        to_circuitsvis(capture)


def test_a_cache_holds_tensors_by_name(model):
    with pytest.raises(InputError, match="takes tensors by TransformerLens's names, got Capture"):
        from_transformer_lens(model.capture(model.example(TEXT)), ["a"])
