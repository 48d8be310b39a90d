"""Cells, notes, provenance: what stands beside the figures."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.commands.report import findings
from unit.analysis.made import broken, cell, run, study, timed


@pytest.mark.parametrize(
    ("made", "outcome"),
    [
        (timed("a", 1.0), "completed"),
        (cell("a", [run(1.0), broken("x")]), "partial"),
        (cell("a", [run(1.0), None]), "partial"),
        (cell("a", [broken("x"), broken("x")]), "failed"),
        (cell("a", [], skipped="no GPU"), "skipped"),
        (cell("a", [None, None]), "pending"),
    ],
)
def test_outcomes(made: Any, outcome: str) -> None:
    assert findings(study(made)).cells[0].outcome == outcome


def test_reasons_are_counted_not_repeated() -> None:
    found = findings(study(cell("a", [broken("x"), broken("x"), broken("y", kind="killed"), None])))
    assert found.cells[0].reasons == ("2 of 4 runs: task: x", "1 of 4 runs: killed: y", "1 of 4 runs still to be made")


def test_failed_runs_are_in_no_figure() -> None:
    found = findings(study(cell("a", [run(10.0), broken("x"), run(12.0)])))
    assert found.cells[0].metrics["time.training_s"].values == (10.0, 12.0) and found.cells[0].n == 2


def test_time_parts_are_means_and_unknown_parts_stay_unknown() -> None:
    runs = [
        run(1.0, time={"parts": {"forward": 2.0, "step": None}}),
        run(1.0, time={"parts": {"forward": 4.0, "step": None}}),
    ]
    assert findings(study(cell("a", runs))).cells[0].parts == {"forward": 3.0}


def test_provenance_is_told() -> None:
    found = findings(study(timed("a", 1.0)))
    assert found.hardware == "cpu, 2 cores, 1 GiB, no GPU"
    assert found.versions == "torch 2.11, Python 3.11" and found.code == "commit cccccccccccc, clean"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"host": "b"}, "2 machines"),
        ({"versions": {"torch": "2.12"}}, "2 sets of versions"),
        ({"git": {"commit": "d" * 40, "changed": True}}, "2 states of the source"),
    ],
)
def test_mixed_provenance_is_noted(change: dict[str, Any], what: str) -> None:
    first = run(1.0)
    second = run(1.0, fingerprint={**first["fingerprint"], **change})
    assert any(what in note for note in findings(study(cell("a", [first, second]))).notes)
    assert not any(what in note for note in findings(study(cell("a", [first, first]))).notes)


def test_notes_say_quick_unfinished_and_how_many_were_scored() -> None:
    notes = findings(study(cell("a", [run(1.0), None, None]), quick=True, notes=["a word of the author"])).notes
    assert notes[0] == "a word of the author"
    assert any("no verdict on a report's conclusion" in note for note in notes)
    assert any("2 planned runs are still to be made" in note for note in notes)
    assert any("evaluated 20 of 20 samples" in note for note in notes)


def test_unequal_test_sets_are_noted() -> None:
    short = run(1.0, test={"loss": 1.0, "accuracy": 0.9, "evaluated": 19, "of": 20})
    assert any("not scored on the same number" in note for note in findings(study(cell("a", [run(1.0), short]))).notes)


def test_a_task_without_score() -> None:
    found = findings(study(cell("a", [run(1.0, accuracy=None)] * 3), cell("b", [run(0.5, accuracy=None)] * 3)))
    assert "no score to compare" in found.headline
    assert not any(metric.name.endswith("accuracy") for metric in found.metrics)
