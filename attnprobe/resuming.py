"""Finished examples of a comparison on disk, so that one that was interrupted goes on where it broke off.

A folder holds `settings.json` (what the comparison is of), `finished/00003/` (an example: all that was found, no
pickle) and `attributions.csv` (the scores so far, for people). An example's folder gets its name when it is complete.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from attnprobe.answer_steps import AnswerSteps
from attnprobe.attribution import Attribution
from attnprobe.capture import Capture
from attnprobe.errors import AttnprobeError, InputError
from attnprobe.fingerprint import differences
from attnprobe.other_attention import WEIGHTS, OtherAttention
from attnprobe.planning import Plan
from attnprobe.study import Judged, Study

SETTINGS, FINISHED, SCORES = "settings.json", "finished", "attributions.csv"
Failures = list[tuple[str, str]]
# What is raised by a file that is there and says something else than what was put into it.
BROKEN = (OSError, ValueError, LookupError, TypeError, AttributeError, SafetensorError, AttnprobeError)


@dataclass(frozen=True, eq=False)
class Shelf:
    """The folder of one comparison."""

    folder: Path
    plan: Plan

    @classmethod
    def opened(cls, folder: Path, plan: Plan, mark: Mapping[str, Any], resume: bool) -> "Shelf":
        """The folder, with what an interrupted comparison of the same left there; resume=False: begun anew.

        Errors: `InputError` where it holds another comparison, with the difference.
        """
        shelf, path = cls(folder, plan), folder / SETTINGS
        was = _read(path) if resume else None
        now = json.loads(json.dumps(mark))
        if was is not None and was != now:
            raise InputError(
                f"the folder {folder} holds a comparison of something else: {'; '.join(differences(was, now))}. Give "
                "another folder, or resume=False (--restart) to begin anew"
            )
        if was is None:
            shutil.rmtree(folder / FINISHED, ignore_errors=True)
        (folder / FINISHED).mkdir(parents=True, exist_ok=True)
        (folder / SCORES).unlink(missing_ok=True)
        _write(path, now)
        return shelf

    def read(self, index: int) -> tuple[Study, Failures] | None:
        """A finished example, None where it is not there; what cannot be read is done again."""
        place = self._place(index)
        if not place.is_dir():
            place.unlink(missing_ok=True)
            return None
        try:
            facts = json.loads((place / "study.json").read_text("utf-8"))
            if not isinstance(facts, dict):
                raise TypeError(f"the facts of an example are an object, got {type(facts).__name__}")
            return self._study(index, facts, load_file(place / "study.st"))
        except BROKEN:
            shutil.rmtree(place)
            return None

    def write(self, index: int, study: Study, failures: Failures) -> None:
        """Put a finished example on disk; it is there as a whole or not at all."""
        place = self._place(index)
        stage = place.with_name(f".{place.name}")
        shutil.rmtree(stage, ignore_errors=True)
        replace(study.capture, example=replace(study.example, notes={}, inputs={})).save(stage)
        tensors: dict[str, Tensor] = {}
        facts = {
            "attributions": [_put(a, f"a{i}", tensors) for i, a in enumerate(study.attributions)],
            "judged": [_put_judged(j, f"j{i}", tensors) for i, j in enumerate(study.judged)],
            "verdicts": study.verdicts.to_dict("list"),
            "evidence": study.evidence.to_dict("list"),
            "lacking": dict(study.lacking),
            "failures": failures,
            "other": None if study.other is None else study.other.facts(),
            "answer": None if study.answer is None else study.answer.facts(),
        }
        if study.other is not None:
            tensors.update({f"other.{name}": getattr(study.other, name).contiguous() for name in WEIGHTS})
        if study.answer is not None:
            tensors.update({f"answer.{name}": one.contiguous() for name, one in study.answer.tensors().items()})
        save_file(tensors, stage / "study.st")
        (stage / "study.json").write_text(json.dumps(facts, default=_plain), encoding="utf-8")
        stage.rename(place)

    def append_scores(self, table: pd.DataFrame) -> None:
        """The scores of one more example, for people who look while the work goes on."""
        path = self.folder / SCORES
        table.to_csv(path, mode="a", header=not path.exists(), index=False)

    def _place(self, index: int) -> Path:
        return self.folder / FINISHED / f"{index:05d}"

    def _study(self, index: int, facts: dict[str, Any], tensors: Mapping[str, Tensor]) -> tuple[Study, Failures]:
        example, target = self.plan.examples[index], self.plan.targets[index]
        options = {entry.name: given for entry, given in self.plan.entries}
        known: dict[str, Any] = {"example": example, "target": target}
        attributions = [
            Attribution(**_got(f, f"a{i}", tensors), options=options[f["method"]], **known)
            for i, f in enumerate(facts["attributions"])
        ]
        study = Study(
            **known,
            attributions=tuple(attributions),
            judged=tuple(_got_judged(f, f"j{i}", tensors) for i, f in enumerate(facts["judged"])),
            capture=replace(Capture.load(self._place(index)), example=example),
            verdicts=pd.DataFrame(facts["verdicts"]),
            evidence=pd.DataFrame(facts["evidence"]),
            lacking=facts["lacking"],
            other=_got_other(facts.get("other"), tensors),
            answer=_got_answer(facts.get("answer"), tensors),
        )
        return study, [(name, error) for name, error in facts["failures"]]


TENSORS_OF_ATTRIBUTION = ("scores", "map", "standard_error")
PLAIN = (
    "method",
    "family",
    "signed",
    "residual",
    "fit",
    "used",
    "model",
    "forward_passes",
    "backward_passes",
    "seconds",
)


def _put(attribution: Attribution, name: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    for part in TENSORS_OF_ATTRIBUTION:
        if (value := getattr(attribution, part)) is not None:
            tensors[f"{name}.{part}"] = value.detach().clone().contiguous()
    return {part: getattr(attribution, part) for part in PLAIN} | {"warnings": list(attribution.warnings)}


def _got(facts: Mapping[str, Any], name: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    found = {part: tensors.get(f"{name}.{part}") for part in TENSORS_OF_ATTRIBUTION}
    return {**facts, **found, "warnings": tuple(facts["warnings"])}


def _got_other(facts: Mapping[str, Any] | None, tensors: Mapping[str, Tensor]) -> OtherAttention | None:
    return None if facts is None else OtherAttention.of(facts, {name: tensors[f"other.{name}"] for name in WEIGHTS})


def _got_answer(facts: Mapping[str, Any] | None, tensors: Mapping[str, Tensor]) -> AnswerSteps | None:
    """None of examples without an answer, and of those that were written before there was such a part."""
    if facts is None:
        return None
    named = {name.removeprefix("answer."): one for name, one in tensors.items() if name.startswith("answer.")}
    return AnswerSteps.of(facts, named)


def _put_judged(judged: Judged, name: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    arrays = {f"values.{m}": v for m, v in judged.values.items()} | {f"curves.{k}": v for k, v in judged.curves.items()}
    arrays["effects"] = judged.effects
    tensors.update({f"{name}.{part}": torch.from_numpy(np.ascontiguousarray(v)) for part, v in arrays.items()})
    return {
        "operator": judged.operator,
        "roles": list(judged.roles),
        "names": list(judged.names),
        "metrics": list(judged.values),
        "kinds": list(judged.curves),
        "exact": list(judged.exact),
    }


def _got_judged(facts: Mapping[str, Any], name: str, tensors: Mapping[str, Tensor]) -> Judged:
    return Judged(
        facts["operator"],
        tuple(facts["roles"]),
        tuple(facts["names"]),
        {m: tensors[f"{name}.values.{m}"].numpy() for m in facts["metrics"]},
        {k: tensors[f"{name}.curves.{k}"].numpy() for k in facts["kinds"]},
        tensors[f"{name}.effects"].numpy(),
        tuple(facts["exact"]),
    )


def _plain(value: Any) -> Any:
    """What JSON does not hold: a number of numpy's or torch's as it is, anything else in words."""
    return value.item() if getattr(value, "size", 0) == 1 and hasattr(value, "item") else str(value)


def _read(path: Path) -> dict[str, Any] | None:
    """What a JSON file says by name, None where there is none that can be read."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, value: Any) -> None:
    """A JSON file in the place of what was there, in one step."""
    stage = path.with_name(f".{path.name}")
    stage.write_text(json.dumps(value, indent=1), encoding="utf-8")
    stage.replace(path)
