"""A report's conclusion, confirmed, refuted, or neither."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.commands.report import findings
from paceline.records.study import CellRecord, Conclusion
from paceline.report.words.spoken import SpokenJudged
from unit.analysis.made import broken, cell, claim, profiled, run, study, timed


def _judged(a: CellRecord, b: CellRecord, metric: str, says: str, **plan: object) -> SpokenJudged:
    (found,) = findings(study(a, b, conclusions=[claim(metric, says)], **plan)).judged
    return found


@pytest.mark.parametrize(
    ("says", "b_seconds", "verdict"),
    [
        ("lower", 10.0, "confirmed"),
        ("lower", 40.0, "refuted"),
        ("higher", 40.0, "confirmed"),
        ("equal", 10.0, "refuted"),
        ("equal", 20.01, "confirmed"),
        ("lower", 20.01, "refuted"),
        ("higher", 20.01, "refuted"),
    ],
)
def test_verdicts(says: str, b_seconds: float, verdict: str) -> None:
    found = _judged(timed("a", 20.0), timed("b", b_seconds), "time.training_s", says)
    assert found.verdict == verdict and "n = 5" in found.why and "95 % interval" in found.why


def test_a_wide_interval_does_not_confirm_equality() -> None:
    scores_a, scores_b = [0.90, 0.94, 0.91, 0.93, 0.92], [0.93, 0.91, 0.94, 0.90, 0.925]
    a, b = timed("a", 1.0, accuracy=scores_a), timed("b", 1.0, accuracy=scores_b)
    assert _judged(a, b, "test.accuracy", "equal").verdict == "no difference shown"


@pytest.mark.parametrize("sign", [1, -1])
def test_both_ends_of_the_interval_must_lie_within(sign: int) -> None:
    """-0.5 points, interval -1.1 to +0.1: no difference shown, but "the same" is not shown either."""
    changes = [sign * change for change in (-0.0099, -0.0099, -0.005, -0.0001, -0.0001)]
    a = timed("a", 1.0, accuracy=[0.9] * 5)
    b = timed("b", 1.0, accuracy=[0.9 + change for change in changes])
    assert _judged(a, b, "test.accuracy", "equal").verdict == "no difference shown"


def test_a_direction_is_refuted_where_no_value_of_the_interval_has_it() -> None:
    """Half a point to two and a half more, n = 3: nothing is shown, but "lower" is out of the question."""
    a = timed("a", 1.0, n=3, accuracy=[0.90, 0.90, 0.90])
    b = timed("b", 1.0, n=3, accuracy=[0.905, 0.915, 0.925])
    assert _judged(a, b, "test.accuracy", "equal").verdict == "no difference shown"
    assert _judged(a, b, "test.accuracy", "higher").verdict == "no difference shown"
    found = _judged(a, b, "test.accuracy", "lower")
    assert found.verdict == "no difference shown", "the interval reaches below"
    b = timed("b", 1.0, n=3, accuracy=[0.9085, 0.915, 0.9215])
    found = _judged(a, b, "test.accuracy", "lower")
    assert found.basis in ("beyond the interval", "compared") and found.verdict == "refuted"


def _said(**more: object) -> Conclusion:
    said = {"claim": "b is so", "metric": "time.training_s", "baseline": "a", "candidate": "b", "says": "lower", **more}
    return Conclusion.model_validate(said)


def _one(said: Conclusion, *cells: CellRecord, **plan: object) -> SpokenJudged:
    (found,) = findings(study(*cells, conclusions=[said], **plan)).judged
    return found


def test_zero_bytes_are_compared_by_their_difference() -> None:
    """SGD keeps no state: a ratio to 0 does not exist, and "not compared" was the verdict."""

    def state(label: str, size: int) -> CellRecord:
        return timed(label, 1.0, memory={"rss_bytes": 1, "sizes": {"optimizer": size}})

    said = _said(metric="memory.sizes.optimizer")
    found = _one(said, state("a", 4000), state("b", 0))
    assert found.verdict == "confirmed" and "is -3.91 KiB from that of a" in found.why
    assert _one(said, state("a", 0), state("b", 0)).verdict == "refuted"
    assert _one(said.model_copy(update={"says": "equal"}), state("a", 0), state("b", 0)).verdict == "confirmed"
    assert _one(said, state("a", 0), state("b", 4000)).verdict == "refuted"


@pytest.mark.parametrize(("seconds", "verdict"), [(11.0, "confirmed"), (10.0, "refuted"), (8.0, "refuted")])
def test_a_factor_is_of_the_baseline(seconds: float, verdict: str) -> None:
    """More than half the time of one: the gain is not linear."""
    found = _one(_said(says="higher", factor=0.5), timed("a", 20.0), timed("b", seconds))
    assert found.verdict == verdict and "0.5 x that of a" in found.why


@pytest.mark.parametrize(
    ("change", "verdict", "why"),
    [
        ([-0.2] * 5, "confirmed", "the whole interval is beyond 10 points"),
        ([-0.02] * 5, "refuted", "nowhere in the interval is it lower by 10 points"),
        ([-0.11, -0.15, -0.07, -0.12, -0.1], "not decided", "the interval is on both sides of 10 points"),
        ([0.05] * 5, "refuted", "nowhere in the interval"),
    ],
)
def test_far_lower_has_a_size_of_its_own(change: list[float], verdict: str, why: str) -> None:
    """The size is tested, not only that there is some difference: 11 points with an interval from 7 to 15 are not "far"."""
    said = _said(metric="test.accuracy", size=0.1)
    found = _one(said, timed("a", 1.0, accuracy=0.9), timed("b", 1.0, accuracy=[0.9 + each for each in change]))
    assert found.verdict == verdict and why in found.why


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(21.0, "confirmed"), (30.0, "refuted"), (22.0, "not decided"), (19.0, "confirmed")]
)
def test_nearly_the_same_has_a_size_of_its_own(seconds: float, verdict: str) -> None:
    shaken = [seconds * (1 + i) for i in (-0.02, 0.01, 0.0, 0.02, -0.01)]
    b = cell("b", [run(each, seed=i) for i, each in enumerate(shaken)])
    assert _one(_said(says="equal", size=0.1), timed("a", 20.0), b).verdict == verdict


def test_a_cell_whose_runs_all_fail_is_not_tested_here() -> None:
    found = _one(_said(), timed("a", 20.0), cell("b", [broken("no graph"), broken("no graph")]))
    assert found.verdict == "not tested here" and "2 of 2 runs: task: no graph" in found.why
    assert _one(_said(), timed("a", 20.0), cell("b", [broken("no graph"), None])).verdict == "not tested"


def test_two_figures_of_one_cell() -> None:
    runs = [profiled(0.5, {"Linear": 0.015 * (1 + i / 100), "ReLU": 0.001}, seed=i) for i in range(5)]
    said = _said(
        metric="profile.types.Linear.forward_s", against="profile.types.ReLU.forward_s", says="higher", candidate="a"
    )
    found = _one(said, cell("a", runs), cell("b", runs))
    assert found.verdict == "confirmed" and "times ReLU, forward" in found.why
    assert all(not c.against for c in findings(study(cell("a", runs), cell("b", runs), conclusions=[said])).comparisons)


def _ranks(*machines: str, cores: int = 2) -> dict[str, Any]:
    row = {"train": None, "test": None, "time": None, "late": None, "hidden_s": None}
    return {
        "ranks": [
            {**row, "rank": i, "host": f"node{i}", "machine": m, "machine_cores": cores} for i, m in enumerate(machines)
        ]
    }


def _on(label: str, seconds: float, *machines: str, device: str = "cpu", cores: int = 2) -> CellRecord:
    runs = [
        run(seconds * (1 + i * 1e-3), seed=i, spec={"device": device}, **_ranks(*machines, cores=cores))
        for i in range(5)
    ]
    return cell(label, runs)


def test_a_claim_about_gpus_is_not_tested_on_a_cpu() -> None:
    said = _said(needs={"device": "cuda"})
    found = _one(said, _on("a", 20.0, "m"), _on("b", 10.0, "m"))
    assert found.verdict == "not tested here" and "needs an NVIDIA GPU" in found.why and "0.500 times" in found.why
    assert _one(said, _on("a", 20.0, "m", device="cuda"), _on("b", 10.0, "m", device="cuda")).verdict == "confirmed"


def test_nodes_of_a_cluster_in_a_box_are_one_machine() -> None:
    """Two hosts under one kernel: what two machines do is not seen there."""
    said = _said(needs={"machines": 2, "cores": 4})
    found = _one(said, _on("a", 20.0, "m"), _on("b", 10.0, "m", "m"))
    assert (
        found.verdict == "not tested here"
        and "2 machines (these ranks shared 1) and 4 cores (here were 2)" in found.why
    )
    assert _one(said, _on("a", 20.0, "m"), _on("b", 10.0, "m", "n")).verdict == "confirmed"


def test_a_refused_cell_is_not_tested_here() -> None:
    found = _one(_said(), timed("a", 20.0), cell("b", [], skipped="nccl needs a GPU"))
    assert found.verdict == "not tested here" and "nccl needs a GPU" in found.why


def test_what_changes_at_equal_work_stands_beside() -> None:
    said = _said(equal_work=("a", "c"))
    found = _one(said, timed("a", 20.0), timed("b", 10.0), timed("c", 30.0))
    assert found.verdict == "confirmed" and "at equal work: training time of c is 1.500 times that of a" in found.why


def test_the_note_of_a_claim_is_printed() -> None:
    assert _one(_said(note="two runs of one training"), timed("a", 20.0), timed("b", 10.0)).why.endswith(
        ". Two runs of one training"
    )


@pytest.mark.parametrize(("after", "smaller"), [(78.0, True), (40.0, False)])
def test_an_effect_smaller_than_the_report_s_own_spread(after: float, smaller: bool) -> None:
    spread = [{"what": "two GPUs", "metric": "time.training_s", "values": [67.21, 80.27, 78.58]}]
    a, b = timed("a", 20.0, reference={"time.training_s": 80.0}), timed("b", 10.0, reference={"time.training_s": after})
    found = _one(_said(), a, b, repeated=spread)
    assert found.past is not None and found.past.smaller is smaller
    assert ("smaller than its own spread, 1.19x (two GPUs: 67.21 s, 80.27 s, 78.58 s)" in found.why) is smaller


def test_figures_of_another_report_are_not_called_the_claim_s_own() -> None:
    a, b = timed("a", 20.0, reference={"time.training_s": 80.0}), timed("b", 10.0, reference={"time.training_s": 40.0})
    assert "in E3: 0.50x" in _one(_said(report="C"), a, b, rows_of="E3").why
    assert "in the report: 0.50x" in _one(_said(report="E2"), a, b, rows_of="E3").why


def test_quick_is_not_tested() -> None:
    found = _judged(timed("a", 20.0), timed("b", 10.0), "time.training_s", "lower", quick=True)
    assert found.verdict == "not tested" and "scaled down" in found.why


def test_too_few() -> None:
    assert _judged(timed("a", 20.0, n=2), timed("b", 10.0, n=2), "time.training_s", "lower").verdict == "too few runs"


def test_a_cell_that_failed_is_not_tested_and_says_why() -> None:
    found = _judged(timed("a", 20.0), cell("b", [broken("out of memory")]), "time.training_s", "lower")
    assert found.verdict == "not tested here" and "b is failed: 1 of 1 runs: task: out of memory" in found.why


def test_conclusions_may_compare_any_two_cells() -> None:
    asked = claim("train.accuracy", "equal", baseline="b", candidate="c")
    found = findings(study(timed("a", 20.0), timed("b", 10.0), timed("c", 9.0), conclusions=[asked]))
    assert found.judged[0].verdict == "confirmed"
    assert any((c.metric, c.baseline, c.candidate) == ("train.accuracy", "b", "c") for c in found.comparisons)
