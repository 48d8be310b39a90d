"""What is said of a run that ended before its planned length, and of its best evaluation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.analysis.study import findings
from paceline.records.record import Record
from paceline.records.study import StudyRecord
from paceline.records.timing import Best, Stopped
from paceline.report.words.notes import notes
from paceline.report.words.run import facts


@pytest.fixture
def plain(scaling: StudyRecord) -> Record:
    return scaling.cells[1].records[0][1]


def told(record: Record, **spec: object) -> dict[str, str]:
    return dict(facts(replace(record, document=None, spec={**record.spec, "stop_at": None, **spec})))


def test_by_whom_and_where(plain: Record) -> None:
    stopped = replace(plain, stopped=Stopped(by="plateau", iteration=30, epoch=4))
    assert told(stopped, stop_at="plateau:3", epochs=9)["stopped"] == (
        "after step 30, in epoch 5 of 9: no better score in 3 evaluations"
    )
    assert told(stopped, stop_at="target", target=0.5, epochs=None, steps=60)["stopped"] == (
        "after step 30 of 60, in epoch 5: the target of 0.5 was reached"
    )
    assert not {"stopped", "best", "best weights"} & set(told(plain))


def test_the_best_and_its_file(plain: Record) -> None:
    best = Best(iteration=20, epoch=3, score="accuracy", value=0.953, weights="/runs/x/checkpoints/best.safetensors")
    lines = told(replace(plain, best=best))
    assert lines["best"] == "test accuracy 95.30 %, after step 20"
    assert lines["best weights"] == "/runs/x/checkpoints/best.safetensors"
    assert "best weights" not in told(replace(plain, best=best, weights=best.weights)), "the last are the best"
    assert told(replace(plain, best=replace(best, score="mae")))["best"] == "test mae 0.953, after step 20"


def test_a_study_says_how_many(scaling: StudyRecord) -> None:
    def noted(study: StudyRecord) -> list[str]:
        return [note for note in notes(findings(study)) if "stop_at" in note]

    cell = scaling.cells[0]
    (number, first), *others = cell.records
    early = replace(first, document=None, stopped=Stopped(by="target", iteration=7))
    assert noted(scaling) == []
    (said,) = noted(replace(scaling, cells=[replace(cell, records=[(number, early), *others]), *scaling.cells[1:]]))
    assert said.startswith("Of the runs, 1 ended before the planned length (stop_at)")
