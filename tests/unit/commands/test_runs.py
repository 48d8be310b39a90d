"""`paceline runs list`: what a line says of a run beside the others. Records are made up; nothing is read from a disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline.commands import runs
from paceline.records.record import Record
from unit.analysis.made import run


def _named(name: str, **spec: Any) -> Record:
    return run(1.0, run_dir=f"/runs/{name}", finished_t=1.7e9, spec={"epochs": 2, **spec})


def test_the_settings_that_differ_are_in_the_line_and_in_the_json() -> None:
    found = [
        _named("a", batch=64, params={"hidden": 8}),
        _named("b", batch=32, params={"hidden": 8}, shuffle=True, timeout=5.0),
        _named("c", batch=32, task="other", on="1x2", shuffle=None),
    ]
    rows = runs.summaries(found, Path("/runs"))
    # The same everywhere: epochs, seed. Of one task only: hidden. No part of the experiment: timeout. In columns of their own: task, on.
    assert [row["settings"] for row in rows] == [
        {"batch": 64},
        {"batch": 32, "shuffle": True},
        {"batch": 32, "shuffle": None},
    ]
    head, lines = runs.shown(rows)
    column = head.index("settings that differ")
    assert [line[column] for line in lines] == ["batch=64", "batch=32 shuffle=true", "batch=32 shuffle=none"]


def test_one_run_differs_from_nothing() -> None:
    (row,) = runs.summaries([_named("a")], Path("/runs"))
    assert row["settings"] == {} and row["run"] == "a"
