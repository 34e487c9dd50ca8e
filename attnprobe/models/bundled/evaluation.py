"""Accuracy and calibration, and the three baselines that the classifier is compared with."""

import tarfile
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from attnprobe.errors import InputError
from attnprobe.models.bundled.data import PACKAGE, VERSION, Rated


def accuracy(logits: Tensor, labels: Tensor) -> float:
    """Share of rows whose larger logit is at the label.

    >>> accuracy(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([1, 0]))
    0.5
    """
    return logits.argmax(dim=-1).eq(labels).float().mean().item()


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 10) -> float:
    """Expected calibration error of the predicted label (Guo et al. 2017, equation 3), equal-width bins.

    >>> calibration_error(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([1, 0]))
    0.5
    """
    confidence, predicted = probabilities.max(dim=-1)
    right = predicted.eq(labels).float()
    which = (confidence * bins).long().clamp(max=bins - 1)
    gaps = [(confidence[which == b] - right[which == b]).sum().abs() for b in range(bins)]
    return (torch.stack(gaps).sum() / len(labels)).item()


def constant_accuracy(held_out: Sequence[Rated]) -> float:
    """Accuracy of always giving the label that is more frequent in the held-out part."""
    share = sum(sentence.label for sentence in held_out) / len(held_out)
    return max(share, 1 - share)


def tfidf_accuracy(train: Sequence[Rated], held_out: Sequence[Rated], inverse_penalty: float = 10.0) -> float:
    """Accuracy of a logistic regression on TF-IDF of words and word pairs."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    pipeline = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), LogisticRegression(C=inverse_penalty, max_iter=1000))
    pipeline.fit([sentence.text for sentence in train], [sentence.label for sentence in train])
    return float(pipeline.score([s.text for s in held_out], [s.label for s in held_out]))


def load_rules(archive: Path) -> ModuleType:
    """VADER's own module, unpacked beside the archive and executed from there."""
    folder = archive.parent / f"{PACKAGE}-{VERSION}" / PACKAGE
    if not folder.exists():
        with tarfile.open(archive) as opened:
            opened.extractall(archive.parent, filter="data")
    spec = spec_from_file_location("_vader_rules", folder / f"{PACKAGE}.py")
    if spec is None or spec.loader is None:
        raise InputError(f"{folder} holds no module '{PACKAGE}.py'; delete the folder and run again")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rules_accuracy(archive: Path, held_out: Sequence[Rated]) -> float:
    """Accuracy of VADER's rules: positive when the compound score is above zero."""
    rules = load_rules(archive).SentimentIntensityAnalyzer()
    compounds = [rules.polarity_scores(sentence.text)["compound"] for sentence in held_out]
    return sum(int(c > 0) == s.label for c, s in zip(compounds, held_out, strict=True)) / len(held_out)
