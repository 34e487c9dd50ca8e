"""Every example of a comparison under every method and operator, one after the other; finished ones stay on disk."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd
from tqdm.auto import tqdm

from attnprobe import tables, verdict_tables
from attnprobe.answer_steps import AnswerSteps, answer_steps
from attnprobe.attributing import attribute
from attnprobe.attribution import Attribution
from attnprobe.counterfactuals import other_attention
from attnprobe.errors import AttnprobeError, told
from attnprobe.judging import judge
from attnprobe.models.evaluator import remembering
from attnprobe.models.rows import DRAWN
from attnprobe.other_attention import OtherAttention
from attnprobe.planning import Plan
from attnprobe.resuming import Failures, Shelf
from attnprobe.study import Judged, Settings, Study, capture_for_page

# What stands in `failures` in the place of a method where a text's orders, or its maps, could not be judged, no other
# attention could be looked for, or the steps of an answer could not be explained.
REMOVAL, VERDICTS, COUNTERFACTUAL, ANSWER = BESIDE = (
    *("judging by removal", "verdicts", "counterfactual attention"),
    "attribution of each answer token",
)


@dataclass(eq=False)
class Work:
    """A comparison on its way. said: by example, what the methods gave, and what those that failed said."""

    plan: Plan
    settings: Settings
    verdicts: bool
    bar: tqdm
    counterfactual: bool = False
    said: dict[int, tuple[list[Attribution], Failures]] = field(default_factory=dict)

    def attributed(self, index: int) -> tuple[list[Attribution], Failures]:
        """What the methods say of an example; asked once."""
        if index not in self.said:
            self.said[index] = self._attribute(index)
        return self.said[index]

    def _attribute(self, index: int) -> tuple[list[Attribution], Failures]:
        found: list[Attribution] = []
        failed: Failures = []
        for entry, options in self.plan.entries:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # they are kept in the attribution, and shown on the page
                    example, target = self.plan.examples[index], self.plan.targets[index]
                    found.append(attribute(self.plan.model, example, entry, target, **options))
            except Exception as error:  # a method may be anybody's: whatever goes wrong in it is its own failure
                failed.append((entry.name, told(error)))
            self.bar.update()
        return found, failed

    def study(self, index: int) -> tuple[Study, Failures]:
        """One example under every method and operator, and what went wrong."""
        plan = self.plan
        example, target = plan.examples[index], plan.targets[index]
        capture = capture_for_page(plan.model, example)
        beside = plan.other(index)
        foreign = [] if beside is None else self.attributed(beside)[0]
        with remembering():
            found, failed = self.attributed(index)
            failed = list(failed)
            judged = self._judged(index, found, foreign, failed)
            verdicts, evidence = self._verdicts(index, found, failed)
        other = self._counterfactual(index, failed)
        answer = self._answer(index, failed)
        lacking = plan.lacking[index]
        study = Study(example, target, tuple(found), judged, capture, verdicts, evidence, lacking, other, answer)
        return study, failed

    def _judged(
        self, index: int, found: Sequence[Attribution], foreign: Sequence[Attribution], failed: Failures
    ) -> tuple[Judged, ...]:
        judged = []
        for operator in self.settings.operators:
            if found and bool(found[0].units.any()) and operator not in self.plan.lacking[index]:
                try:
                    one = judge(self.plan.model, found, self.settings, operator, foreign)
                    judged.append(one)
                    failed += [(REMOVAL, f"{operator}, {metric}: {said}") for metric, said in one.failed.items()]
                except AttnprobeError as error:
                    failed.append((REMOVAL, f"{operator}: {error}"))
            self.bar.update()
        return tuple(judged)

    def _verdicts(
        self, index: int, found: Sequence[Attribution], failed: Failures
    ) -> tuple[pd.DataFrame, pd.DataFrame]:
        if not self.verdicts:
            return pd.DataFrame(), pd.DataFrame()
        try:
            return verdict_tables.judged(self.plan.model, found, self.plan.others(index), self.settings.seed)
        except AttnprobeError as error:
            failed.append((VERDICTS, str(error)))
            return pd.DataFrame(), pd.DataFrame()
        finally:
            self.bar.update()

    def _counterfactual(self, index: int, failed: Failures) -> OtherAttention | None:
        if not self.counterfactual:
            return None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # those of reading the answer's position: methods told them already
                example, target = self.plan.examples[index], self.plan.targets[index]
                return other_attention(self.plan.model, example, target, seed=self.settings.seed)
        except AttnprobeError as error:
            failed.append((COUNTERFACTUAL, str(error)))
            return None
        finally:
            self.bar.update()

    def _answer(self, index: int, failed: Failures) -> AnswerSteps | None:
        """What each step of an answer owes to the text, by the first operator that draws nothing."""
        lacking = self.plan.lacking[index]
        known = (name for name in self.settings.operators if name not in lacking and name not in DRAWN)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # methods told them already
                return answer_steps(self.plan.model, self.plan.examples[index], next(known, None))
        except Exception as error:  # nobody asked for this part: no fault in it may end a comparison
            failed.append((ANSWER, told(error)))
            return None


def run(
    plan: Plan,
    settings: Settings,
    shelf: Shelf | None,
    *,
    verdicts: bool,
    progress: bool,
    counterfactual: bool = False,
) -> tuple[list[Study], list[tuple[int, str, str]]]:
    """All studies, and (example, method, error) of what failed; each finished example is on disk before the next."""
    studies: list[Study] = []
    failures: list[tuple[int, str, str]] = []
    steps = len(plan.entries) + len(settings.operators) + int(verdicts) + int(counterfactual)
    total = len(plan.examples) * steps
    hidden = None if progress else True
    with tqdm(total=total, desc="methods and operators x texts", disable=hidden, delay=1.0, leave=False) as bar:
        work = Work(plan, settings, verdicts, bar, counterfactual)
        for index in range(len(plan.examples)):
            known = None if shelf is None else shelf.read(index)
            if known is None:
                study, failed = work.study(index)
                if shelf is not None:
                    shelf.write(index, study, failed)
            else:
                study, failed = known
                bar.update(0 if index in work.said else steps)
            work.said[index] = (list(study.attributions), [one for one in failed if one[0] not in BESIDE])
            studies.append(study)
            failures += [(index, name, error) for name, error in failed]
            if shelf is not None and study.attributions:
                shelf.append_scores(tables.attributions([study]).assign(example_index=index))
    return studies, failures
