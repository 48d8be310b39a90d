"""`graph=` through the command line and a real run: what was compiled is in the record, its seconds are apart, and parts add up."""

from __future__ import annotations

import getpass
import tempfile
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import paceline
from adds_up import explained
from conftest import Command
from paceline.records.events import Mark


@pytest.mark.own_start  # the folder for temporary files is found out once a process
def test_a_compiled_run_says_what_was_compiled_and_what_it_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "tmp"
    own.mkdir()
    # What torch once found out about this processor stays where it is; what the run compiles is to be seen.
    monkeypatch.setenv(
        "TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}")
    )
    monkeypatch.setenv("TMPDIR", str(own))
    record = paceline.run(
        "features", out=tmp_path / "run", graph="compile", graph_cache="fresh", steps=30, num_train=600, num_test=100, batch=64,
        threads=1,
    )  # fmt: skip
    assert record.completed, record.why
    explained(record)
    applied, graph, parts = record["applied"], record["graph"], record.time["parts"]
    assert (applied["graph"], applied["graph_of"]) == ("compile", "model")
    assert graph["graphs"] == 2 and graph["breaks"] == 0 and graph["eager_steps"] == 0
    assert graph["recompiles"] == 1, "600 samples in batches of 64: the last has 24"
    assert parts["compile"] == graph["compile_s"] == record["ranks"][0]["graph"]["compile_s"] > 0
    assert parts["step"] is None and parts["backward"] > 0, "its phases are told apart as ever"
    timed = sum(event.seconds for _, event in record.events() if isinstance(event, Mark))
    assert timed + parts["compile"] <= record.time["training_s"], "throughput is of the steps alone"
    assert graph["cache"] == "fresh"
    assert not list(own.glob("tmp*")), "it compiles in a folder of its own, and takes it away"


def test_a_step_is_compiled_once_for_all_its_runs(tmp_path: Path) -> None:
    """The second run finds what the first one made, the short last batch is compiled for neither, and the weights are the same."""
    asked: dict[str, Any] = {
        "graph": "compile", "graph_of": "step", "epochs": 2, "num_train": 600, "num_test": 100, "batch": 64, "threads": 1,
    }  # fmt: skip
    records = [paceline.run("features", out=tmp_path / name, **asked) for name in ("one", "two")]
    for record in records:
        assert record.completed, record.why
        explained(record)
        assert (record["applied"]["graph"], record["applied"]["graph_of"]) == ("compile", "step")
        graph = record["graph"]
        assert (graph["graphs"], graph["recompiles"], graph["eager_steps"]) == (1, 0, 3), (
            "the first step, two short batches"
        )
        assert record.test["evaluated"] == record.test["of"] == 100
    assert records[1]["graph"]["cache"] == "hit"
    assert records[0]["weights_hash"] == records[1]["weights_hash"]


@pytest.mark.parametrize(("num", "eager"), [(600, [3, 3]), (649, [3, 3])])
def test_a_step_on_two_ranks_is_two_graphs_and_one_model(num: int, eager: list[int], tmp_path: Path) -> None:
    """Samples in batches of 65: one rank has 33 and the other 32. The last batch is short on both; or on one, and then
    both make an ordinary step: else they would end with other bits. In fp64, against eager ranks."""
    asked: dict[str, Any] = {
        "epochs": 2, "num_train": num, "num_test": 100, "batch": 65, "threads": 1, "precision": "fp64", "optimizer": "sgd",
        "momentum": 0.9, "clip": 0.5,
    }  # fmt: skip
    graph = paceline.run("features", out=tmp_path / "graph", on="1x2", graph="compile", graph_of="step", **asked)
    ranks = paceline.run("features", out=tmp_path / "ranks", on="1x2", **asked)
    for record in (graph, ranks):
        assert record.completed, record.why
        explained(record)
    assert graph["graph"]["graphs"] == 2
    assert [rank["graph"]["eager_steps"] for rank in graph["ranks"]] == eager
    assert graph["traffic"]["messages_per_step"] == ranks["traffic"]["messages_per_step"] == 1
    assert graph["applied"]["clip"]["steps"] == ranks["applied"]["clip"]["steps"] > 0
    ours, theirs = load_file(graph["weights"]), load_file(ranks["weights"])
    for name, values in ours.items():
        far = (values.double() - theirs[name].double()).norm() / theirs[name].double().norm().clamp(min=1e-3)
        assert float(far) < 1e-12, name


