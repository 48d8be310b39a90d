"""What a describe job finds out about a built-in task: the shapes that decide on fp8, and the GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paceline.base.files import read_json, write_json
from paceline.records.facts import TaskFacts
from paceline.records.layout import RunDir
from paceline.worker.describe import describe


@pytest.mark.parametrize("gpus", [(), ((9, 0), (8, 0))])
def test_layers_and_gpus(gpus: tuple[tuple[int, int], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(gpus))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(gpus))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: gpus[index])
    run = RunDir(tmp_path)
    params = {"num_train": 10, "num_test": 5, "hidden": "64"}
    write_json(run.request, {"schema": 1, "task": "features", "params": params, "data": None, "seed": 1})
    describe(run)
    facts = TaskFacts.load(read_json(run.facts))
    assert facts.linear == ((64, 512), (20, 64)) and facts.values["hidden"] == 64
    assert facts.capability == ((8, 0) if gpus else None)
    assert (facts.train.num, facts.test.num, facts.source_sha256) == (10, 5, None)
