"""Real jobs in a real Slurm, on two machines of the cluster in a box: the same run through every launcher, wrong set-ups, sudden ends.

One box serves the whole file.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from safetensors.numpy import load_file

from e2e.box import Box
from e2e.processes import left_after, marked, wait_for
from paceline.launch.slurm import queue
from paceline.records.events import Applied, Started, read
from paceline.records.layout import RunDir

pytestmark = pytest.mark.timeout(180)

GATED = Path(__file__).with_name("tasks") / "gated.py"
# What these limits mean is shown by `make soak`, with nothing else running. Beside other tests they say that nothing hangs.
BUSY = 3.0 if "PYTEST_XDIST_WORKER" in os.environ else 1.0
WRONG_S = 20.0 * BUSY  # a wrong set-up is refused within this
SUDDEN_S = 30.0 * BUSY  # a sudden end is a failed row within this
T = TypeVar("T")


def paceline(*words: str, folder: Path, expect: int | None = 0) -> dict[str, Any]:
    """The command line's own JSON document."""
    command = [sys.executable, "-m", "paceline", *words, "--json"]
    env = {**os.environ, **marked(folder)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=150)
    assert expect is None or done.returncode == expect, done.stdout[-500:] + done.stderr
    return json.loads(done.stdout)


# A bias in front of BatchNorm changes nothing, so its gradient is zero but for rounding, which Adam turns into steps; the
# running mean follows it. Where the order of a sum differs (MPI and gloo, beyond two ranks) these two drift, and only they.
IDLE = ("linear1.bias", "norm.running_mean")


def largest_difference(a: dict[str, Any], b: dict[str, Any], *, without: Sequence[str] = ()) -> float:
    """Per tensor, the norm of the difference over the norm of the tensor; the largest of them."""
    left, right = load_file(a["weights"]), load_file(b["weights"])
    assert left.keys() == right.keys()
    return max(
        float(np.linalg.norm(left[name].astype("f8") - right[name])) / max(1e-30, float(np.linalg.norm(left[name].astype("f8"))))
        for name in left
        if name not in without
    )  # fmt: skip


# ---- the same run through every launcher ----

THROUGH: tuple[tuple[str, ...], ...] = (
    ("launcher=slurm+torchrun",),
    ("launcher=slurm+torchrun", "rendezvous=c10d"),
    ("launcher=slurm+accelerate",),
    ("launcher=slurm+mpirun",),
    ("launcher=slurm+mpirun", "backend=mpi"),
    ("launcher=slurm+srun",),
    ("launcher=slurm+srun", "backend=mpi"),
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "what",
    [
        ("mnist-convnet", "on=2x1", "steps=40"),
        pytest.param(("features", "on=2x2", "steps=30", "num_train=2000", "num_test=500"), marks=pytest.mark.slow),
    ],
    ids=lambda what: what[0],
)
def test_one_model_through_every_launcher(what: tuple[str, ...], box: Box, tmp_path: Path) -> None:
    records = [paceline("run", *what, *how, folder=tmp_path) for how in THROUGH]
    for how, record in zip(THROUGH, records, strict=True):
        assert record["outcome"] == "completed", (how, record["why"])
        assert sorted({rank["host"] for rank in record["ranks"]}) == ["node0", "node1"], how
        assert record["queue"]["hosts"] == ["node0", "node1"]
        assert ("backend=mpi" in how) == (record["applied"]["backend"] == "mpi")
    first = records[0]
    for how, record in zip(THROUGH, records, strict=True):
        assert record["test"]["accuracy"] == first["test"]["accuracy"], how
        drifts = IDLE if "backend=mpi" in how and len(record["ranks"]) > 2 else ()
        assert largest_difference(first, record, without=drifts) <= 1e-6, how


