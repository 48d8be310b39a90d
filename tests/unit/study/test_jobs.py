"""Which runs of a study share a Slurm job, and how many jobs wait at a time. sbatch is a list here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.launch.slurm import queue
from paceline.records.layout import RunDir
from paceline.records.record import Record, parse
from paceline.spec.run import Spec
from paceline.study import queued
from paceline.study.campaign import PlannedRun, in_jobs, run_all, submit_all
from paceline.study.execute import RenderedRun, render


def planned_runs(num: int, folder: Path, **settings: Any) -> list[PlannedRun]:
    asked = {"launcher": "slurm+srun", "threads": 1, "cpus_per_task": 1, **settings}
    return [
        PlannedRun(f"cell{i}", 0, Spec(task="features", seed=i, **asked), RunDir(folder / str(i))) for i in range(num)
    ]


class Queue:
    """Remembers what was submitted, and when each run was waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.jobs: list[tuple[list[str], int | None]] = []
        self.log: list[str] = []
        monkeypatch.setattr(queued, "submit", self.submit)
        monkeypatch.setattr(queued, "wait", self.wait)

    def submit(self, runs: Sequence[RenderedRun], *, after: int | None = None) -> int:
        for rendered in runs:
            rendered.run.job("x").parent.mkdir(parents=True)
            rendered.run.job("job.json").write_text("{}")
        self.jobs.append(([rendered.run.path.name for rendered in runs], after))
        self.log.append("submit " + "+".join(self.jobs[-1][0]))
        return len(self.jobs)

    def wait(self, run: RunDir, *, tick: Any = None) -> Record:
        self.log.append(f"attend {run.path.name}")
        return parse({"outcome": "completed", "spec": {}, "time": {"wall_s": 1.0}})


class Nobody:
    def starting(self, planned: PlannedRun) -> None: ...

    def ticking(self, planned: PlannedRun, elapsed_s: float, waiting: str) -> None: ...

    def ended(self, planned: PlannedRun, record: Record) -> None: ...


def test_one_job_at_a_time_unless_more_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Queue(monkeypatch)
    run_all(planned_runs(3, tmp_path), Nobody())
    assert one.log == ["submit 0", "attend 0", "submit 1", "attend 1", "submit 2", "attend 2"]
    two = Queue(monkeypatch)
    run_all(planned_runs(3, tmp_path / "two", max_jobs=2), Nobody())
    assert two.log == ["submit 0", "submit 1", "attend 0", "submit 2", "attend 1", "attend 2"]


def test_packed_runs_are_one_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Queue(monkeypatch)
    run_all(planned_runs(3, tmp_path, pack=True), Nobody())
    assert found.log == ["submit 0+1+2", "attend 0", "attend 1", "attend 2"]


def test_runs_that_are_not_for_a_queue_are_never_packed(tmp_path: Path) -> None:
    here = [PlannedRun("here", 0, Spec(task="features", threads=1), RunDir(tmp_path / "here"))]
    packed = planned_runs(2, tmp_path, pack=True)
    assert in_jobs([packed[0], *here, packed[1]]) == [packed, here]


def test_runs_that_ask_for_different_machines_are_not_packed_together(tmp_path: Path) -> None:
    plain, other = planned_runs(2, tmp_path, pack=True), planned_runs(1, tmp_path / "x", pack=True, partition="low")
    assert in_jobs([plain[0], *other, plain[1]]) == [plain, other]


def test_left_alone_each_job_waits_for_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is there to submit the next one: Slurm itself keeps to max_jobs."""
    found = Queue(monkeypatch)
    assert submit_all(planned_runs(4, tmp_path, max_jobs=2)) == [1, 2, 3, 4]
    assert [after for _, after in found.jobs] == [None, None, 1, 2]


@pytest.mark.parametrize("moved", [False, True])
def test_a_submitted_run_is_picked_up_by_any_name(moved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`paceline report run`, from the folder above it, or after it was moved."""
    monkeypatch.setattr(queue, "submit", lambda script, **_: 7)
    monkeypatch.setattr(queue, "state", lambda job: queue.State("CANCELLED"))
    planned = planned_runs(1, tmp_path)[0]
    assert queued.submit([render(planned.spec, planned.run)]) == 7
    planned.run.job("ended").write_text("1 1000\n")
    monkeypatch.chdir(tmp_path)
    if moved:
        (tmp_path / "0").rename("elsewhere")
    found = queued.pick_up(Path("elsewhere" if moved else "0"))
    assert [record.kind for record in found] == ["killed"]
    assert queued.pick_up(Path()) == [], "once is enough"
