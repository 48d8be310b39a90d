"""From a file to cells: combinations, refusals as cells, paired seeds, blocks, and the time it will take."""

from __future__ import annotations

import dataclasses
from collections import Counter
from pathlib import Path

import pytest

from paceline.base.errors import BadInput
from paceline.commands.prepare import prepare
from paceline.commands.study import _expand
from paceline.records.record import Record, parse
from paceline.spec.host import here
from paceline.spec.study import StudyFile
from paceline.study.estimate import from_runs, from_trial, repeats_for
from paceline.study.expand import Expanded
from paceline.study.order import order


def expand(**file: object) -> Expanded:
    study = StudyFile.model_validate({"study": "s", "task": "mnist-convnet", **file})
    return _expand(study, prepare(study.task, {}), quick=False)


def test_every_combination_is_a_cell() -> None:
    found = expand(sweep={"on": ["1x1", "1x2"], "batch": [32, 64]}, repeats=3)
    assert [cell.label for cell in found.plan.cells] == [
        "on=1x1 batch=32", "on=1x1 batch=64", "on=1x2 batch=32", "on=1x2 batch=64",
    ]  # fmt: skip
    assert len({cell.folder for cell in found.plan.cells}) == 4
    assert len({key for cell in found.plan.cells for key in cell.keys}) == 12


def test_seeds_are_paired_across_cells() -> None:
    found = expand(sweep={"batch": [32, 64]}, repeats=3)
    assert {tuple(spec.seed for spec in specs) for specs in found.specs.values()} == {(123, 124, 125)}


def test_a_refusal_is_a_cell_with_its_reason() -> None:
    found = expand(sweep={"on": ["1x1", "2x1"]})
    assert [bool(cell.skipped) for cell in found.plan.cells] == [False, True]
    assert "one-machine" in str(found.plan.cells[1].skipped)
    assert list(found.specs) == ["on=1x1"]


def test_nothing_left_to_run_is_bad_input() -> None:
    with pytest.raises(BadInput, match="one-machine"):
        expand(sweep={"on": ["2x1", "2x2"]})


def test_a_wrong_value_is_bad_input_not_a_cell() -> None:
    with pytest.raises(BadInput, match="batch=none"):
        expand(sweep={"batch": [32, "none"]})


