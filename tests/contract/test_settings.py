"""One row a setting: a value that is not its default, and where a real run shows that it was applied. A setting without a row fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.launch.plan import LAUNCHERS
from paceline.records.events import Epoch, Mark
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.spec.settings import Settings

ROOT = Path(__file__).parents[2]
COUNTED = str(ROOT / "tests" / "dist" / "counted.py")

# Settings that can be shown together, in one run.
TOGETHER: dict[str, Any] = {
    "on": "1x2", "launcher": "spawn", "device": "cpu", "threads": 2, "timeout": 90, "batch": 8, "test_batch": 3,
    "shuffle": False, "optimizer": "sgd", "lr": 0.5, "lr_decay": 1.0, "weight_decay": 0.25, "momentum": 0.5, "epochs": 2,
    "precision": "fp64", "buffers": "rank0", "seed": 5, "log_every": 2, "target": 100.0, "backend": "gloo",
    "update": "foreach", "nesterov": True, "clip": 1e-9, "remat": "full",
}  # fmt: skip
# Settings shown by a run of their own.
APART: dict[str, dict[str, Any]] = {
    "batch_per_rank": {"batch_per_rank": 3, "on": "1x2", "steps": 1},
    "accumulate": {"accumulate": 2, "steps": 1},
    "steps": {"steps": 7},
    "evaluate_every": {"evaluate_every": 3, "steps": 7, "batch": 2},
    "stop_at": {"stop_at": "plateau:2", "evaluate_every": 3, "steps": 20, "batch": 2},
    "keep": {"keep": "best", "epochs": 2},
    "workers": {"workers": 1, "kind": "dataset", "steps": 1},
    "wrap": {"wrap": "accelerate", "on": "1x2", "steps": 1},
    "sharding": {"sharding": "ddp", "on": "1x2", "steps": 1, "bucket_mb": 1.0, "bucket_view": True, "compress": "bf16"},
    "reshard": {"sharding": "fsdp", "reshard": False, "on": "1x2", "steps": 1},
    "messages": {"messages": "memory", "on": "1x2", "steps": 1},
    "sync_every": {"sync_every": 2, "on": "1x2", "steps": 3, "batch": 4},
    "schedule": {
        "schedule": "step",
        "schedule_every": 2,
        "schedule_factor": 0.5,
        "warmup": 4,
        "lr_scale": "linear",
        "lr_batch": 4,
        "lr": 0.1,
        "batch": 8,
        "epochs": 4,
        "num_train": 16,
    },
    "data": {},  # a task of our own cannot show it: tests/unit/worker/tasks reads folders
}
# Settings that a run above shows beside the one it is named after.
BESIDE = {
    "bucket_mb": "sharding", "bucket_view": "sharding", "compress": "sharding",
    "schedule_every": "schedule", "schedule_factor": "schedule", "warmup": "schedule", "lr_scale": "schedule", "lr_batch": "schedule",
}  # fmt: skip
# Settings of Slurm and of several machines: a value, and where the plan shows it. tests/e2e/test_slurm.py submits such plans.
PLANNED: dict[str, tuple[Any, str]] = {
    "partition": ("long", "#SBATCH --partition=long"),
    "mem": ("2G", "#SBATCH --mem=2G"),
    "time": ("90m", "#SBATCH --time=01:30:00"),
    "account": ("lab", "#SBATCH --account=lab"),
    "qos": ("high", "#SBATCH --qos=high"),
    "constraint": ("fast", "#SBATCH --constraint=fast"),
    "gres": ("gpu:2", "#SBATCH --gres=gpu:2"),
    "cpus_per_task": (3, "#SBATCH --cpus-per-task=3"),
    "activate": ("/env/activate", "source /env/activate"),
    "sbatch": ("--exclusive --nice=5", "#SBATCH --exclusive\n#SBATCH --nice=5"),
    "head": ("node7", "export PACELINE_HEAD=node7"),
    "port": (4321, "export PACELINE_PORT=4321"),
    "meet_within": (7, "export PACELINE_MEET_WITHIN=7"),
    "rendezvous": ("c10d", "--rdzv-backend c10d"),
}
# Settings that no plan of one run shows, and the test that does.
ELSEWHERE = {
    "machine": "tests/unit/launch/test_plans.py: torchrun-by-hand",
    "pack": "tests/unit/study/test_jobs.py",
    "max_jobs": "tests/unit/study/test_jobs.py",
    "price": "tests/unit/records/test_cost.py",
    "profile": "tests/e2e/test_profile.py",
    "memory_cap": "tests/e2e/test_memory_cap.py",
    "kernel": "tests/parity/test_kernel.py",
    "pin": "tests/dist/test_memory.py",
    "table_split": "tests/dist/test_tables.py",
    "graph": "tests/e2e/test_graphs.py",
    "graph_of": "tests/unit/worker/step/test_graphs.py",
    "graph_cache": "tests/e2e/test_graphs.py",
}


@pytest.mark.parametrize("name", PLANNED)
def test_what_slurm_is_asked_for_is_in_the_script(name: str) -> None:
    value, words = PLANNED[name]
    asked = {"on": "2x1", "launcher": "slurm+torchrun", "threads": 1, "cpus_per_task": 1, name: value}
    spec = Spec(task="features", **asked)
    script = LAUNCHERS.load("slurm+torchrun")().plan(spec, RunDir(Path("/runs/x"))).script
    assert words in script
    without = Spec(
        task="features", **{**asked, name: 1 if name == "cpus_per_task" else Settings.model_fields[name].default}
    )
    assert words not in LAUNCHERS.load("slurm+torchrun")().plan(without, RunDir(Path("/runs/x"))).script


def test_every_setting_has_a_row() -> None:
    assert sorted([*TOGETHER, *APART, *BESIDE, *PLANNED, *ELSEWHERE]) == sorted(Settings.model_fields)
    assert all(name in APART[home] for name, home in BESIDE.items())
    for name, where in ELSEWHERE.items():
        assert (Path(__file__).parents[2] / where.partition(":")[0]).exists(), f"{name}: {where}"


def test_the_page_of_settings_is_what_the_settings_say() -> None:
    script = ROOT / "scripts" / "settings-page"
    checked = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


def test_files_the_page_names_exist() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    named = sorted(set(re.findall(r"`((?:[a-z]+/)+(?:[a-z_0-9]+\.py)?)`", page)))
    missing = [path for path in named if not any((start / path).exists() for start in (ROOT, ROOT / "src/paceline"))]
    ours = [
        path for path in missing if not path.startswith(("job/", "events/", "logs/"))
    ]  # those are of a run's folder
    assert len(named) > 20 and not ours, f"docs/settings.md names files that do not exist: {', '.join(ours)}"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> paceline.Record:
    return paceline.run(COUNTED, out=tmp_path_factory.mktemp("settings") / "run", num_train=20, num_test=11, **TOGETHER)


def test_what_was_asked_was_applied(record: paceline.Record) -> None:
    assert record.completed, record.why
    applied = record["applied"]
    for name in ("device", "threads", "precision", "buffers", "backend", "remat"):
        assert applied[name] == TOGETHER[name], name
    assert applied["messages"] == "backend", "a backend was named, so it carries them"
    assert applied["world_size"] == 2
    assert applied["dtypes"] == {"parameters": ["float64"], "compute": ["float64"]}
    assert applied["optimizer"] == {
        "class": "SGD", "update": "foreach", "lr": 0.5, "weight_decay": 0.25, "momentum": 0.5, "nesterov": True,
    }  # fmt: skip
    assert applied["clip"]["at"] == 1e-9 and applied["clip"]["steps"] == 6


def test_the_events_show_the_rest(record: paceline.Record) -> None:
    events = [event for rank, event in record.events() if rank == 0]
    epochs = [event for event in events if isinstance(event, Epoch) and event.split == "train"]
    marks = [event.iteration for event in events if isinstance(event, Mark)]
    assert [epoch.lr for epoch in epochs] == [0.5, 0.25], "lr / (1 + lr_decay * epoch)"
    assert [epoch.iteration for epoch in epochs] == [3, 6], "20 samples in batches of 8, two epochs"
    assert marks == [2, 3, 4, 5, 6], "log_every=2, the end of the warm-up (5), and the end of an epoch"
    assert record.time["to_target_s"] is not None, "a mean id of 5 is below the target of 100"
    assert (record.run_dir / "logs" / "spawn.err").exists(), "the mother process of launcher=spawn"


def test_shuffle_and_seed_decide_the_order(tmp_path: Path) -> None:
    """The first batch of two samples, by its ids: in order, shuffled, shuffled otherwise."""
    firsts: list[float] = []
    for index, (shuffle, seed) in enumerate(((False, 1), (True, 1), (True, 2))):
        run = paceline.run(
            COUNTED, out=tmp_path / str(index), shuffle=shuffle, seed=seed, steps=1, batch=2, num_train=1000
        )
        firsts.append(run.train["id"])
    assert firsts[0] == 0.5
    assert len(set(firsts)) == 3


@pytest.mark.parametrize("name", [name for name, words in APART.items() if words])
def test_settings_of_their_own(name: str, tmp_path: Path) -> None:
    run = paceline.run(COUNTED, out=tmp_path / "run", **APART[name])
    assert run.completed, run.why
    applied, exchange = run["applied"], run["applied"]["exchange"]
    shown = {
        "sharding": applied["sharding"] == "ddp"
        and [exchange[name] for name in ("bucket_mb", "bucket_view", "compress")] == [1.0, True, "bf16"],
        "reshard": applied["sharding"] == "fsdp" and exchange.get("reshard") is False,
        "messages": applied["messages"] == "memory" and applied["backend"] == "gloo",
        "sync_every": exchange.get("sync_every") == 2,
        # two steps an epoch; lr 0.1 for a batch of 4 is 0.2 for 8, halved after two epochs; the first epoch ends half way up
        "schedule": [row["lr"] for row in run["history"]] == [0.1, 0.2, 0.1, 0.1],
        "batch_per_rank": run.spec["batch"] == 6 and run.train["seen"] == 6,
        "accumulate": run["applied"]["accumulate"] == 2,
        "steps": run["history"][-1]["iteration"] == 7 and run.spec["epochs"] is None,
        "evaluate_every": [row["iteration"] for row in run["evaluations"]] == [3, 5, 6, 7] and len(run["history"]) == 2,
        # the score is always the same, so that of the first evaluation stays the best
        "stop_at": run["stopped"] == {"by": "plateau", "iteration": 6, "epoch": 1}
        and [row["iteration"] for row in run["evaluations"]] == [3, 5, 6]
        and (run.steps, run.train["seen"]) == (6, 2),
        "keep": run.best is not None
        and run.best.iteration == 1
        and sorted(path.name for path in Path(run["weights"]).parent.iterdir())
        == ["best.safetensors", "final.safetensors"],
        "wrap": run["applied"].get("wrap") == "accelerate",
        "workers": run["applied"]["data"]["train"] == "dataset" and run.spec["workers"] == 1,
    }
    assert shown[name]
