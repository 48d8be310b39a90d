"""`python -m paceline.worker JOB RUN_DIR`: which job, and nothing else. `zygote SOCKET` does none, and forks those that do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from paceline.base.lifeline import die_with_parent
from paceline.records.events import STARTED
from paceline.records.layout import RunDir
from paceline.spec.axes.launchers import LAUNCHERS
from paceline.worker.rank import describe_job, doctor_job, preflight_job, train_job
from paceline.worker.world.env import identify, supervisor


def _train(run: RunDir, start: str) -> None:
    identity = identify()
    ours = any(row.inner == identity.dialect and not row.has_parent for row in LAUNCHERS.values())
    train_job(run, identity, own_log=not ours, start=start)


def _spawn(run: RunDir) -> None:
    from paceline.worker.spawn import spawn  # imports torch: not before a rank has said hello

    spawn(run)


JOBS: dict[str, Callable[[RunDir], None]] = {
    "describe": describe_job,
    "spawn": _spawn,
    "preflight": preflight_job,
    "doctor": doctor_job,
}


def main(job: str, folder: str, *, start: str = STARTED) -> None:
    """`start`: how this process came to be."""
    if job == "zygote":
        from paceline.worker.zygote import serve

        serve(folder, main)
    die_with_parent(supervisor())
    if job == "train":
        _train(RunDir(Path(folder)), start)
    else:
        JOBS[job](RunDir(Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
