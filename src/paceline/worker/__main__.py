"""A worker's life: say hello, do one job, write the outcome, leave. `python -m paceline.worker JOB RUN_DIR`.

The first event is written before torch is imported, so that start-up is seen from its beginning.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import open_log, write_json
from paceline.records.events import Broke, EventLog, Started
from paceline.records.layout import RunDir
from paceline.worker.measure.clock import Stopwatch, wall
from paceline.worker.world.env import Identity, identify

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """A worker whose parent was killed must not go on alone; the kernel sees to it (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def leave_now(code: int) -> None:
    """Without finalisers: a thread the user's task left behind, or a collective that will never end, must not keep us."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _as_failure(error: BaseException) -> RunFailed:
    if isinstance(error, RunFailed):
        return error
    if isinstance(error, BadInput):
        return RunFailed("; ".join(error.problems), kind="data")
    return RunFailed(f"{type(error).__name__}: {' '.join(str(error).split())[:400]}", kind="internal")


def train_job(run: RunDir, identity: Identity, *, own_log: bool) -> None:
    """One rank from its first line to its last; every end but a signal leaves a last event."""
    watch = Stopwatch("startup")
    log = EventLog(run.events(identity.rank))
    log.write(Started(rank=identity.rank, host=identity.host, pid=os.getpid(), t=wall()))
    if own_log:  # started by somebody else's launcher: a log of our own for every rank all the same
        for stream, number in (("out", 1), ("err", 2)):
            os.dup2(open_log(run.rank_log(identity.rank, stream)).fileno(), number)
    try:
        from paceline.worker.jobs import run_training
        from paceline.worker.world.join import leave

        run_training(run, identity, log, watch)
        leave()
    except BaseException as error:
        traceback.print_exc()
        failure = _as_failure(error)
        log.write(Broke(kind=failure.kind, why=failure.why, rank=identity.rank, t=wall()))
        leave_now(1)
    leave_now(0)


def describe_job(run: RunDir) -> None:
    """facts.json on success; otherwise the problems in it, for the parent to say."""
    try:
        from paceline.worker.jobs import describe

        describe(run)
    except BaseException as error:
        traceback.print_exc()
        problems = error.problems if isinstance(error, BadInput) else [_as_failure(error).why]
        write_json(run.facts, {"schema": 1, "problems": problems})
        leave_now(1)
    leave_now(0)


def _train(run: RunDir) -> None:
    identity = identify()
    train_job(run, identity, own_log=identity.dialect != "local")


def _spawn(run: RunDir) -> None:
    from paceline.worker.spawn import spawn

    spawn(run)


JOBS: dict[str, Callable[[RunDir], None]] = {"train": _train, "describe": describe_job, "spawn": _spawn}


def main(job: str, folder: str) -> None:
    die_with_parent()
    JOBS[job](RunDir(Path(folder)))


if __name__ == "__main__":
    main(*sys.argv[1:])
