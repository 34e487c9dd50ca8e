"""What OwnModel asks of a network: how it is called, what it gives back, and that it heeds what it is told to hide.

network(embeddings, is_token)            embeddings [batch token d_model], is_token [batch token] or None
network(embeddings, written, is_token)   of an encoder-decoder
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from attnprobe.errors import InputError

CALLED = {2: "network(embeddings, is_token)", 3: "network(embeddings, written, is_token)"}


def check_call(network: nn.Module, n_arguments: int) -> None:
    """Raise for a network whose forward cannot be called as OwnModel calls it."""
    try:
        signature = inspect.signature(network.forward)
    except (TypeError, ValueError):  # nothing to look at: the call will show
        return
    try:
        signature.bind(*[None] * n_arguments)
    except TypeError as error:
        raise InputError(
            f"OwnModel calls {CALLED[n_arguments]}, embeddings [batch token d_model], and "
            f"{type(network).__name__}.forward is {signature} ({error}); wrap it in a module with such a forward"
        ) from None


@contextmanager
def told_embeddings(network: nn.Module) -> Iterator[None]:
    """Within the block, a network that takes its input for ids is told that it gets embeddings."""
    try:
        yield
    except RuntimeError as error:
        if "indices" not in str(error) or "Long" not in str(error):
            raise
        raise InputError(
            f"{type(network).__name__} looked its input up in a table of embeddings, and OwnModel calls it with "
            "embeddings [batch token d_model], so that they can be changed; take the look-up out of its forward"
        ) from error


def check_answer(name: str, answer: Tensor, names: tuple[str, ...] | None) -> None:
    """Raise for outputs that the labels do not fit: classes without names, or names for other classes."""
    if names is None and answer.ndim == 2:
        raise InputError(
            f"{name} gives {answer.shape[-1]} outputs for each input, not one of the vocabulary at every token; name "
            "its classes: OwnModel(network, vocabulary, labels=[…])"
        )
    if names is not None and answer.ndim > 1 and answer.shape[-1] != len(names):
        raise InputError(f"{name} has {answer.shape[-1]} outputs and {len(names)} labels; name each of them")


def check_heeds(name: str, run: Callable[[Tensor | None], list[Tensor]], n_tokens: int, device: torch.device) -> None:
    """Raise for a network on which is_token does nothing bit for bit, whatever it hides: removal would do nothing.

    run: the answer under is_token, and the attention weights that led to it, which may change though the answer does
    not (a residual stream can carry all of it).
    """
    if n_tokens < 2:
        return
    plain = run(None)
    everyone = torch.ones(n_tokens, n_tokens, dtype=torch.bool, device=device)
    hidden = torch.cat([everyone[:1].clone(), everyone ^ torch.eye(n_tokens, dtype=torch.bool, device=device)])
    hidden[0, 1:] = False
    # All but the first token, then each alone: what some of them do may cancel out.
    if all(_alike(plain, run(row[None])) for row in hidden):
        raise InputError(
            f"{name} gives the same answer whatever is_token hides, so hiding tokens takes nothing away; use the mask "
            "in its attention (visible=padding_mask(is_token)), or another operator: 'mean', 'zero', 'delete'"
        )


def _alike(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