def test_the_header_and_the_script_are_kept(box: Box, tmp_path: Path) -> None:
    record = paceline(
        "run", "mnist-convnet", "on=2x1", "steps=2", "launcher=slurm+srun", "mem=500M", "time=5m", folder=tmp_path
    )
    run = RunDir(Path(record["run_dir"]))
    log = run.job("job.log").read_text()
    assert "node list:      node[0-1]" in log and "master address: node0" in log and "tasks per node: 1" in log
    assert f"master port:    {20000 + record['queue']['job'] % 12000}" in log
    assert "#SBATCH --mem=500M" in run.job("script.sh").read_text()
    machines = json.loads(run.machines.read_text())["machines"]
    assert [machine["host"] for machine in machines] == ["node0", "node1"]
    assert len({machine["address"] for machine in machines}) == 2


# ---- wrong set-ups ----


def refused(*words: str, folder: Path, out: Path | None = None) -> str:
    """Fails within WRONG_S, in one sentence, and leaves nothing running; the sentence."""
    began = time.monotonic()
    extra = ("--out", str(out)) if out else ()
    record = paceline("run", "mnist-convnet", "steps=5", *words, *extra, folder=folder, expect=1)
    assert time.monotonic() - began < WRONG_S
    assert record["outcome"] == "failed" and "Traceback" not in record["why"] and "\n" not in record["why"]
    assert not left_after(folder, seconds=3)
    job = (record["queue"] or {}).get("job")
    assert job is None or wait_for(
        "the job is over", lambda: queue.state(job).word not in ("RUNNING", "PENDING") or None, 10
    )
    return str(record["why"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("on=2x1", "launcher=slurm+torchrun", "head=no-such-host"), "cannot resolve the head machine's name 'no-such-host'"),
        (("on=2x1", "launcher=slurm+srun", "partition=nope"), "see `sinfo` for the partitions there are"),
        (("on=5x1", "launcher=slurm+srun"), "needs 5 machines with 1 CPU each, and the partition has 2 such that can be used now"),
        (("on=1x1", "launcher=slurm+srun", "mem=9000G"), "give a smaller mem="),
        (("on=1x64", "batch=64", "launcher=slurm+srun"), "needs 1 machines with 64 CPUs each, and the partition has 0 such"),
    ],
)  # fmt: skip
def test_asked_for_what_there_is_not(words: tuple[str, ...], sentence: str, box: Box, tmp_path: Path) -> None:
    assert sentence in refused(*words, folder=tmp_path)


