"""Answers of describe jobs that are kept: used where nothing has changed, kept where a run has confirmed them, and only then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.commands.kept_facts import KeptFacts
from paceline.records.facts import DataFacts, TaskFacts
from paceline.records.record import Record
from paceline.spec.host import here
from paceline.spec.inputs import SAYS_NOTHING, Inputs, stamp_of
from paceline.spec.verdict import OTHER_DATA, Verdict
from unit.analysis.made import broken, run

QUESTION: dict[str, Any] = {"task": "task.py", "params": {"hidden": "8"}, "data": None, "seed": 3}
SAMPLES: dict[str, Any] = {"train": (10, (("a", "b"),)), "test": (4, (("c", SAYS_NOTHING),))}


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskFacts:
    monkeypatch.setenv("PACELINE_CACHE", str(tmp_path / "cache"))
    table = tmp_path / "table.csv"
    table.write_text("1,2")
    inputs = Inputs(files={str(table): stamp_of(table)}, variables={"SCALE": None}, samples=SAMPLES, seed=3)
    verdict = Verdict(loss="ratio", notes=(("leak", "3 of 4 test samples"),))
    return TaskFacts(
        (), {}, {}, False, DataFacts("tensors", 10), DataFacts("tensors", 4), 7, False, "s", probe=verdict.model_dump(mode="json"),
        probe_s=2.0, inputs=inputs.model_dump(mode="json"),
    )  # fmt: skip


def _kept(**changes: Any) -> KeptFacts:
    return KeptFacts({**QUESTION, **changes}, here())


def _run(facts: TaskFacts, *warnings: Mapping[str, str], seed: int = 3) -> Record:
    return run(1.0, seed=seed, spec={"inputs": facts.inputs}, warnings=list(warnings))


def test_a_confirmed_answer_is_the_same_the_next_time(facts: TaskFacts) -> None:
    assert _kept().found() is None
    _kept().settle(facts, _run(facts))
    found = _kept().found()
    assert found == replace(facts, probe_s=0.0) and found.probe is not None
    assert found.probe["notes"] == [["leak", "3 of 4 test samples"]]  # the warning is in every run's record


@pytest.mark.parametrize("what", ["file", "variable", "parameter", "seed", "folder", "damaged"])
def test_where_anything_has_changed_a_job_is_made(
    facts: TaskFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    _kept().settle(facts, _run(facts))
    asked: dict[str, Any] = {}
    if what == "file":
        (tmp_path / "table.csv").write_text("1,3,4")
    elif what == "variable":
        monkeypatch.setenv("SCALE", "2")
    elif what == "folder":  # a name of a file may be a relative one
        monkeypatch.chdir(tmp_path)
    elif what == "damaged":
        next((tmp_path / "cache" / "facts").iterdir()).write_text("{}")
    else:
        asked = {"params": {"hidden": "9"}} if what == "parameter" else {"seed": 4}
    assert _kept(**asked).found() is None


def test_what_a_run_has_not_confirmed_is_not_kept(facts: TaskFacts) -> None:
    other = {"kind": OTHER_DATA, "text": "x"}
    for record in (
        broken("x", spec={"inputs": facts.inputs}, seed=3),
        _run(facts, other),
        _run(facts, seed=4),
        run(1.0, seed=3),
    ):
        _kept().settle(facts, record)
        assert _kept().found() is None


def test_a_run_with_other_samples_ends_what_was_kept(facts: TaskFacts) -> None:
    _kept().settle(facts, _run(facts))
    _kept().settle(facts, _run(facts, {"kind": OTHER_DATA, "text": "x"}))
    assert _kept().found() is None


@pytest.mark.parametrize("what", ["network", "stream", "tells nothing", "no verdict"])
def test_data_that_cannot_be_told_from_other_data_is_looked_at_each_time(facts: TaskFacts, what: str) -> None:
    inputs = Inputs.model_validate(facts.inputs)
    if what == "network":
        inputs = inputs.model_copy(update={"outside": True})
    elif what == "stream":
        inputs = inputs.model_copy(update={"samples": {**SAMPLES, "train": (10, ())}})
    elif what == "tells nothing":
        inputs = inputs.model_copy(update={"samples": {**SAMPLES, "test": (4, ((SAYS_NOTHING,),))}})
    unknown = Verdict(unknown="it needs a GPU").model_dump(mode="json") if what == "no verdict" else facts.probe
    facts = replace(facts, inputs=inputs.model_dump(mode="json"), probe=unknown)
    _kept().settle(facts, _run(facts))
    assert _kept().found() is None


def test_without_a_folder_for_it_nothing_is_kept(facts: TaskFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_CACHE", "/proc/nowhere")
    _kept().settle(facts, _run(facts))
    assert _kept().found() is None