def test_a_trial_decides_before_the_run(tmp_path: Path) -> None:
    """So short a run is eager, and its record says what was tried for it."""
    record = paceline.run(
        "features", out=tmp_path / "run", graph="auto", steps=40, num_train=600, num_test=100, threads=1
    )
    assert record.completed, record.why
    assert record.spec["graph"] == record["applied"]["graph"] == "eager"
    assert record.spec["chosen"]["steps_of_the_run"] == 40
    assert [row["graph"] for row in record.spec["chosen"]["ways"]] == ["eager"]


RAGGED = """
import torch

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return index

def model():
    return torch.nn.Linear(1, 2)

def train_data():
    return Numbers()

def test_data():
    return Numbers()

def collate(ids):
    length = 3 if all(number < 60 for number in ids) else 4  # longer, whoever has one of the last
    return torch.zeros(len(ids), length), torch.zeros(len(ids), dtype=torch.long)

def forward(model, batch):
    return model(batch[0].mean(1, keepdim=True))
"""


def test_batches_of_several_shapes_on_several_ranks_are_refused(tmp_path: Path) -> None:
    """One rank would make an ordinary step beside the other's graphs, and they would end with different bits."""
    task = tmp_path / "ragged.py"
    task.write_text(RAGGED)
    asked: dict[str, Any] = {"graph": "compile", "graph_of": "step", "batch": 8, "epochs": 2, "threads": 1}
    alone = paceline.run(task, out=tmp_path / "alone", **asked)
    assert alone.completed, alone.why
    record = paceline.run(task, out=tmp_path / "run", on="1x2", **asked)
    assert (record.outcome, record.kind) == ("failed", "mismatch")
    assert "on several ranks every whole batch must have one shape" in str(record.why)


SHUT = """
import torch

class Shut(torch.nn.Linear):
    @torch._dynamo.disable
    def forward(self, x):
        return super().forward(x)

def model():
    return torch.nn.Sequential(Shut(4, 2))

def train_data():
    return torch.zeros(64, 4), torch.zeros(64, dtype=torch.long)

test_data = train_data
"""


def test_a_failed_run_takes_its_compilers_folder_away_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails after its first step, because nothing of its model can be compiled, and so needs no C++ compiler's time."""
    own, task = tmp_path / "tmp", tmp_path / "shut.py"
    own.mkdir()
    task.write_text(SHUT)
    monkeypatch.setenv(
        "TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}")
    )
    monkeypatch.setenv("TMPDIR", str(own))
    record = paceline.run(
        str(task), out=tmp_path / "run", graph="compile", graph_cache="fresh", steps=3, batch=32, threads=1
    )
    assert (record.outcome, record.kind) == ("failed", "mismatch")
    assert "torch made no graph of any part of the model: Skip inlining" in str(record.why)
    assert not list(own.glob("tmp*"))


def test_what_cannot_be_one_graph_is_refused_in_a_sentence(paceline: Command) -> None:
    """Before anything starts: a CUDA graph on a CPU, and one graph of the built-in model that branches on a number."""
    done = paceline("run", "features", "graph=captured", "device=cpu")
    assert done.returncode == 2 and "(rule: captured-on-a-gpu)" in done.stderr
    done = paceline("run", "features", "graph=export", "early_exit=true")
    assert done.returncode == 2 and "(rule: one-graph-has-no-if)" in done.stderr
