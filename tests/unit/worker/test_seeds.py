"""Seeds are set anew before each of a task's functions: a random split that is made in both of them is one split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.base.files import read_json, write_json
from paceline.records.facts import TaskFacts
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.worker.describe import describe
from paceline.worker.shared_data import load_data, load_split, unlike_described
from paceline.worker.tasks.load import load_task
from paceline.worker.world.seed import random_states

TWO_SPLITS = """
import random

import numpy as np
import torch
from torch.utils.data import TensorDataset, random_split

torch.manual_seed(0)
WHOLE = TensorDataset(torch.randn(40, 3), torch.arange(40))
DRAWN = [random.random(), float(np.random.rand()), float(torch.rand(()))]


def model():
    return torch.nn.Linear(3, 40)


def split(index):
    random.random(), np.random.rand()
    return random_split(WHOLE, [30, 10])[index]


def train_data():
    return split(0)


def test_data():
    return split(1)
"""
CPU = torch.device("cpu")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "two_splits.py"
    path.write_text(TWO_SPLITS)
    return path


def spec_of(source: Path, **more: Any) -> Spec:
    asked = {"task": str(source), "on": "1x1", "threads": 1, "batch": 10, "test_batch": 10, "device": "cpu", **more}
    return Spec.model_validate(asked)


def _labels(feed: Any) -> list[int]:
    return feed.tensors[1].tolist()


def test_a_split_made_in_both_functions_is_one_split(source: Path) -> None:
    spec = spec_of(source, seed=3)
    feeds = load_data(spec, load_task(spec.task, {}, None), rank=0)
    train, test = _labels(feeds.train), _labels(feeds.test)
    assert sorted([*train, *test]) == list(range(40)), "every sample is in one of them"
    other = spec_of(source, seed=4)
    assert _labels(load_data(other, load_task(other.task, {}, None), rank=1).train) != train, "the run's seed decides"


def test_every_rank_and_a_later_look_have_the_same(source: Path) -> None:
    spec = spec_of(source, seed=3)
    task = load_task(spec.task, {}, None)
    expected = _labels(load_data(spec, task, rank=0).test)
    torch.rand(5)
    assert _labels(load_data(spec, task, rank=1).test) == expected
    before = random_states(CPU)[0]
    assert _labels(load_split(spec, task, "test", CPU)) == expected
    assert all(torch.equal(before[name], tensor) for name, tensor in random_states(CPU)[0].items())


def test_the_describe_job_seeds_alike(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # the probe's libraries set it
    seeds: list[int] = []
    monkeypatch.setattr("paceline.worker.describe.seed_everything", seeds.append)
    run = RunDir(tmp_path)
    write_json(run.request, {"schema": 1, "task": str(source), "params": {}, "data": None, "seed": 7})
    describe(run)
    assert TaskFacts.load(read_json(run.facts)).test.num == 10
    assert seeds == [7] * 4, "the import, the model, and both of the data's functions"


THREADS = """
import torch
torch.set_num_threads(2)
def data(): return torch.full((8, 3), float(torch.get_num_threads())), torch.arange(8) % 2
def model(): return torch.nn.Linear(3, 2)
train_data = test_data = data
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_data_does_not_depend_on_the_number_of_threads(tmp_path: Path, threads: int) -> None:
    """The mean of many numbers does, and the describe job has other threads than the ranks: it warned of other samples."""
    source = tmp_path / "threads.py"
    source.write_text(THREADS)
    run = RunDir(tmp_path)
    write_json(run.request, {"schema": 1, "task": str(source), "params": {}, "data": None, "seed": 5})
    describe(run)
    inputs = TaskFacts.load(read_json(run.facts)).inputs
    spec = spec_of(source, threads=threads, seed=5, inputs=inputs)
    feeds = load_data(spec, load_task(str(source), {}, None), rank=0)
    assert not unlike_described(spec, feeds)
    assert float(feeds.train.tensors[0][0, 0]) == 1.0  # pyright: ignore[reportAttributeAccessIssue]
