"""Each launcher's command as text, against a golden file; `PACELINE_GOLDEN=write` rewrites it. And torchrun's last words."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.launch.plan import LAUNCHERS, Launcher, Plan
from paceline.launch.slurm.launchers import SlurmMpirun, SlurmTorchrun
from paceline.launch.slurm.script import Section, render
from paceline.launch.torchrun import Torchrun
from paceline.records.layout import RunDir
from paceline.spec.run import Spec

GOLDEN = Path(__file__).parents[2] / "golden" / "plans"


# Every launcher on one machine, and those that reach several on two.
CASES: dict[str, dict[str, Any]] = {
    **{name: {"launcher": name, "on": "1x2", "threads": 3, "cpus_per_task": 1} for name in LAUNCHERS.names() if "+" not in name},
    **{name: {"launcher": name, "on": "2x2", "threads": 1, "cpus_per_task": 1} for name in LAUNCHERS.names() if "+" in name},
    "torchrun-by-hand": {"launcher": "torchrun", "on": "2x2", "threads": 1, "head": "node0", "machine": 1},
    "torchrun-by-hand-c10d": {
        "launcher": "torchrun", "on": "2x2", "threads": 1, "head": "node0", "machine": 0, "port": 4000, "rendezvous": "c10d",
    },
    "accelerate-by-hand": {"launcher": "accelerate", "on": "2x2", "threads": 1, "head": "node0", "machine": 1, "device": "cpu"},
    "slurm+torchrun-c10d": {
        "launcher": "slurm+torchrun", "on": "2x2", "threads": 2, "cpus_per_task": 2, "rendezvous": "c10d", "partition": "main",
        "mem": "1000M", "time": "90m", "account": "lab", "qos": "long", "constraint": "fast", "gres": "gpu:2", "port": 4000,
        "sbatch": "--exclusive --mail-type=END", "activate": "/shared/env/bin/activate", "timeout": "20m",
    },
    "slurm+srun-mpi": {"launcher": "slurm+srun", "on": "2x1", "threads": 1, "cpus_per_task": 1, "backend": "mpi"},
}  # fmt: skip


def plain(text: str) -> str:
    """Without this machine's own paths, and without the experiment's key, which every new setting changes."""
    text = text.replace(sys.executable, "python").replace(str(Path(sys.executable).parent), "/env/bin")
    return re.sub(r"\b[0-9a-f]{16}\b", "KEY", text)


def text_of(plan: Plan) -> str:
    lines = [f"{process.who}: {process.command()}" for process in (plan.before, *plan.processes) if process is not None]
    text = "\n".join([plan.said, *lines, *([plan.script] if plan.script else [])]) + "\n"
    return plain(text)


def golden(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("PACELINE_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def lint(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_the_golden_one(name: str) -> None:
    spec = Spec(task="features", **{"cpus_per_task": 1, **CASES[name]})
    launcher: Launcher = LAUNCHERS.load(spec.launcher)()
    plan = launcher.plan(spec, RunDir(Path("/runs/x")))
    golden(name, text_of(plan))
    if plan.script is not None:
        lint(plan.script)


def test_a_pack_is_one_script() -> None:
    """Runs of different sizes in one job: each sees its own part of the machines, in a shell of its own."""
    sections: list[Section] = []
    for index, on in enumerate(("2x1", "1x2", "1x1")):
        spec = Spec(task="features", on=on, launcher="slurm+mpirun", threads=1, cpus_per_task=1, pack=True, timeout=60)
        sections.append(SlurmMpirun().section(spec, RunDir(Path(f"/runs/cells/a b{index}"))))
    script = render(sections, name="paceline-features")
    lint(script)
    golden("slurm-pack", plain(script))


def test_what_a_user_types_stays_one_word(tmp_path: Path) -> None:
    """A folder named like a command must not become one: the script is run, with srun and scontrol that do nothing."""
    folder = tmp_path / "$(touch x); 'y' \"z"
    (folder / "job").mkdir(parents=True)
    (folder / "logs").mkdir()
    for program in ("srun", "scontrol"):
        (tmp_path / program).write_text("#!/bin/sh\nexit 0\n")
        (tmp_path / program).chmod(0o755)
    spec = Spec(task="features", on="2x1", launcher="slurm+torchrun", threads=1, cpus_per_task=1, head="node0")
    script = str(SlurmTorchrun().plan(spec, RunDir(folder)).script)
    lint(script)
    env = {
        "PATH": f"{tmp_path}:/usr/bin:/bin",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node0",
        "SLURM_JOB_NUM_NODES": "2",
    }
    script = script.replace(f"export PATH={Path(sys.executable).parent}:", "export PATH=")
    done = subprocess.run(["bash"], input=script, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.rglob("*") if path.name == "x") == []
    assert (folder / "job" / "ended").read_text().startswith("0 ")


LAST_WORDS = """\
worker FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-15_10:00:00
  host      : vm
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 4711)
"""


def test_torchruns_table_is_read() -> None:
    found = Torchrun().last_words(LAST_WORDS.format(code=-9))
    assert found is not None and found.kind == "killed" and str(found.why).startswith("rank 1 was killed by SIGKILL")
    assert Torchrun().last_words(LAST_WORDS.format(code=1)) is None, "a rank that left by itself has said why"
    assert Torchrun().last_words("") is None


def test_a_rank_that_left_because_its_peer_was_killed_is_not_the_cause() -> None:
    """The agent looks ten times a second: it may see the survivor's exit first."""
    others = "Failures:\n[1]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -9 (pid: 4712)\n"
    log = others + LAST_WORDS.replace("rank      : 1 (local_rank: 1)", "rank      : 0 (local_rank: 0)").format(code=1)
    found = Torchrun().last_words(log)
    assert found is not None and str(found.why).startswith("rank 1 was killed by SIGKILL")


@pytest.mark.parametrize(
    ("launcher", "log", "kind", "why"),
    [
        ("mpirun", "mpirun noticed that process rank 1 with PID 0 on node vm exited on signal 9.", "killed", "rank 1 was killed"),
        ("mpirun", "= BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n= KILLED BY SIGNAL: 9", "killed", "a rank was killed"),
        ("mpirun", "There are not enough slots available in the system", "launch", "mpirun has fewer slots"),
        ("slurm+srun", "srun: error: node1: task 1: Killed\n", "killed", "rank 1 on node1 was killed by SIGKILL"),
        ("slurm+srun", "srun: error: node1: task 3: Segmentation fault", "crash", "rank 3 on node1 crashed with SIGSEGV"),
        ("slurm+srun", "srun: error: node1: task 1: Terminated", None, None),
        ("slurm+srun", "srun: error: Task launch for StepId=1.0 failed on node n1: Socket timed out", "launch", "n1 does not answer"),
        ("slurm+srun", "srun: error: Task launch for StepId=1.0 failed on node n1: x\nsrun: error: n0: task 0: Killed", "launch", "n1"),
        ("slurm+srun", "srun: error: Invalid MPI type 'pmix', --mpi=list", "launch", "srun cannot use its plug-in --mpi=pmix"),
        ("slurm+torchrun", "srun: error: Unable to create step for job 7: Invalid", "launch", "srun could not start"),
        ("slurm+mpirun", "mpirun noticed that process rank 0 with PID 7 on node n1 exited on signal 11", "crash", "rank 0 crashed"),
    ],
)  # fmt: skip
def test_last_words(launcher: str, log: str, kind: str | None, why: str | None) -> None:
    found = LAUNCHERS.load(launcher)().last_words(log)
    assert (found.kind if found else None) == kind
    assert why is None or str(found.why).startswith(why)
