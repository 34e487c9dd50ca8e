"""What OwnModel asks of a network is checked, and said in the network's own words."""

import pytest
import torch
from torch import Tensor, nn

from attnprobe import attribute
from attnprobe.attention.multihead import MultiHeadAttention
from attnprobe.attention.transformer import TransformerClassifier
from attnprobe.errors import InputError
from attnprobe.models.own import OwnModel, Vocabulary

WORDS = Vocabulary.of(["a b c d"])


class Reader(nn.Module):
    """A classifier whose parts the tests leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(len(WORDS.tokens), 8)
        self.attention, self.answer = MultiHeadAttention(8, 2), nn.Linear(8, 3)

    def forward(self, embeddings: Tensor, is_token: Tensor | None = None) -> Tensor:
        return self.answer(self.attention(embeddings)[:, 0])


class OfIds(Reader):
    def forward(self, ids: Tensor, is_token: Tensor | None = None) -> Tensor:
        return super().forward(self.token_embedding(ids))


class OneArgument(Reader):
    def forward(self, embeddings: Tensor) -> Tensor:
        return super().forward(embeddings)


class Named(Reader):
    def forward(self, embeddings: Tensor, *, mask: Tensor | None = None) -> Tensor:
        return super().forward(embeddings)


def test_classes_without_names_are_refused_and_names_for_other_classes():
    network = TransformerClassifier(len(WORDS.tokens), 3)
    with pytest.raises(InputError, match=r"own gives 3 outputs for each input.*labels=\[…\]"):
        nameless = OwnModel(network, WORDS)
        nameless.resolve(nameless.example("a b"))
    two = OwnModel(network, WORDS, labels=["no", "yes"])
    with pytest.raises(InputError, match="has 3 outputs and 2 labels"):
        two.resolve(two.example("a b"))


@pytest.mark.parametrize("network", [OneArgument, Named])
def test_a_forward_with_other_arguments_is_refused_at_once(network: type[Reader]):
    with pytest.raises(InputError, match=rf"calls network\(embeddings, is_token\).*{network.__name__}.forward is"):
        OwnModel(network(), WORDS, labels="xyz")


def test_a_network_that_looks_ids_up_is_told_that_it_gets_embeddings():
    model = OwnModel(OfIds(), WORDS, labels="xyz")
    with pytest.raises(InputError, match="OfIds looked its input up in a table of embeddings"):
        model.resolve(model.example("a b"))


def test_a_network_that_does_not_heed_what_is_hidden_is_found_out():
    model = OwnModel(Reader(), WORDS, labels="xyz")
    example = model.example("a b c")
    assert attribute(model, example, "leave_one_out", operator="mean").scores.abs().sum() > 0
    with pytest.raises(InputError, match="same answer whatever is_token hides"):
        attribute(model, example, "leave_one_out", operator="attention_mask")
    heeding = OwnModel(TransformerClassifier(len(WORDS.tokens), 3), WORDS, labels="xyz")
    scores = attribute(heeding, heeding.example("a b c"), "leave_one_out", operator="attention_mask").scores
    assert scores.abs().sum() > 0


def test_a_model_says_in_a_line_what_it_is():
    assert repr(OwnModel(Reader(), WORDS, labels="xyz")) == (
        f"OwnModel(Reader, name='own', reads {len(WORDS.tokens)} words, answers with 3 labels)"
    )
    assert torch.is_tensor(Reader()(torch.randn(1, 2, 8)))
