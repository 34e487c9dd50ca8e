"""Attributions in inseq's JSON (what `FeatureAttributionOutput.save` writes), and methods made of such a file.

>>> import inseq                                                   # doctest: +SKIP
>>> to_inseq(attribution, "scores.json")                           # doctest: +SKIP
>>> inseq.FeatureAttributionOutput.load("scores.json").show()      # doctest: +SKIP
"""

import base64
import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from attnprobe.attribution import Attribution
from attnprobe.errors import InputError
from attnprobe.exchange.given_scores import OWN, from_scores
from attnprobe.exchange.kinds import attributions as listed_attributions
from attnprobe.registry import Entry

_GZIP = b"\x1f\x8b"


def to_inseq(attributions: Any, path: str | Path | None = None) -> dict[str, Any]:
    """inseq's `FeatureAttributionOutput` of one method as its JSON, and written to a file where there is a path.

    A sequence an attribution. Of a language model the tokens that the answer sees are the prefix and the explained
    token is what is generated; else the tokens are the source, and the explained answer is the target's one token.
    `inseq.FeatureAttributionOutput.load(path)` reads it. Errors: `InputError` for several methods, or no attribution.
    """
    listed = listed_attributions(attributions, "to_inseq")
    methods = sorted({a.method for a in listed})
    if len(methods) != 1:
        raise InputError(f"inseq's file holds one method, got {', '.join(methods) or 'none'}; write one file a method")
    found = _instance(
        "inseq.data.attribution",
        "FeatureAttributionOutput",
        {
            "info": _info(listed),
            "sequence_attributions": [_sequence(a) for a in listed],
            "step_attributions": None,
        },
    )
    if path is not None:
        try:
            Path(path).write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be written ({error.strerror}); choose another place") from error
    return found


def _instance(module: str, name: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {"__instance_type__": [module, name], "attributes": dict(attributes)}


def _info(listed: Sequence[Attribution]) -> dict[str, Any]:
    return {
        "attribution_method": listed[0].method,
        "attributed_fn": listed[0].target.description,
        "model_name": listed[0].model,
        "model_class": "",
        "tokenizer_name": None,
        "tokenizer_class": None,
        "input_texts": [a.example.text for a in listed],
        "generated_texts": [a.target.label_name for a in listed],
        "step_scores": [],
        "attribute_target": False,
        "constrained_decoding": True,
        "include_eos_baseline": False,
    }


def _sequence(a: Attribution) -> dict[str, Any]:
    """One text: its tokens, the explained token behind them, and a column of scores."""
    seen = a.example.n_tokens if a.target.last_seen is None else a.target.last_seen + 1
    ids = a.example.inputs.get("input_ids")
    numbers = ids[0].tolist() if isinstance(ids, Tensor) and ids.shape[-1] == a.example.n_tokens else [-1] * seen
    tokens = [_token(token, number) for token, number in zip(a.example.tokens[:seen], numbers, strict=False)]
    answer = _token(a.target.label_name, a.target.label)
    facts: dict[str, Any] = {"source": tokens, "step_scores": {}, "sequence_scores": {}}
    if a.target.last_seen is None:
        facts |= {"target": [answer], "source_attributions": _packed(a.scores[:, None]), "target_attributions": None}
        facts |= {"attr_pos_start": 0, "attr_pos_end": 1}
    else:
        # inseq has a row for the generated token too, which sees nothing of itself.
        column = torch.cat([a.scores[:seen], torch.tensor([float("nan")])])[:, None]
        facts |= {"target": [*tokens, answer], "source_attributions": None, "target_attributions": _packed(column)}
        facts |= {"attr_pos_start": seen, "attr_pos_end": seen + 1}
    # "Coarse": one score a token, which inseq shows without adding anything up.
    return _instance("inseq.data.attribution", "CoarseFeatureAttributionSequenceOutput", facts)


def _token(token: str, number: int) -> dict[str, Any]:
    return _instance("inseq.utils.typing", "TokenWithId", {"id": int(number), "token": token})


def _packed(scores: Tensor) -> str:
    return base64.b64encode(save({"attribution": scores.float().contiguous()})).decode("ascii")


def from_inseq(
    name: str,
    given: Any,
    *,
    step: int | str | None = None,
    signed: bool = True,
    family: str = OWN,
    texts: Sequence[Any] | None = None,
) -> Entry:
    """A method made of what inseq found: a `FeatureAttributionOutput`, or the path of its JSON (gzip too).

    step: which generated token is explained, by number or as inseq writes it; None where there is one. Scores must be
    one a token: aggregate those of a gradient first (`out.aggregate()`). signed: inseq's saliency has no direction.
    A text is found by its tokens (of a language model the prefix that the step sees), or by its number among `texts`.
    Errors: `InputError` for a file that is not inseq's, scores that were not aggregated, a step that is not there.
    """
    output = _plain(_read(given)) if isinstance(given, str | Path) else given
    sequences = _get(output, "sequence_attributions")
    if not sequences:
        raise InputError(f"'{name}': expected inseq's FeatureAttributionOutput or its JSON, got {type(given).__name__}")
    found = [_pairs(one, step, f"'{name}', sequence {at}") for at, one in enumerate(sequences)]
    return from_scores(name, found, texts=texts, signed=signed, family=family, source="inseq")


def _read(path: str | Path) -> Any:
    try:
        data = Path(path).read_bytes()
        return json.loads(gzip.decompress(data) if data.startswith(_GZIP) else data)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); give the file that inseq saved") from error


