"""Every verdict there is, and the rules that lead to it."""

from __future__ import annotations

import random

import pytest

from paceline.analysis import metrics
from paceline.analysis.compare import Question, compare
from paceline.commands.report import findings
from paceline.records.findings import Metric
from paceline.records.study import CellRecord
from paceline.report.words.spoken import SpokenComparison
from paceline.report.words.study import spoken_comparison
from unit.analysis.made import SHAKE, cell, run, study, timed


def _metric(name: str, *cells: CellRecord) -> Metric:
    records = [record for c in cells for _, record in c.completed]
    return next(m for m in metrics.table(records) if m.name == name)


def _one(baseline: CellRecord, candidate: CellRecord, metric: str = "time.training_s") -> SpokenComparison:
    asked = _metric(metric, baseline, candidate)
    (found,) = compare([Question(asked, baseline, candidate)])
    return spoken_comparison(found, asked)


def test_faster_and_slower() -> None:
    fast = _one(timed("a", 20.0), timed("b", 10.0))
    assert fast.verdict == "faster" and fast.kind == "ratio" and fast.value == pytest.approx(0.5)
    assert fast.paired and fast.n == 5 and fast.p is not None and fast.p < 0.05
    assert _one(timed("a", 10.0), timed("b", 20.0)).verdict == "slower"
    assert _one(timed("a", 20.0), timed("b", 10.0), "throughput").verdict == "faster"


def test_better_and_worse() -> None:
    low, high = [0.90, 0.91, 0.905, 0.902, 0.899], [0.95, 0.962, 0.953, 0.954, 0.948]
    found = _one(timed("a", 1.0, accuracy=low), timed("b", 1.0, accuracy=high), "test.accuracy")
    assert found.verdict == "better" and found.kind == "difference" and found.value == pytest.approx(0.0502, abs=1e-4)
    assert _one(timed("a", 1.0, accuracy=high), timed("b", 1.0, accuracy=low), "test.accuracy").verdict == "worse"


def test_a_score_of_unknown_direction_is_only_higher_or_lower() -> None:
    def cells(label: str, base: float) -> CellRecord:
        runs = [run(1.0, seed=i, test={"loss": 1.0, "bleu": base + i / 100}, train={}, score=None) for i in range(4)]
        return cell(label, runs)

    assert _one(cells("a", 1.0), cells("b", 2.0), "test.bleu").verdict == "higher"
    assert _one(cells("a", 2.0), cells("b", 1.0), "test.bleu").verdict == "lower"


def test_the_tasks_own_score_has_the_tasks_direction() -> None:
    def cells(label: str, base: float) -> CellRecord:
        own = {"name": "mae", "better": "lower"}
        return cell(label, [run(1.0, seed=i, test={"mae": base + i / 100}, train={}, score=own) for i in range(4)])

    assert _one(cells("a", 2.0), cells("b", 1.0), "test.mae").verdict == "better"


def test_no_difference_shown() -> None:
    a = cell("a", [run(t, seed=i) for i, t in enumerate((10.0, 12.0, 11.0, 9.0))])
    b = cell("b", [run(t, seed=i) for i, t in enumerate((11.0, 10.0, 12.0, 9.5))])
    found = _one(a, b)
    assert found.verdict == "no difference shown" and "includes no difference" in found.why


def test_a_real_but_tiny_difference_is_not_claimed() -> None:
    found = _one(timed("a", 10.0), timed("b", 10.1))
    assert found.p is not None and found.p < 0.05
    assert found.verdict == "no difference shown" and "practical size of 2 %" in found.why


@pytest.mark.parametrize("n", [1, 2])
def test_too_few_runs(n: int) -> None:
    found = _one(timed("a", 20.0, n=n), timed("b", 10.0, n=n))
    assert found.verdict == "too few runs" and (found.p, found.low, found.high) == (None, None, None)
    assert found.value == pytest.approx(0.5)


