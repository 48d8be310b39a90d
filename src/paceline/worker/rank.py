"""One rank, or one short job, from its first line to its last: every end but a signal leaves a last word.

The first event is written before torch is imported, so that start-up is seen from its beginning.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from collections.abc import Callable

from paceline.base.errors import BadInput, PacelineError, RunFailed
from paceline.base.files import open_log, read_json, write_json
from paceline.records.events import STARTED, Broke, EventLog, Started
from paceline.records.layout import RunDir
from paceline.records.split import STARTUP
from paceline.worker.measure.cap import ran_out
from paceline.worker.measure.clock import Stopwatch, wall, with_wall
from paceline.worker.world.env import Identity, meeting, this_machine


def leave_now(code: int) -> None:
    """Exit without finalisers, which would wait for a thread of the user's task or for a collective that never ends."""
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


_GRACE_S = 4.0  # seconds for the parent to report the rank that died, before this one reports a lost peer


def train_job(run: RunDir, identity: Identity, *, own_log: bool, start: str = STARTED) -> None:
    """One rank from its first line to its last; every end but a signal leaves a last event."""
    watch, began_t = with_wall(lambda: Stopwatch(f"{STARTUP}import"))
    log = EventLog(run.events(identity.rank))
    where = {"machine": this_machine(), "cores": os.cpu_count()}
    log.write(Started(rank=identity.rank, host=identity.host, pid=os.getpid(), t=began_t, start=start, **where))
    if own_log:  # started by somebody else's launcher: a log of our own for every rank all the same
        for stream, number in (("out", 1), ("err", 2)):
            with open_log(run.rank_log(identity.rank, stream)) as file:
                os.dup2(file.fileno(), number)

    def lost(kind: str, why: str) -> None:
        """Called on a watching thread, because the main one may be in a collective that never ends."""
        if kind == "peer":
            threading.Event().wait(_GRACE_S)
        log.write(Broke(kind=kind, why=why, rank=identity.rank, t=wall()))
        leave_now(1)

    try:
        from paceline.worker.training import run_training
        from paceline.worker.world.join import leave

        leave(run_training(run, identity, log, watch, lost))
    except BaseException as error:
        traceback.print_exc()
        failure = ran_out(error, rank=identity.rank, cap=_cap(run)) or _as_failure(error)
        log.write(Broke(kind=failure.kind, why=failure.why, rank=identity.rank, t=wall()))
        leave_now(1)
    leave_now(0)


def _cap(run: RunDir) -> str | None:
    """The memory cap the spec asks for; None if the spec cannot be read, which is reported elsewhere."""
    with contextlib.suppress(PacelineError, AttributeError):
        return read_json(run.spec).get("memory_cap")
    return None


def preflight_job(run: RunDir) -> None:
    """One machine of several, before its ranks: it finds the others, or says why not. Imports no torch."""
    from paceline.worker.world.preflight import check

    where = meeting()
    try:
        if where is None:
            raise RunFailed("where to meet is not set (PACELINE_HEAD, PACELINE_PORT)", kind="launch")
        check(run, where, clock=wall)
    except BaseException as error:
        failure = _as_failure(error)
        sys.stderr.write(f"{failure.why}\n")
        EventLog(run.launcher_events(where.machine if where else 0)).write(
            Broke(kind=failure.kind, why=failure.why, t=wall())
        )
        leave_now(1)
    leave_now(0)


def describe_job(run: RunDir) -> None:
    """What a user's task is."""

    def job() -> None:
        from paceline.worker.describe import describe

        describe(run)

    _answer(run, job)


def doctor_job(run: RunDir) -> None:
    """What torch can do on this machine."""

    def job() -> None:
        from paceline.worker.doctor import examine

        examine(run)

    _answer(run, job)


def _answer(run: RunDir, job: Callable[[], None]) -> None:
    """facts.json on success; otherwise the problems in it, for the parent to say. The job itself imports what may be broken."""
    try:
        job()
    except BaseException as error:
        traceback.print_exc()
        problems = error.problems if isinstance(error, BadInput) else [_as_failure(error).why]
        write_json(run.facts, {"schema": 1, "problems": problems})
        leave_now(1)
    leave_now(0)
