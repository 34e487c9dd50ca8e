"""Pretraining on hidden words, then fitting the classifier to the ratings, with averaged weights."""

import copy
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertForMaskedLM, BertForSequenceClassification, BertModel

from attnprobe.models.bundled.batches import MASK, PAD, batch_indices, hide, pad
from attnprobe.models.bundled.data import Rated
from attnprobe.models.bundled.settings import Settings, make_config

Rows = Sequence[list[int]]  # token ids of each text


def make_optimizer(model: nn.Module, rate: float, decay: float) -> torch.optim.AdamW:
    """AdamW that decays neither biases nor layer norms."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=True)


def share_of_rate(step: int, steps: int) -> float:
    """Warm-up over a tenth of the steps, then a cosine down to zero.

    >>> [round(share_of_rate(step, 20), 2) for step in (0, 1, 2, 11, 20)]
    [0.5, 1.0, 1.0, 0.5, 0.0]
    """
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / (steps - warm)))


def update(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
    """One step of the optimizer at the given rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def scheduled(rows: Rows, size: int, epochs: int, generator: torch.Generator) -> Iterator[tuple[int, float, list[int]]]:
    """Step, share of the learning rate and batch indices, over all epochs."""
    steps = epochs * math.ceil(len(rows) / size)
    lengths = [len(row) for row in rows]
    batches = (batch for _ in range(epochs) for batch in batch_indices(lengths, size, generator))
    for step, indices in enumerate(batches):
        yield step, share_of_rate(step, steps), indices


def pretrain(rows: Rows, settings: Settings, pieces: int, report: Callable[[str], None]) -> BertModel:
    """An encoder that learned to guess hidden pieces (Devlin et al. 2019) of all training texts.

    Of the pieces to be guessed nine in ten are seen as [MASK], one in ten as itself.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    model = BertForMaskedLM(make_config(settings, pieces, dropout=0.0)).train()
    optimizer = make_optimizer(model, settings.pretrain_rate, settings.pretrain_decay)
    losses: list[float] = []
    for step, share, indices in scheduled(rows, settings.batch, settings.pretrain_epochs, generator):
        ids = pad([rows[i] for i in indices])
        seen = hide(ids, settings.pretrain_hidden, generator)
        wanted = seen.eq(MASK) & ids.ne(MASK)
        shown = wanted & (torch.rand(ids.shape, generator=generator) < 0.1)
        seen = torch.where(shown, ids, seen)
        states = model.bert(seen, attention_mask=ids.ne(PAD).long()).last_hidden_state
        loss = functional.cross_entropy(model.cls(states[wanted]), ids[wanted])
        update(model, optimizer, loss, settings.pretrain_rate * share)
        losses.append(loss.item())
        if (step + 1) % math.ceil(len(rows) / settings.batch) == 0:
            report(f"pretraining: loss {sum(losses) / len(losses):.3f}")
            losses.clear()
    return model.bert


@torch.no_grad()
def average_into(averaged: nn.Module, model: nn.Module, step: int, settings: Settings) -> None:
    """Move the averaged weights towards the model's; early steps are forgotten faster."""
    kept = min(settings.averaging, (step + 1) / (step + 10))
    for mean, new in zip(averaged.parameters(), model.parameters(), strict=True):
        mean.lerp_(new, 1 - kept)


def rating_loss(logits: Tensor, sentences: Sequence[Rated], settings: Settings) -> Tensor:
    """Cross-entropy with the label that the mean rating makes likely; near zero both are."""
    positive = torch.tensor([settings.slope * sentence.rating for sentence in sentences]).sigmoid()
    weights = torch.tensor([1.0 if s.source == "movie" else settings.product_weight for s in sentences])
    losses = functional.cross_entropy(logits, torch.stack([1 - positive, positive], dim=-1), reduction="none")
    return (losses * weights).mean()


def fit(
    rows: Rows,
    sentences: Sequence[Rated],
    encoder: BertModel,
    settings: Settings,
    check: Callable[[int, BertForSequenceClassification], None],
) -> BertForSequenceClassification:
    """The classifier with averaged weights; `check` sees it after each epoch.

    Random pieces of each sentence are hidden behind [MASK], so that a sentence with hidden words is
    nothing new to the model when an explanation hides them.
    """
    generator = torch.Generator().manual_seed(settings.seed)
    config = make_config(settings, encoder.config.vocab_size, settings.dropout)
    model = BertForSequenceClassification(config).train()
    model.bert.load_state_dict(encoder.state_dict(), strict=False)
    averaged = copy.deepcopy(model)
    optimizer = make_optimizer(model, settings.rate, settings.decay)
    epoch_steps = math.ceil(len(rows) / settings.batch)
    for step, share, indices in scheduled(rows, settings.batch, settings.epochs, generator):
        ids = pad([rows[i] for i in indices])
        hidden = settings.hidden * torch.rand(len(indices), 1, generator=generator)
        logits = model(hide(ids, hidden, generator), attention_mask=ids.ne(PAD).long()).logits
        loss = rating_loss(logits, [sentences[i] for i in indices], settings)
        update(model, optimizer, loss, settings.rate * share)
        average_into(averaged, model, step, settings)
        if (step + 1) % epoch_steps == 0:
            check((step + 1) // epoch_steps, averaged)
    return averaged.eval()


@torch.no_grad()
def predict(model: BertForSequenceClassification, rows: Rows) -> Tensor:
    """Logits of each row  # [row, label]."""
    model.eval()
    logits = torch.empty(len(rows), 2)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    for start in range(0, len(order), 128):
        part = order[start : start + 128]
        ids = pad([rows[i] for i in part])
        logits[part] = model(ids, attention_mask=ids.ne(PAD).long()).logits
    return logits
