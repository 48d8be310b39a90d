"""One rank, or one short job, from its first line to its last: every end but a signal leaves a last word.

The first event is written before torch is imported, so that start-up is seen from its beginning.
"""

from __future__ import annotations

import os
import sys
import traceback

from paceline.base.errors import BadInput, RunFailed
from paceline.base.files import open_log, write_json
from paceline.records.events import Broke, EventLog, Started
from paceline.records.layout import RunDir
from paceline.worker.measure.clock import Stopwatch, wall
from paceline.worker.world.env import Identity


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
    if isinstance(error, KeyboardInterrupt):
        return RunFailed("a rank was interrupted (SIGINT, from outside or by the task itself)", kind="killed")
    return RunFailed(f"{type(error).__name__}: {' '.join(str(error).split())[:400]}", kind="internal")


def train_job(run: RunDir, identity: Identity, *, own_log: bool) -> None:
    """One rank from its first line to its last; every end but a signal leaves a last event."""
    watch = Stopwatch("startup")
    log = EventLog(run.events(identity.rank))
    log.write(Started(rank=identity.rank, host=identity.host, pid=os.getpid(), t=wall()))
    if own_log:  # started by somebody else's launcher: a log of our own for every rank all the same
        for stream, number in (("out", 1), ("err", 2)):
            with open_log(run.rank_log(identity.rank, stream)) as file:
                os.dup2(file.fileno(), number)
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
