"""A newcomer's path: the README's ten lines and a regression, alone, on two processes and in a study, with everything they leave."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from conftest import ROOT, Command

HERE = Path(__file__).parent
TASKS = {
    "my_task.py": (ROOT / "examples" / "my_task.py", "accuracy"),
    "regression.py": (HERE / "tasks" / "regression.py", "mse"),
}


@pytest.mark.parametrize("name", TASKS)
def test_alone_in_company_and_in_a_study(name: str, paceline: Command, tmp_path: Path) -> None:
    source, score = TASKS[name]
    shutil.copy(source, tmp_path / name)
    records = []
    for on in ("1x1", "1x2"):
        done = paceline("run", name, f"on={on}", "epochs=2", "threads=1", "--json", "--out", on)
        assert done.returncode == 0, done.stderr
        records.append(json.loads(done.stdout))
    assert records[0]["test"] == pytest.approx(records[1]["test"], rel=1e-3), "one model, whatever the ranks"
    assert records[1]["test"]["evaluated"] == records[1]["test"]["of"]

    study = paceline("study", name, "on=1x1,1x2", "epochs=2", "threads=1", "--repeats", "2", "--json", "--out", "study")
    assert study.returncode == 0, study.stderr
    found = json.loads(study.stdout)
    assert [cell["n"] for cell in found["cells"]] == [2, 2]
    assert set(found["cells"][0]["metrics"]) >= {f"test.{score}", "test.loss", "time.training_s", "throughput"}
    assert {row["verdict"] for row in found["comparisons"]} == {"too few runs"}, "two repeats show nothing, and say so"
    assert (tmp_path / "study" / "report.html").stat().st_size < 1_500_000


def test_what_a_run_leaves(paceline_here: Command, tmp_path: Path) -> None:
    """Events and TensorBoard files of every rank, weights that plain safetensors reads, and the record."""
    from safetensors import safe_open
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = json.loads(
        paceline_here("run", "mnist-convnet", "on=1x2", "steps=20", "log_every=10", "--json", "--out", "r").stdout
    )
    for rank in (0, 1):
        assert (tmp_path / "r" / "events" / f"rank_{rank:05d}.jsonl").exists()
        scalars = EventAccumulator(str(tmp_path / "r" / "tensorboard" / f"rank_{rank:05d}"))
        scalars.Reload()
        assert [event.step for event in scalars.Scalars("train/loss")] == [5, 10, 20]
        assert [event.step for event in scalars.Scalars("test_epoch/accuracy")] == [20]
    with safe_open(record["weights"], framework="numpy") as weights:
        assert len(list(weights.keys())) == 6
    assert record["schema"] == 1 and set(record) >= {
        "outcome", "why", "run_dir", "spec", "applied", "train", "test", "ranks", "time", "throughput", "memory", "weights_hash",
    }  # fmt: skip


def test_a_budget_decides_the_repeats(paceline_here: Command, tmp_path: Path) -> None:
    shutil.copy(TASKS["my_task.py"][0], tmp_path)
    words = ("my_task.py", "hidden=4,8", "steps=3", "threads=1", "--out", "study")
    done = paceline_here("study", *words, "--budget", "0.01s", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [cell["n"] for cell in found["cells"]] == [1, 1], "never less than one whole block"
    assert any("budget" in note for note in found["notes"])
    assert json.loads((tmp_path / "study" / "study.json").read_text())["repeats"] == 1


def test_runs_are_listed_compared_and_removed(paceline_here: Command, tmp_path: Path) -> None:
    for seed in (1, 2):
        assert paceline_here("run", "mnist-convnet", "steps=2", f"seed={seed}", "--out", f"runs/{seed}").returncode == 0
    listed = json.loads(paceline_here("runs", "list", "--json").stdout)["runs"]
    assert [row["run"] for row in listed] == ["1", "2"]
    compared = json.loads(paceline_here("runs", "compare", "runs/1", "runs/2", "--json").stdout)
    assert compared["settings"] == {"seed": [1, 2]} and not compared["same_weights"]
    assert paceline_here("runs", "remove", "1", "--yes").returncode == 0
    assert not (tmp_path / "runs" / "1").exists() and (tmp_path / "runs" / "2").exists()


def test_somebody_elses_folder_is_never_emptied(paceline_here: Command, tmp_path: Path) -> None:
    """A project of the user's may well hold a spec.json."""
    mine = tmp_path / "project"
    (mine / "src").mkdir(parents=True)
    (mine / "spec.json").write_text('{"schema": 1, "task": "mine"}')
    (mine / "src" / "precious.py").write_text("1\n")
    for words in (("run", "mnist-convnet", "steps=1", "--out", "project"), ("runs", "remove", "project", "--yes")):
        assert paceline_here(*words).returncode == 2
    assert (mine / "src" / "precious.py").read_text() == "1\n"