def _plain(value: Any) -> Any:
    """inseq's JSON without the names of its classes."""
    if isinstance(value, dict):
        inner = value.get("attributes") if "__instance_type__" in value else value
        return {key: _plain(one) for key, one in (inner or {}).items()}
    return [_plain(one) for one in value] if isinstance(value, list) else value


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _pairs(sequence: Any, step: int | str | None, where: str) -> list[tuple[str, float]]:
    """The tokens that one step sees, with their scores."""
    target = [str(_get(token, "token")) for token in _get(sequence, "target") or ()]
    begin, end = int(_get(sequence, "attr_pos_start") or 0), int(_get(sequence, "attr_pos_end") or len(target))
    column = _column(target[begin:end], step, where)
    given = _get(sequence, "source_attributions")
    tokens = [str(_get(token, "token")) for token in _get(sequence, "source") or ()]
    if given is None:
        given, tokens = _get(sequence, "target_attributions"), target[: begin + column]
    if given is None:
        raise InputError(f"{where}: there are no scores of the source or the target in it")
    scores = _tensor(given, where)
    if scores.ndim != 2:
        raise InputError(
            f"{where}: scores of shape {tuple(scores.shape)} are not one a token and step; aggregate them first "
            "(out.aggregate())"
        )
    if scores.shape[0] < len(tokens) or scores.shape[1] <= column:
        raise InputError(f"{where}: scores of shape {tuple(scores.shape)} do not fit {len(tokens)} tokens")
    return list(zip(tokens, scores[: len(tokens), column].tolist(), strict=True))


def _column(generated: Sequence[str], step: int | str | None, where: str) -> int:
    shown = ", ".join(f"{at}: '{token}'" for at, token in enumerate(generated))
    if step is None and len(generated) == 1:
        return 0
    if isinstance(step, str) and generated.count(step) == 1:
        return generated.index(step)
    if isinstance(step, int) and 0 <= step < len(generated):
        return step
    raise InputError(f"{where}: say which generated token is explained, step=…; got {step!r}, there are {shown}")


def _tensor(given: Any, where: str) -> Tensor:
    """Scores as a tensor: packed, as lists, or as they are."""
    try:
        if isinstance(given, str):
            return load(base64.b64decode(given))["attribution"].float()
        return torch.as_tensor(given).detach().float().cpu()
    except Exception as error:  # safetensors, base64 and torch each have errors of their own
        raise InputError(f"{where}: its scores cannot be read ({error})") from error
