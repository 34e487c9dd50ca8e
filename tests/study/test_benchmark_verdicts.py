"""The calibration of the verdict: truths by hand, thresholds from the other half, and what the command gives."""

import json
from collections.abc import Callable

import pytest
import torch

from attnprobe.benchmark.verdicts import benchmark_verdicts, truth_of
from attnprobe.benchmark.verdicts_fitting import fitted
from attnprobe.benchmark.verdicts_measuring import MAPS, Measured
from attnprobe.benchmark.verdicts_summary import Rate, by_family, judged_with, rates, twins
from attnprobe.cli.app import main
from attnprobe.errors import InputError
from attnprobe.judgement.rule import RULE


@pytest.fixture(scope="module")
def found():
    return benchmark_verdicts(["P10", "P3"], 2, n_boundary=1, progress=False)


def test_a_case_says_all_that_is_asked(found):
    inside = [case for case in found.cases if not case.boundary]
    assert {case.family for case in found.cases} == {"P10", "P3"} and {case.variant for case in inside} == {0, 1}
    assert all(case.truth in ("explains", "misleads", "neither") for case in found.cases)
    assert all(case.verdict in ("explains", "misleads", "undecided") and case.reason for case in found.cases)
    assert all(case.held_out != case.boundary and 8 <= case.n_tokens <= 40 for case in found.cases)
    kinds = {"own": len(MAPS), "permuted": len(MAPS), "foreign": len(MAPS)}
    for number in range(2):
        here = [case.kind for case in inside if (case.family, case.variant) == ("P10", number)]
        assert {kind: here.count(kind) for kind in kinds} == kinds
    assert any(case.kind == "twin" for case in found.cases if case.family == "P3")


def test_saturation_is_among_the_causes_where_it_was_planted(found):
    assert all("saturation" in case.causes for case in found.cases if case.family == "P10" and not case.boundary)


def test_truth_by_hand():
    units = torch.arange(5)
    one = Measured("P1", 0, False, 5, units, frozenset({1, 3}), torch.zeros(5), (), {}, ())

    def truth(*scores: float) -> str:
        return truth_of(torch.tensor(scores), one)

    assert truth(0.1, 0.5, 0.2, 0.4, 0.0) == "explains"
    assert truth(0.4, 0.5, 0.2, 0.4, 0.0) == "neither"  # a tie across the border is not above
    assert truth(0.5, 0.1, 0.4, 0.0, 0.2) == "misleads"
    assert truth(0.5, 0.4, 0.1, 0.3, 0.0) == "neither"  # first wrong, the rest better than chance
    assert truth(0.0, 0.5, 0.4, 0.0, 0.3) == "neither"  # first right
    assert truth(0.5, 0.5, 0.4, 0.0, 0.3) == "neither"  # first shared with an acting one
    assert truth(0.0, 0.0, 0.0, 0.0, 0.0) == "neither"
    assert truth_of(torch.tensor([0.4, 0.5, 0.2, 0.3, 0.0]), one, also=[0]) == "explains"


def test_thresholds_come_from_the_other_half_alone(found):
    measured = {
        family: [m for m in found.measured if m.family == family and not m.boundary] for family in ("P10", "P3")
    }
    known = {family: [(m, n, truth_of(m.maps[n], m)) for m in ms for n in MAPS] for family, ms in measured.items()}
    assert found.halves == (("P10",), ("P3",))
    assert found.thresholds == (fitted(known["P3"]), fitted(known["P10"]))
    assert fitted([]) == RULE


def test_thresholds_that_do_as_well_as_the_rule_are_the_rule(found):
    # Truth that the rule gives itself cannot be fitted better.
    known = [
        (m, name, "neither" if case.verdict == "undecided" else case.verdict)
        for m in found.measured
        for name in MAPS
        for case in found.cases
        if (case.family, case.variant, case.boundary, case.map) == (m.family, m.number, m.boundary, name)
        and case.boundary
    ]
    assert fitted([one for one in known if one[0].boundary]) == RULE


def test_rates_are_counted_with_wilsons_upper_end(found):
    by_name = {rate.name: rate for rate in rates([case for case in found.cases if not case.boundary])}
    own = [case for case in found.cases if case.kind == "own" and not case.boundary]
    assert by_name["neither, called explains"].n == sum(case.truth == "neither" for case in own)
    assert Rate("", 0, 340, 0.01).high == pytest.approx(0.01118, abs=1e-4)
    frame = by_family(own)
    assert frame.iloc[:-1, 1:-1].sum().tolist() == frame.iloc[-1, 1:-1].tolist()
    assert int(frame.iloc[-1, 1:-1].sum()) == len(own)
    both, conflicting = twins(found)
    assert 0 <= both <= conflicting
    assert all(
        case.verdict in ("explains", "misleads", "undecided") for case in judged_with(found.measured, RULE, ["mean"])
    )


def test_a_family_that_does_not_exist_and_no_variants_are_refused():
    with pytest.raises(InputError, match="no family of planted models"):
        benchmark_verdicts(["P99"], 1)
    with pytest.raises(InputError, match="1 or more"):
        benchmark_verdicts(["P1"], 0)


@pytest.mark.parametrize("format", ["json", "table"])
def test_the_command(format: str, tmp_path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    words = ["--families", "P10", "--variants", "1", "--format", format, "--out", "new/cases.json"]
    assert main(["benchmark", "verdicts", *words]) == 0
    shown = capsys.readouterr().out
    entries = json.loads((tmp_path / "new" / "cases.json").read_text("utf-8"))
    asked = {"family", "variant", "n_tokens", "map", "truth", "verdict", "causes", "held_out"}
    assert all(asked <= set(entry) for entry in entries) and {entry["family"] for entry in entries} == {"P10"}
    if format == "json":
        assert json.loads(shown) == entries
    else:
        assert "misleads, called explains" in shown and "P10" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--families", "P99"], "no family of planted models is named 'P99'"),
        (["--variants", "0"], "Must be >= 1"),
        (["--out", "cases.csv"], "a list of cases ends in .json"),
    ],
)
def test_what_cannot_be_done_is_one_message(words: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    refused: Callable[..., int] = main
    assert refused(["benchmark", "verdicts", *words]) != 0
    assert message in capsys.readouterr().err