@pytest.mark.parametrize(("wanted", "said"), [({"on": "1x9"}, "no cell is"), ({"batch": 32}, "2 cells are")])
def test_a_baseline_is_one_cell(wanted: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        expand(sweep={"on": ["1x1", "1x2"], "batch": [32, 64]}, baseline=wanted)


def test_a_study_gives_a_run_an_hour_unless_told() -> None:
    assert expand(sweep={"batch": [32]}).specs["batch=32"][0].timeout == 3600
    assert expand(sweep={"batch": [32]}, settings={"timeout": "2h"}).specs["batch=32"][0].timeout == 7200


def test_blocks_hold_each_cell_once_in_an_order_that_stays() -> None:
    labels = list("abcdef")
    runs = order(labels, repeats=4, seed=1)
    for repeat in range(4):
        assert Counter(label for label, r in runs[repeat * 6 : repeat * 6 + 6] if r == repeat) == Counter(labels)
    assert order(labels, repeats=2, seed=1) == runs[:12], "more repeats later keep the blocks that were"
    assert len({tuple(label for label, r in runs if r == repeat) for repeat in range(4)}) > 1, "shuffled"


def record(wall: float, **more: object) -> Record:
    return parse({"outcome": "completed", "spec": {}, "time": {"wall_s": wall}, **more})


def test_estimates_are_arithmetic() -> None:
    assert from_runs({"a": [record(2.0), record(4.0)], "b": []}) == {"a": 3.0}
    parts = {"startup": 2.0, "shutdown": 0.5, "evaluation": 0.25}
    trial = parse(
        {"outcome": "completed", "spec": {}, "time": {"parts": parts}, "throughput": 100.0, "train": {"of": 1000}}
    )
    spec = expand(sweep={"batch": [100]}, settings={"epochs": 3}).specs["batch=100"][0]
    assert from_trial(trial, {"x": spec}) == {"x": 2.0 + 0.5 + 30.0 + 0.75}
    assert repeats_for(100.0, 30.0) == 3
    assert repeats_for(10.0, 30.0) == 1


def test_waiting_longer_is_no_other_experiment() -> None:
    """The same folder and key whatever the timeout: finished cells are not run again because one of them needed more time."""
    short, long = (expand(sweep={"batch": [32]}, settings={"timeout": t}) for t in (5, 50))
    assert short.plan.cells[0].folder == long.plan.cells[0].folder
    assert short.plan.cells[0].keys == long.plan.cells[0].keys


@pytest.mark.parametrize(("kind", "was", "now", "again"), [("timeout", 5.0, 50.0, True), ("timeout", 5.0, 0.0, True),
                                                           ("timeout", 50.0, 50.0, False), ("task", 5.0, 50.0, False)])  # fmt: skip
def test_a_timeout_is_tried_again_with_more_time(
    kind: str, was: float, now: float, again: bool, tmp_path: Path
) -> None:
    from paceline.base.files import write_json
    from paceline.records.gather import refusal
    from paceline.records.layout import RunDir
    from paceline.study.campaign import PlannedRun, finished

    spec = expand(sweep={"batch": [32]}, settings={"timeout": was}).specs["batch=32"][0]
    run = RunDir(tmp_path)
    write_json(run.result, {**refusal(spec.plain(), "x").plain, "outcome": "failed", "kind": kind, "key": spec.key()})
    planned = PlannedRun("batch=32", 0, spec.model_copy(update={"timeout": now}), run)
    assert (finished(planned) is None) == again


def test_seeds_belong_to_the_repeats() -> None:
    with pytest.raises((BadInput, ValueError), match="seed"):
        expand(sweep={"seed": [1, 2]})
    with pytest.raises(BadInput, match="below 2"):
        expand(sweep={"batch": [32]}, settings={"seed": 2**31 - 1}, repeats=2)


def on_a_machine_with(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    host = dataclasses.replace(here(), gpus=gpus, torch="2.13.0")
    monkeypatch.setattr("paceline.commands.prepare.here", lambda: host)


def test_a_study_has_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one GPU device=auto is the GPU for one process and the CPU for two; a study compared the two."""
    on_a_machine_with(1, monkeypatch)
    found = expand(sweep={"on": ["1x1", "1x2"]})
    assert {label: specs[0].device for label, specs in found.specs.items()} == {"on=1x1": "cpu", "on=1x2": "cpu"}
    assert any("a study compares on one device" in note and "on=1x2 has no GPU" in note for note in found.plan.notes)
    on_a_machine_with(2, monkeypatch)
    found = expand(sweep={"on": ["1x1", "1x2"]})
    assert {specs[0].device for specs in found.specs.values()} == {"cuda"} and found.plan.notes == []


def test_a_named_device_is_kept_and_what_lacks_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    on_a_machine_with(1, monkeypatch)
    found = expand(sweep={"on": ["1x1", "1x2"]}, settings={"device": "cuda"})
    assert [bool(cell.skipped) for cell in found.plan.cells] == [False, True] and found.plan.notes == []


@pytest.mark.parametrize(
    "matrix",
    [{"sweep": {"device": ["auto", "cpu"]}}, {"cells": [{"device": "cpu", "on": "1x1"}, {"on": "1x2"}]}],
)
def test_a_study_of_devices_names_them(matrix: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="name one for every cell"):
        expand(**matrix)


def test_devices_may_be_compared() -> None:
    assert [cell.label for cell in expand(sweep={"device": ["cpu", "cuda"]}).plan.cells] == [
        "device=cpu",
        "device=cuda",
    ]


def _claims(**said: object) -> dict[str, object]:
    return {"source": "x", "conclusions": [{"claim": "c", "metric": "throughput", "says": "lower", **said}]}


def test_a_claim_names_the_cells_it_is_about() -> None:
    pair = {"baseline": {"batch": 32}, "candidate": {"batch": 96}}
    said = _claims(baseline={"batch": 32}, candidate={"batch": 64}, equal_work=pair)
    (found,) = expand(sweep={"batch": [32, 64]}, reference=said).plan.conclusions
    assert (found.baseline, found.candidate, found.equal_work) == ("batch=32", "batch=64", ("batch=32", "batch=96"))


def test_a_claim_about_a_cell_that_is_not_there_stays() -> None:
    """It was left out of the report without a word."""
    said = _claims(baseline={"batch": 32}, candidate={"batch": 64})
    assert len(expand(sweep={"batch": [32, 128]}, reference=said).plan.conclusions) == 1