@contextlib.contextmanager
def on(box: Box, machine: str, *command: str) -> Iterator[None]:
    """A command that goes on, on a machine, for the length of a block."""
    process = subprocess.Popen([*box.enter(machine), *command], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None


def test_a_port_that_is_taken(box: Box, tmp_path: Path) -> None:
    code = "import socket, time; s = socket.create_server(('', 4567)); print('ready', flush=True); time.sleep(100)"
    with on(box, "node0", sys.executable, "-c", code):
        said = refused("on=2x1", "launcher=slurm+torchrun", "port=4567", folder=tmp_path)
    assert "port 4567 on node0 is taken" in said


@contextlib.contextmanager
def mounted(box: Box, machine: str, *words: str, over: Path) -> Iterator[None]:
    """Something else at a place of one machine's file system: as if its disk were its own."""
    subprocess.run([*box.enter(machine), "mount", *words, str(over)], check=True)
    try:
        yield
    finally:
        subprocess.run([*box.enter(machine), "umount", "--lazy", str(over)], check=True)


def test_another_torch_on_one_machine(box: Box, tmp_path: Path) -> None:
    found = next(file for file in importlib.metadata.files("torch") or [] if file.name == "METADATA")
    real = Path(str(found.locate())).resolve()
    fake = tmp_path / "METADATA"
    fake.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.9.9\n")
    with mounted(box, "node1", "--bind", str(fake), over=real):
        said = refused("on=2x1", "launcher=slurm+torchrun", folder=tmp_path)
    assert "node1 (machine 1) has torch 2.9.9, and node0 has 2." in said


@pytest.mark.parametrize("machine", ["node0", "node1"])
def test_a_run_directory_that_is_not_shared(machine: str, box: Box, tmp_path: Path) -> None:
    private = tmp_path / "runs"
    private.mkdir()
    with mounted(box, machine, "-t", "tmpfs", "private", over=private):
        said = refused("on=2x1", "launcher=slurm+srun", folder=tmp_path, out=private / "x")
    assert "on a disk that all machines share" in said


def test_a_machine_whose_link_is_down(box: Box, tmp_path: Path) -> None:
    with box.cut("node1"):
        said = refused("on=2x1", "launcher=slurm+torchrun", folder=tmp_path)
    assert (
        "machine 1 did not report to node0" in said
        or "(node1 cannot be used)" in said
        or "node1 does not answer Slurm" in said
    )


# ---- sudden ends ----


class Desk:
    """A user's folder with a task that waits at a gate, and one command that is going on in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        shutil.copy(GATED, folder / "gated.py")
        (folder / "hold").touch()

    def start(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "paceline", *words]
        env = {**os.environ, **marked(self.folder)}
        self.started.append(
            subprocess.Popen(
                command, cwd=self.folder, env=env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )  # fmt: skip
        return self.started[-1]

    def close(self) -> None:
        """Whatever a failed test left: the command is asked to leave, and cancels its job."""
        for process in self.started:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=30)

    def run(self) -> RunDir | None:
        found = [path for path in self.folder.rglob("spec.json") if ".trial" not in str(path)]
        latest = max(found, key=lambda path: path.stat().st_mtime, default=None)
        return RunDir(latest.parent) if latest else None

    def training(self, world_size: int) -> list[Started]:
        """The ranks, once all of them train."""
        run = self.run()
        events = [list(read(run.events(rank))) for rank in range(world_size)] if run else []
        if not events or not all(any(isinstance(event, Applied) for event in rank) for rank in events):
            return []
        return [next(event for event in rank if isinstance(event, Started)) for rank in events]

    def job(self) -> int:
        run = self.run()
        assert run is not None
        return int(json.loads(run.job("job.json").read_text())["job"])


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.close()


SHORT = ("batch=8", "steps=4", "timeout=100")


def ends(process: subprocess.Popen[str], desk: Desk, since: float, *, reachable: bool = True) -> dict[str, Any]:
    """The failed row, in time, and nothing left. On a machine that cannot be reached Slurm's own srun waits for its return."""
    out, err = process.communicate(timeout=SUDDEN_S + 30)
    assert time.monotonic() - since < SUDDEN_S, err
    record = json.loads(out)
    assert record["outcome"] == "failed" and process.returncode == 1
    left = left_after(desk.folder, seconds=20 if reachable else 3)
    assert not [line for line in left if reachable or ("paceline.worker" in line and "srun" not in line)]
    return record


# accelerate's agent is torchrun's, and an MPI that carries the messages ends a job as one that only starts it: those two are slow.
KILLED = [(("slurm+torchrun",), ()), (("slurm+srun",), ())]
KILLED += [
    (how, (pytest.mark.slow,)) for how in (("slurm+accelerate",), ("slurm+mpirun",), ("slurm+mpirun", "backend=mpi"))
]


@pytest.mark.parametrize("how", [pytest.param(how, marks=marks, id=" ".join(how)) for how, marks in KILLED])
def test_a_killed_rank(how: Sequence[str], box: Box, desk: Desk) -> None:
    process = desk.start("run", "gated.py", "on=2x1", f"launcher={how[0]}", *how[1:], *SHORT, "--json")
    ranks = wait_for("the ranks train", lambda: desk.training(2))
    since = time.monotonic()
    os.kill(ranks[1].pid, signal.SIGKILL)
    record = ends(process, desk, since)
    assert record["kind"] == "killed", record["why"]
    assert record["why"].startswith("rank 1") and "SIGKILL" in record["why"]


@pytest.mark.parametrize("machine", [pytest.param("node1", marks=pytest.mark.slow), "node0"])
def test_a_machine_that_is_cut_off(machine: str, box: Box, desk: Desk) -> None:
    """The disk is still shared, so no file tells: the heartbeats do. The head may be the one that is cut off."""
    process = desk.start("run", "gated.py", "on=2x1", "launcher=slurm+srun", *SHORT, "--json")
    wait_for("the ranks train", lambda: desk.training(2))
    since = time.monotonic()
    with box.cut(machine):
        record = ends(process, desk, since, reachable=False)
    assert not left_after(desk.folder, seconds=20), "reachable again, Slurm ends what it still had"
    assert record["kind"] == "lost"
    assert "node0 (rank 0)" in record["why"] and "node1 (rank 1)" in record["why"] and "link is down" in record["why"]


def test_cancelled_from_outside_and_the_study_goes_on(box: Box, desk: Desk) -> None:
    process = desk.start(
        "study", "gated.py", "on=2x1", "launcher=slurm+srun", "batch=8,16", "steps=4", "--repeats", "1", "--json"
    )
    hold = desk.folder / "hold"
    wait_for("the ranks train", lambda: desk.training(2))
    subprocess.run(["scancel", str(desk.job())], env={**os.environ, **queue.cluster()}, check=True)
    wait_for("the first row", lambda: len(list(desk.folder.glob("runs/*/cells/*/*/result.json"))) == 1 or None)
    hold.unlink()
    out, err = process.communicate(timeout=90)
    assert process.returncode == 1, err
    outcomes = {cell["outcome"] for cell in json.loads(out)["cells"]}
    assert len(outcomes) == 2 and "completed" in outcomes
    records = [json.loads(path.read_text()) for path in desk.folder.glob("runs/*/cells/*/*/result.json")]
    failed = next(record for record in records if record["outcome"] == "failed")
    assert failed["kind"] == "killed" and "cancelled (scancel) from outside" in failed["why"]


def test_another_job_takes_the_machines(box: Box, desk: Desk) -> None:
    process = desk.start("run", "gated.py", "on=2x1", "launcher=slurm+srun", "partition=low", *SHORT, "--json")
    wait_for("the ranks train", lambda: desk.training(2))
    since = time.monotonic()
    env = {**os.environ, **queue.cluster()}
    argv = [
        "sbatch",
        "--parsable",
        "--partition=main",
        "--nodes=2",
        "--exclusive",
        "--output=/dev/null",
        "--wrap",
        "sleep 1",
    ]
    subprocess.run(argv, env=env, check=True, capture_output=True)
    record = ends(process, desk, since)
    assert record["kind"] == "preempted" and "preempted by Slurm" in record["why"]


# ---- leaving and coming back ----


def test_detached_and_picked_up(box: Box, tmp_path: Path) -> None:
    words = ("study", "mnist-convnet", "on=1x1,2x1", "launcher=slurm+srun", "steps=5", "--repeats", "1")
    jobs = paceline(*words, "--detach", folder=tmp_path)["jobs"]
    assert len(jobs) == 2
    wait_for("both jobs are over", lambda: all(queue.state(job).over for job in jobs) or None, 60)
    again = paceline(*words, folder=tmp_path)
    assert [(cell["outcome"], cell["n"]) for cell in again["cells"]] == [("completed", 1)] * 2
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/cells/*/*/result.json")]
    assert sorted(record["queue"]["job"] for record in records) == jobs, "nothing is run twice"
    found = paceline("report", "runs/mnist-convnet_on", folder=tmp_path)
    assert [cell["outcome"] for cell in found["cells"]] == ["completed", "completed"]


def test_a_detached_run_is_reported_on_when_it_is_over(box: Box, desk: Desk) -> None:
    words = ("run", "gated.py", "on=2x1", "launcher=slurm+srun", *SHORT, "--out", "run")
    submitted = paceline(*words, "--detach", folder=desk.folder)
    wait_for("the ranks train", lambda: desk.training(2))
    early = subprocess.run(
        [sys.executable, "-m", "paceline", "report", "run"], cwd=desk.folder, capture_output=True, text=True
    )
    assert early.returncode == 2 and f"job {submitted['job']} is RUNNING" in early.stderr
    (desk.folder / "hold").unlink()
    record = paceline(*words, folder=desk.folder)
    assert record["outcome"] == "completed" and record["queue"]["job"] == submitted["job"], (
        "the same command waits for it"
    )


def test_interrupted_the_job_is_cancelled(box: Box, desk: Desk) -> None:
    process = desk.start("run", "gated.py", "on=2x1", "launcher=slurm+srun", *SHORT)
    wait_for("the ranks train", lambda: desk.training(2))
    job, run = desk.job(), desk.run()
    assert run is not None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert queue.state(job).word in ("CANCELLED", "COMPLETING")
    assert not left_after(desk.folder, seconds=10)
    (desk.folder / "hold").unlink()
    again = paceline(
        "run", "gated.py", "on=2x1", "launcher=slurm+srun", *SHORT, "--out", str(run.path), folder=desk.folder
    )
    assert again["outcome"] == "completed", "what we cancelled ourselves gives way to the same command"


@pytest.mark.parametrize("cancel", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["cancelled", "left"])
def test_on_a_terminal_the_user_is_asked(cancel: bool, box: Box, desk: Desk) -> None:
    """Ctrl-C: cancel the job, or leave it, and pick it up by the same command."""
    words = ("run", "gated.py", "on=2x1", "launcher=slurm+srun", *SHORT, "--out", "run")
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "paceline", *words]
    env = {**os.environ, **marked(desk.folder)}
    process = subprocess.Popen(command, cwd=desk.folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = bytearray()
    reader = threading.Thread(target=_read_all, args=(ours, said))
    reader.start()
    wait_for("the ranks train", lambda: desk.training(2))
    job = desk.job()
    process.send_signal(signal.SIGINT)
    wait_for("the question", lambda: f"cancel Slurm job {job}?".encode() in said or None, 10)
    os.write(ours, b"y\n" if cancel else b"n\n")
    assert process.wait(30) == 130
    reader.join(10)
    os.close(ours)
    assert queue.state(job).word in ("CANCELLED", "COMPLETING") if cancel else queue.state(job).running
    (desk.folder / "hold").unlink()
    record = paceline(*words, folder=desk.folder)
    assert record["outcome"] == "completed" and (record["queue"]["job"] == job) == (not cancel)


def _read_all(handle: int, into: bytearray) -> None:
    with contextlib.suppress(OSError):  # the other side has hung up
        while piece := os.read(handle, 4096):
            into.extend(piece)


def test_a_packed_study_is_one_job(box: Box, tmp_path: Path) -> None:
    """Cells of several sizes, one after the other in one allocation, each with its own processes, log and end."""
    words = (
        "mnist-convnet",
        "on=1x1,1x2,2x1,2x2",
        "launcher=slurm+mpirun",
        "pack=true",
        "steps=5",
        "batch=32",
        "--repeats",
        "1",
    )
    found = paceline("study", *words, folder=tmp_path)
    assert [cell["outcome"] for cell in found["cells"]] == ["completed"] * 4
    records = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/cells/*/*/result.json")]
    assert len({record["queue"]["job"] for record in records}) == 1
    assert {record["spec"]["on"]: len({rank["host"] for rank in record["ranks"]}) for record in records} == {
        "1x1": 1, "1x2": 1, "2x1": 2, "2x2": 2,
    }  # fmt: skip


# ---- without Slurm: the same command on each machine, by hand ----


@pytest.mark.parametrize(
    "how",
    [("torchrun", "static"), pytest.param(("torchrun", "c10d"), marks=pytest.mark.slow), ("accelerate", "static")],
    ids=" ".join,
)
def test_by_hand_on_each_machine(how: tuple[str, str], box: Box, tmp_path: Path) -> None:
    words = ("on=2x1", "steps=10", f"launcher={how[0]}", f"rendezvous={how[1]}", "head=node0", "threads=1")
    same = (sys.executable, "-m", "paceline", "run", "mnist-convnet", *words, "--json", "--out", str(tmp_path / "run"))
    processes = [
        subprocess.Popen(
            [*box.enter(f"node{machine}"), *same, f"machine={machine}"],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for machine in (1, 0)
    ]  # fmt: skip
    said = [process.communicate(timeout=100) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    records = [json.loads(out) for out, _ in said]
    assert records[0]["weights_hash"] == records[1]["weights_hash"] is not None
    assert sorted({rank["host"] for rank in records[1]["ranks"]}) == ["node0", "node1"]