def test_pairs_need_the_same_seed_at_the_same_repeat() -> None:
    other_seeds = cell("b", [run(10.0 * s, seed=100 + i) for i, s in enumerate(SHAKE)])
    assert not _one(timed("a", 20.0), other_seeds).paired
    assert not _one(timed("a", 20.0, planned=False), timed("b", 10.0, planned=False)).paired


def test_only_common_repeats_are_paired() -> None:
    gappy = cell("b", [run(10.0, seed=0), None, run(10.0, seed=2), run(10.1, seed=3), None])
    found = _one(timed("a", 20.0), gappy)
    assert found.paired and found.n == 3


def test_pairing_sees_through_shared_noise() -> None:
    """The machine was slow in some blocks: paired, the 5 % are plain; unpaired they drown."""
    noise = (1.0, 1.5, 0.7, 1.3, 0.9)
    runs_a = [run(10.0 * s, seed=i) for i, s in enumerate(noise)]
    runs_b = [run(9.5 * s * (1 + i * 1e-3), seed=i) for i, s in enumerate(noise)]
    assert _one(cell("a", runs_a), cell("b", runs_b)).verdict == "faster"
    assert _one(cell("a", runs_a, planned=False), cell("b", runs_b, planned=False)).verdict == "no difference shown"


def test_time_to_target_of_a_cell_that_missed_it_once_is_no_figure() -> None:
    def runs(missed: int | None) -> list[object]:
        return [run(5.0, seed=i, time={"to_target_s": None if i == missed else 4.0 + i / 10}) for i in range(4)]

    a, b = cell("a", runs(None)), cell("b", runs(2))  # type: ignore[arg-type]
    assert compare([Question(_metric("time.to_target_s", a, b), a, b)]) == []


def test_many_comparisons_are_paid_for() -> None:
    """p = 0.03 alone is a verdict; as one of twelve with nothing else it is not."""

    def noisy(label: str, shift: float, seed: int) -> CellRecord:
        rng = random.Random(seed)
        return cell(label, [run(10.0 * (shift + rng.gauss(0, 0.05)), seed=i) for i in range(5)])

    base, real = timed("base", 10.0), cell("real", [run(t, seed=i) for i, t in enumerate((8.8, 9.9, 9.2, 9.6, 9.3))])
    metric = _metric("time.training_s", base)
    (alone,) = compare([Question(metric, base, real)])
    assert alone.verdict == "faster" and alone.p is not None and alone.p > 0.005
    others = [noisy(f"null{i}", 1.0, seed=i) for i in range(11)]
    among = spoken_comparison(compare([Question(metric, base, c) for c in (real, *others)])[0], metric)
    assert among.p is not None and among.p > 0.05
    assert among.verdict == "no difference shown" and "all comparisons" in among.why


def test_false_claims_stay_rare_under_the_null() -> None:
    """400 studies of three cells that are all the same, with noise well above the practical size."""
    rng = random.Random(3)

    def null(label: str) -> CellRecord:
        return cell(label, [run(10.0 * (1 + rng.gauss(0, 0.06)), seed=i) for i in range(4)])

    wrong = 0
    for _ in range(400):
        base, *others = (null(label) for label in "abc")
        metric = _metric("time.training_s", base)
        found = compare([Question(metric, base, c) for c in others])
        wrong += any(c.verdict in ("faster", "slower") for c in found)
    assert wrong / 400 <= 0.065
    assert wrong > 0, "the simulation must be able to go wrong, or it shows nothing"


def test_every_cell_is_compared_with_the_baseline_in_every_metric() -> None:
    found = findings(study(timed("a", 20.0), timed("b", 10.0), timed("c", 15.0)))
    pairs = {(c.metric, c.candidate) for c in found.comparisons}
    assert {("time.training_s", "b"), ("test.accuracy", "c"), ("memory.step_bytes", "b"), ("throughput", "c")} <= pairs
    assert "memory.rss_bytes" not in {metric for metric, _ in pairs}, "it holds more than model and step"
    assert all(c.baseline == "a" for c in found.comparisons)
    assert not any(c.metric.startswith("train.") for c in found.comparisons)
