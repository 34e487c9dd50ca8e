"""Trains the bundled sentiment classifier: `python -m attnprobe.models.bundled.train [--out FOLDER]`.

1. fetch the rated sentences (data.py) and learn the vocabulary (vocabulary.py);
2. pretrain a small BERT on hidden words of all training texts (fitting.py, `pretrain`);
3. fit the classifier to the ratings of movie and product sentences (fitting.py, `fit`);
4. write the model and print its figures on the validation split, and with `--test` on the test split.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor
from transformers import BertForSequenceClassification, BertTokenizer

from attnprobe.models.bundled import bundled_folder
from attnprobe.models.bundled.data import Rated, Splits, download, make_splits, read_sentences
from attnprobe.models.bundled.evaluation import (
    accuracy,
    calibration_error,
    constant_accuracy,
    rules_accuracy,
    tfidf_accuracy,
)
from attnprobe.models.bundled.fitting import fit, predict, pretrain
from attnprobe.models.bundled.settings import Settings
from attnprobe.models.bundled.vocabulary import encode, learn_vocabulary, make_tokenizer


def texts_of(sentences: Sequence[Rated]) -> list[str]:
    """The texts alone."""
    return [sentence.text for sentence in sentences]


def labels_of(sentences: Sequence[Rated]) -> Tensor:
    """The labels alone  # [sentence]."""
    return torch.tensor([sentence.label for sentence in sentences])


def train(splits: Splits, settings: Settings) -> tuple[BertForSequenceClassification, BertTokenizer]:
    """The classifier and its tokenizer; one line of progress an epoch is printed."""
    start = time.perf_counter()
    torch.manual_seed(settings.seed)
    rated = texts_of(splits.rated)
    tokenizer = make_tokenizer(learn_vocabulary(rated, settings.pieces), settings.longest)
    rows, validation_rows = encode(tokenizer, rated), encode(tokenizer, texts_of(splits.validation))
    labels = labels_of(splits.validation)

    def progress(line: str) -> None:
        print(f"{time.perf_counter() - start:6.0f} s  {line}", flush=True)

    def check(epoch: int, model: BertForSequenceClassification) -> None:
        progress(f"epoch {epoch}: validation accuracy {accuracy(predict(model, validation_rows), labels):.3f}")

    encoder = pretrain(rows + encode(tokenizer, splits.unrated), settings, len(tokenizer), progress)
    model = fit(rows, splits.rated, encoder, settings, check)
    return model, tokenizer


def figures(model: BertForSequenceClassification, tokenizer: BertTokenizer, part: Sequence[Rated]) -> dict[str, float]:
    """Accuracy, accuracy per label and calibration error on a part."""
    logits, labels = predict(model, encode(tokenizer, texts_of(part))), labels_of(part)
    return {
        "sentences": len(part),
        "accuracy": accuracy(logits, labels),
        "accuracy_negative": accuracy(logits[labels == 0], labels[labels == 0]),
        "accuracy_positive": accuracy(logits[labels == 1], labels[labels == 1]),
        "calibration_error": calibration_error(logits.softmax(dim=-1), labels),
    }


def baselines(archive: Path, rated: Sequence[Rated], part: Sequence[Rated]) -> dict[str, float]:
    """Accuracy of a constant guess, of VADER's rules and of TF-IDF with logistic regression."""
    return {
        "constant_accuracy": constant_accuracy(part),
        "rules_accuracy": rules_accuracy(archive, part),
        "tfidf_accuracy": tfidf_accuracy([s for s in rated if s.is_clear and s.source == "movie"], part),
    }


def report(folder: Path, archive: Path, splits: Splits, *, test: bool) -> dict[str, dict[str, float]]:
    """Figures of the model in a folder, beside the baselines, on the validation split and maybe the test split."""
    model = BertForSequenceClassification.from_pretrained(folder)
    tokenizer = BertTokenizer.from_pretrained(folder)
    parts = {"validation": splits.validation} | ({"test": splits.test} if test else {})
    return {
        name: figures(model, tokenizer, part) | baselines(archive, splits.rated, part) for name, part in parts.items()
    }


def parse_arguments() -> argparse.Namespace:
    """The command line."""
    cache = Path.home() / ".cache" / "attnprobe"
    parser = argparse.ArgumentParser(description="Train the bundled sentiment classifier, and print its figures.")
    parser.add_argument("--out", type=Path, default=bundled_folder(), help="folder of the model")
    parser.add_argument("--cache", type=Path, default=cache, help="folder for the downloaded sentences")
    parser.add_argument("--seed", type=int, default=Settings.seed)
    parser.add_argument("--threads", type=int, default=1, help="another number gives other last digits")
    parser.add_argument("--figures", action="store_true", help="only print the figures of the model in the folder")
    parser.add_argument("--test", action="store_true", help="look at the test split as well")
    return parser.parse_args()


def main() -> None:
    """Train and write the model, unless it is there already, and print its figures."""
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)
    archive = download(arguments.cache)
    splits = make_splits(read_sentences(archive))
    if not arguments.figures:
        model, tokenizer = train(splits, replace(Settings(), seed=arguments.seed))
        model.save_pretrained(arguments.out)
        tokenizer.save_pretrained(arguments.out)
    print(json.dumps(report(arguments.out, archive, splits, test=arguments.test), indent=2))


if __name__ == "__main__":
    main()
