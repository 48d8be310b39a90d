"""A report's conclusion, confirmed, refuted, or neither."""

from __future__ import annotations

import pytest

from paceline.commands.report import findings
from paceline.records.study import CellRecord
from paceline.report.words.spoken import SpokenJudged
from unit.analysis.made import broken, cell, claim, study, timed


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
        ("lower", 20.01, "no difference shown"),
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


def test_quick_is_not_tested() -> None:
    found = _judged(timed("a", 20.0), timed("b", 10.0), "time.training_s", "lower", quick=True)
    assert found.verdict == "not tested" and "scaled down" in found.why


def test_too_few() -> None:
    assert _judged(timed("a", 20.0, n=2), timed("b", 10.0, n=2), "time.training_s", "lower").verdict == "too few runs"


def test_a_cell_that_failed_is_not_tested_and_says_why() -> None:
    found = _judged(timed("a", 20.0), cell("b", [broken("out of memory")]), "time.training_s", "lower")
    assert found.verdict == "not tested" and "b is failed: 1 of 1 runs: task: out of memory" in found.why


def test_conclusions_may_compare_any_two_cells() -> None:
    asked = claim("train.accuracy", "equal", baseline="b", candidate="c")
    found = findings(study(timed("a", 20.0), timed("b", 10.0), timed("c", 9.0), conclusions=[asked]))
    assert found.judged[0].verdict == "confirmed"
    assert any((c.metric, c.baseline, c.candidate) == ("train.accuracy", "b", "c") for c in found.comparisons)
