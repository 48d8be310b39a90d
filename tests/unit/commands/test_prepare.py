"""What must be looked at before a launch is looked at once, and only where it decides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paceline.base.errors import BadInput, RunFailed
from paceline.commands.prepare import prepare
from paceline.commands.study import _expand
from paceline.records.facts import DataFacts, TaskFacts
from paceline.spec.host import Host
from paceline.spec.study import StudyFile
from paceline.study.execute import TaskQuestion

HOPPER = Host(8, 16 << 30, 1, "2.13.0", packages=frozenset({"torchao"}))
DATA = DataFacts("tensors", 10)
LAYERS = {"features": [[32, 512], [20, 32]], "mnist-convnet": [[10, 392]]}


@pytest.fixture
def descriptions(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A machine with a new GPU, and a describe job that only notes what it was asked."""
    made: list[dict[str, Any]] = []

    def describe(asked: TaskQuestion, *_run: Any, **_warm: Any) -> TaskFacts:
        made.append(asked.params)
        if asked.params.get("hidden") == 7:
            raise RunFailed("features: the process that imported it left with exit code 1", kind="exit")
        layers = [{"name": "x", "type": "Linear", "shapes": [shape]} for shape in LAYERS[asked.task]]
        return TaskFacts((), {}, {}, True, DATA, DATA, 1, True, None, layers, capability=(9, 0))

    monkeypatch.setattr("paceline.commands.prepare.describe", describe)
    monkeypatch.setattr("paceline.commands.prepare.here", lambda: HOPPER)
    return made


def test_only_what_needs_a_look_gets_one(descriptions: list[dict[str, Any]]) -> None:
    prepared = prepare("features", {})
    assert prepared.spec({"precision": "bf16"}).device == "cuda" and not descriptions and prepared.facts is None
    assert prepared.spec({"precision": "fp8"}).precision == "fp8"
    prepared.spec({"precision": "fp8", "lr": 0.1})
    assert descriptions == [{}], "one look serves every spec of the same model"
    prepared.spec({"precision": "fp8", "hidden": 64})
    assert descriptions == [{}, {"hidden": 64}], "another model"
    assert prepared.facts is not None and prepared.described_s > 0


def test_a_first_rule_saves_the_look(descriptions: list[dict[str, Any]]) -> None:
    with pytest.raises(BadInput, match="rule: fp8-on-a-gpu"):
        prepare("features", {}).spec({"precision": "fp8", "device": "cpu"})
    assert not descriptions


def test_layers_decide_before_the_launch(descriptions: list[dict[str, Any]]) -> None:
    with pytest.raises(BadInput, match=r"none of the model's 1 linear layers .*rule: fp8-has-layers"):
        prepare("mnist-convnet", {}).spec({"precision": "fp8"})
    assert descriptions == [{}]


def test_an_old_gpu_decides_too(monkeypatch: pytest.MonkeyPatch, descriptions: list[dict[str, Any]]) -> None:
    from paceline.commands import prepare as room

    found = room.describe
    monkeypatch.setattr(room, "describe", lambda *a, **k: replace(found(*a, **k), capability=(7, 0)))
    for precision in ("tf32", "fp8"):
        with pytest.raises(BadInput, match=f"capability 7.0, and .*rule: {precision}-on-a-new-gpu"):
            prepare("features", {}).spec({"precision": precision})


def test_a_refused_format_is_a_cell_and_not_the_end_of_a_study(descriptions: list[dict[str, Any]]) -> None:
    file = StudyFile(study="s", task="mnist-convnet", sweep={"precision": ["fp32", "fp8", "bf16"]})
    cells = _expand(file, prepare(file.task, {}), quick=False).plan.cells
    assert [bool(cell.skipped) for cell in cells] == [False, True, False]
    broken = StudyFile(study="s", task="features", sweep={"hidden": [32, 7], "precision": ["fp8"]})
    cells = _expand(broken, prepare("features", {}), quick=False).plan.cells
    assert [bool(cell.skipped) for cell in cells] == [False, True] and "exit code 1" in str(cells[1].skipped)
