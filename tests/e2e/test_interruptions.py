"""Real processes and real signals: whoever is killed, nothing goes on alone, nothing finished is lost, nothing is done twice.

The task waits at a gate (a file), so a signal always meets a run in the middle of its training; no test guesses times.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from e2e.processes import left_after, marked, wait_for
from paceline.records.events import Applied, Started, read
from paceline.records.layout import RunDir
from paceline.records.record import load

TASK = Path(__file__).with_name("tasks") / "gated.py"
PATIENCE_S = 60.0  # for a step of the test on a busy machine; nothing here waits that long by design
GONE_S = 3.0  # a rank whose parent was killed is gone by then
T = TypeVar("T")
SHORT = ("batch=8", "steps=2", "threads=1")


@dataclass
class Desk:
    """A user's folder: their task, a gate, the command they gave, and what is on disk."""

    folder: Path

    def __post_init__(self) -> None:
        shutil.copy(TASK, self.folder / "gated.py")
        self.started: list[subprocess.Popen[str]] = []

    def close_gate(self, name: str = "hold") -> None:
        (self.folder / name).touch()

    def open_gate(self, name: str = "hold") -> None:
        (self.folder / name).unlink()

    def start(self, *words: str) -> subprocess.Popen[str]:
        """In a session of its own, as a terminal gives a command a process group of its own."""
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline", *words], cwd=self.folder, env={**os.environ, **marked(self.folder)}, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """(exit code, stderr without the line that says what `on` means)."""
        _, err = process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in err
        return process.returncode, "".join(line for line in err.splitlines(True) if not line.startswith("on="))

    def do(self, *words: str) -> tuple[int, str]:
        return self.end(self.start(*words))

    def left(self, *, seconds: float = 0.5) -> list[str]:
        return left_after(self.folder, seconds=seconds)

    def runs(self) -> list[RunDir]:
        """Every run directory of a study or a run; hidden folders (its trial) are no results."""
        specs = self.folder.rglob("spec.json")
        return [RunDir(path.parent) for path in specs if ".trial" not in path.parts]

    def finished(self) -> dict[Path, tuple[int, bytes]]:
        """When and with what each result was written: the same afterwards means that it was not run again."""
        results = [run.result for run in self.runs() if run.finished]
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in results}

    def waiting(self) -> RunDir | None:
        """The run all of whose ranks are about to train, or train."""
        for run in self.runs():
            world_size = len(self.pids(run)) and json.loads(run.plan.read_text())["world_size"]
            ready = [any(isinstance(event, Applied) for event in read(path)) for path in run.event_files()]
            if world_size and not run.finished and ready.count(True) == world_size:
                return run
        return None

    def pids(self, run: RunDir) -> dict[int, int]:
        events = (event for path in run.event_files() for event in read(path))
        return {event.rank: event.pid for event in events if isinstance(event, Started)}

    def meet(self, *, after: int = 0) -> RunDir:
        """The run that waits at the gate once `after` others are finished; the next one needs seconds to get there."""
        wait_for(f"{after} finished runs", lambda: len(self.finished()) >= after)
        self.close_gate()
        return wait_for("a run at the gate", self.waiting)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    for process in desk.started:  # only after a failure is there anything to end
        if process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in psutil.Process(process.pid).children(recursive=True):
                    child.kill()
            process.kill()
        process.communicate()


# accelerate's launcher is torchrun's agent under another name: what holds of the one is tried on the other by `make soak`.
AS_TORCHRUN = pytest.param("accelerate", marks=pytest.mark.slow)


# ---- one run ----


@pytest.mark.parametrize(
    ("launcher", "victim"),
    [
        ("local", 0),
        ("local", 1),
        ("torchrun", 1),
        ("spawn", 0),
        pytest.param("accelerate", 1, marks=pytest.mark.slow),
        ("mpirun", 1),
    ],
)
def test_a_killed_rank_ends_its_run_and_is_named(launcher: str, victim: int, desk: Desk) -> None:
    command = desk.start("run", "gated.py", *SHORT, "on=1x2", f"launcher={launcher}", "--out", "run")
    run = desk.meet()
    os.kill(desk.pids(run)[victim], signal.SIGKILL)
    code, said = desk.end(command)
    assert desk.left() == []
    record = load(run.path)
    assert (code, record.outcome, record.kind) == (1, "failed", "killed")
    assert f"rank {victim} was killed by SIGKILL" in (record.why or "")
    assert said == f"paceline: killed: {record.why}\n"


@pytest.mark.parametrize(
    "launcher", ["local", "torchrun", pytest.param("spawn", marks=pytest.mark.slow), AS_TORCHRUN, "mpirun"]
)
def test_ranks_die_with_a_killed_parent_and_the_same_command_works(launcher: str, desk: Desk) -> None:
    words = ("run", "gated.py", *SHORT, "on=1x2", f"launcher={launcher}", "--out", "run")
    command = desk.start(*words)
    run = desk.meet()
    command.kill()
    command.wait(PATIENCE_S)
    assert desk.left(seconds=GONE_S) == []
    assert not run.finished
    desk.open_gate()
    assert desk.do(*words) == (0, "")
    assert load(run.path).completed


@pytest.mark.parametrize("mode", ["works", "stubborn"])
def test_ctrl_c_in_a_run(mode: str, desk: Desk) -> None:
    """Twice in the stubborn case: the second comes while we wait for ranks that do not listen to SIGTERM."""
    words = ("run", "gated.py", *SHORT, "on=1x2", f"mode={mode}", "--out", "run")
    command = desk.start(*words)
    run = desk.meet()
    wait_for("a rank in its first forward pass", (desk.folder / "waiting").exists)
    os.killpg(command.pid, signal.SIGINT)
    if mode == "stubborn":
        wait_for("the ranks are asked to leave", (desk.folder / "asked to leave").exists)
        os.killpg(command.pid, signal.SIGINT)
    code, said = desk.end(command)
    assert (code, run.finished) == (130, False)
    assert desk.left(seconds=GONE_S) == []
    assert said == f"paceline: interrupted; what the ranks wrote so far is in {run.path}\n"
    desk.open_gate()
    assert desk.do(*words)[0] == 0
    assert load(run.path).completed


@pytest.mark.parametrize("command", ["run", "study"])
def test_ctrl_c_while_the_task_is_imported(command: str, desk: Desk) -> None:
    desk.close_gate("hold-import")
    started = desk.start(command, "gated.py", *SHORT, "--out", "out")
    wait_for("the import", (desk.folder / "waiting").exists)
    os.killpg(started.pid, signal.SIGINT)
    code, said = desk.end(started)
    assert code == 130 and "no run was started" in said
    assert desk.left() == []
    assert not (desk.folder / "out").exists()


# ---- a study ----

STUDY = ("study", "gated.py", *SHORT, "on=1x1,1x2", "--out", "study")


def assert_complete(desk: Desk, num: int) -> None:
    assert [load(run.path).outcome for run in desk.runs()] == ["completed"] * num
    assert (desk.folder / "study" / "report.html").exists()
    assert desk.left() == []


def test_a_killed_rank_is_a_row_and_only_it_is_run_again(desk: Desk) -> None:
    words = (*STUDY, "--repeats", "2")
    command = desk.start(*words)
    run = desk.meet(after=1)
    os.kill(max(desk.pids(run).values()), signal.SIGKILL)
    desk.open_gate()
    code, said = desk.end(command)
    assert code == 1 and "1 of 4 runs failed" in said
    assert desk.left() == []
    before = desk.finished()
    assert len(before) == 4, "the others were run all the same"
    assert load(run.path).kind == "killed"

    code, said = desk.do(*words)
    assert code == 0 and "3 done already" in said
    after = desk.finished()
    assert [path for path in after if after[path] != before[path]] == [run.result]
    assert_complete(desk, 4)


def test_a_killed_parent_loses_the_run_it_was_in_and_no_other(desk: Desk) -> None:
    words = (*STUDY, "--repeats", "2")
    command = desk.start(*words)
    run = desk.meet(after=1)
    command.kill()
    command.wait(PATIENCE_S)
    assert desk.left(seconds=GONE_S) == []
    before = desk.finished()
    assert len(before) == 1 and not run.finished
    desk.open_gate()

    code, said = desk.do(*words)
    assert code == 0 and "1 done already" in said
    assert before.items() <= desk.finished().items()
    assert_complete(desk, 4)


@pytest.mark.parametrize("word", [signal.SIGINT, signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)])
def test_an_interrupted_study_reports_and_goes_on(word: signal.Signals, desk: Desk) -> None:
    words = (*STUDY, "--repeats", "1")
    command = desk.start(*words)
    run = desk.meet(after=1)
    if word == signal.SIGINT:
        os.killpg(command.pid, word)  # Ctrl-C: the terminal sends it to the whole group
    else:
        command.send_signal(word)
    code, said = desk.end(command)
    assert code == 130
    assert "interrupted with 1 of 2 runs to go" in said and "the same command goes on from here" in said
    assert desk.left() == []
    assert "pending" in (desk.folder / "study" / "report.html").read_text()
    before = desk.finished()
    assert len(before) == 1 and not run.finished
    desk.open_gate()

    code, said = desk.do(*words)
    assert code == 0 and "1 done already" in said
    assert before.items() <= desk.finished().items()
    assert_complete(desk, 2)


def test_two_studies_in_one_folder(desk: Desk) -> None:
    words = (*STUDY, "--repeats", "1")
    first = desk.start(*words)
    desk.meet(after=1)
    code, said = desk.do(*words)
    assert code == 2 and "another paceline study is running in this folder" in said
    desk.open_gate()
    assert desk.end(first)[0] == 0
    assert_complete(desk, 2)


CELLS = """\
study: mixed
task: gated.py
settings: {batch: 8, steps: 2, threads: 1}
cells:
  - {mode: works}
  - {mode: raises}
  - {mode: hangs, timeout: 6s}
repeats: 1
"""


def test_failed_cells_stay_until_retry_and_stop_nobody(desk: Desk) -> None:
    (desk.folder / "mixed.yaml").write_text(CELLS)
    words = ("study", "mixed.yaml", "--out", "study")
    code, said = desk.do(*words)
    assert code == 1 and "2 of 3 runs failed" in said
    assert sorted(load(run.path).kind or "" for run in desk.runs()) == ["", "task", "timeout"]
    assert desk.left() == []
    before = desk.finished()

    code, said = desk.do(*words)
    assert code == 1 and "3 done already" in said
    assert desk.finished() == before, "a failure of the task's own is a result: it is not tried again unasked"

    (desk.folder / "mended").touch()
    code, said = desk.do(*words, "--retry")
    assert code == 0 and "1 done already" in said
    after = desk.finished()
    assert sum(after[path] == before[path] for path in before) == 1, "the completed cell is not run again"
    assert_complete(desk, 3)
