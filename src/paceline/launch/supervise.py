"""The only room that starts processes, watches them and ends them. However it is left, nothing it started goes on.

Children live in sessions of their own, so that Ctrl-C reaches only us; they die with us by the kernel's hand (PDEATHSIG)
even when we are killed with -9.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import psutil

from paceline.base.environment import variables
from paceline.base.errors import RunFailed
from paceline.base.files import open_log
from paceline.base.lifeline import bound
from paceline.launch.plan import SAFE, Plan, Process
from paceline.launch.warm import Forked, Warm
from paceline.records.events import Finished, read
from paceline.records.judge import Ended, Exit
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome, failed
from paceline.spec.axes.launchers import LAUNCHERS

_MARK = "PACELINE_RUN"  # whatever a run starts inherits this, and is known by it even as nobody's child
_TICK_S = 0.2
_GRACE_S = 1.0  # for the other ranks to write their own reason after one has failed
_TERM_S = 2.0  # between asking a process to leave and making it

Child = subprocess.Popen[bytes] | Forked
Tick = Callable[[float, str], None]  # seconds since the start, and what is waited for, where there is a word for it


def _mark(run: RunDir) -> str:
    """Unique to this supervisor: in a cluster in a box the supervisors of several machines share one folder, and see
    the same processes."""
    return f"{os.getpid()} {run.path}"


def _environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    env = {
        **variables(),
        **{name: value for name, value in changes.items() if value is not None},
        "PACELINE_SUPERVISOR": str(os.getpid()),  # a rank that finds us gone when it starts must not go on
    }
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
    # The folder of this Python (mpirun of the same environment) comes first, whether or not it is activated.
    env["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), env.get("PATH", os.defpath)])
    return env


def warmed() -> Warm:
    """Where the ranks of launcher=local can be forked from, for the length of a block; nothing is started before it is asked for.

    OpenBLAS makes threads when it is loaded, and nothing with two threads can be forked; asking NVML whether there is a GPU does not
    touch the GPU. The ranks themselves get their own variables, and not these.
    """
    return Warm(_environment({**SAFE, "OPENBLAS_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}))


def _start(process: Process, run: RunDir, warm: Warm | None, graphs: bool) -> Child:
    env = _environment({**process.env, _MARK: _mark(run)})
    with open_log(run.log(process.who, "out")) as out, open_log(run.log(process.who, "err")) as err:
        if warm is not None:
            child = warm.fork(process.argv, env, out, err, graphs=graphs)
            if child is not None:
                return child
            err.write(f"started, not forked: {warm.why_not}\n".encode())
        try:
            return subprocess.Popen(
                process.argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                preexec_fn=bound(),
            )  # fmt: skip
        except OSError as error:
            raise RunFailed(f"could not start {process.argv[0]}: {error.strerror}", kind="launch") from None


def _family(children: Sequence[Child]) -> Iterator[psutil.Process]:
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(child.pid)
            yield from process.children(recursive=True)
            yield process


def _orphans(run: RunDir, sessions: set[int]) -> Iterator[psutil.Process]:
    """Processes a rank started and left behind: nobody's children any more, but in the rank's session or with its mark."""
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            process = psutil.Process(pid)
            if os.getsid(pid) in sessions or process.environ().get(_MARK) == _mark(run):
                yield process


def _left(started: Sequence[Child], running: Sequence[Child], run: RunDir) -> set[psutil.Process]:
    """Which of the started processes and their descendants still live. The warm process adopts the orphans of its
    ranks, so it knows them; otherwise all processes of the machine are searched."""
    families = {child.by for child in started if isinstance(child, Forked) and not child.by.gone}
    processes = {process for family in families for process in family.family()}
    if all(isinstance(child, Forked) and child.by in families for child in started):
        return processes
    return {*processes, *_family(running), *_orphans(run, {child.pid for child in started})}


def _stop(started: Sequence[Child], running: Sequence[Child], run: RunDir) -> None:
    """Terminate, wait, kill; grandchildren too (a launcher's ranks, a task's own processes)."""
    family = list(_left(started, running, run))
    for word in (signal.SIGTERM, signal.SIGKILL):
        for process in family:
            with contextlib.suppress(psutil.Error):
                process.send_signal(word)
        _, family = psutil.wait_procs(family, timeout=_TERM_S)
        if not family:
            break
    for child in running:
        child.wait()


def _wait(children: Sequence[Child], seconds: float) -> None:
    """Sleep until a child ends or the time is up, without burning a core that is being measured."""
    if not hasattr(os, "pidfd_open"):
        time.sleep(min(seconds, 0.02))
        return
    poller = select.poll()
    with contextlib.ExitStack() as stack:
        for child in children:
            if isinstance(child, Forked):
                if child.by.gone:  # and with it all that it forked: their end is known
                    return
                poller.register(child.by, select.POLLIN)  # it reports the end
                continue
            with contextlib.suppress(ProcessLookupError):
                handle = os.pidfd_open(child.pid)
                stack.callback(os.close, handle)
                poller.register(handle, select.POLLIN)
        poller.poll(max(1, int(seconds * 1000)))


def _left_early(process: Process, run: RunDir) -> bool:
    """A rank that exited with code 0 before it finished: the others would wait for it until a timeout."""
    if process.rank is None:
        return False
    return not any(isinstance(event, Finished) for event in read(run.events(process.rank)))


def _lost(child: Child, process: Process) -> str | None:
    if isinstance(child, Forked) and child.lost:
        return f"the warm process that {process.who} was forked from ended from outside, and took it along: give the command again"
    return None


def supervise(
    plan: Plan, run: RunDir, *, timeout_s: float = 0.0, tick: Tick | None = None, warm: Warm | None = None, graphs: bool = False
) -> Ended:  # fmt: skip
    """Start the plan's processes, wait for their end, and return how each ended, in the order it happened. `warm`:
    where our own ranks may be forked from; `graphs`: they will need torch's compiler."""
    started_t, began = time.time(), time.monotonic()
    if plan.before is not None:
        first = supervise(replace(plan, processes=(plan.before,), before=None), run, timeout_s=timeout_s, tick=tick)
        if any(end.code != 0 for end in first.exits):
            return first
    if not LAUNCHERS[plan.launcher].forks_warm:  # its processes are its own to start: that is what is measured
        warm = None
    started: list[Child] = []
    running: dict[Child, Process] = {}
    exits: list[Exit] = []
    failed_at: float | None = None
    said: Outcome | None = None
    timed_out = False
    stopped = False
    try:
        for process in plan.processes:
            child = _start(process, run, warm, graphs)
            started.append(child)
            running[child] = process
        while running:
            _wait(list(running), _TICK_S)
            for child, code in [(child, code) for child in running if (code := child.poll()) is not None]:
                process = running.pop(child)
                if (why := _lost(child, process)) is not None:
                    said = said or failed("lost", why)
                exits.append(Exit(process.who, process.rank, code, ours=stopped or why is not None))
                if failed_at is None and (code != 0 or _left_early(process, run)):
                    failed_at = time.monotonic()
            elapsed = time.monotonic() - began
            timed_out = timed_out or (bool(timeout_s) and elapsed > timeout_s and bool(running) and failed_at is None)
            lingering = failed_at is not None and time.monotonic() - failed_at > _GRACE_S
            if running and not stopped and (timed_out or lingering):
                stopped = True
                _stop(started, list(running), run)
            if tick is not None:
                tick(elapsed, "")
        wall_s = time.monotonic() - began  # the search for what was left behind is our time, not the run's
    finally:
        _stop(started, list(running), run)
    return Ended(started_t, wall_s, tuple(exits), timeout_s if timed_out else None, said)
