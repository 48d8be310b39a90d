"""The parent's end of the warm process, with a real one: what it forks is seen as a Popen is, and it goes when its block ends."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from paceline.base.files import open_log
from paceline.launch.plan import Plan, describe_plan
from paceline.launch.supervise import supervise, warmed
from paceline.launch.warm import Forked, Warm
from paceline.records.layout import RunDir


def forked(warm: Warm, folder: Path, *, hangs: bool = False) -> Forked:
    """A describe job whose request is not there: it says so and leaves with exit code 1. Or whose request never ends."""
    env: dict[str, str] = {**os.environ, "PACELINE_SUPERVISOR": str(os.getpid())}
    request = RunDir(folder).request
    request.unlink(missing_ok=True)
    if hangs:
        os.mkfifo(request)
    with open_log(folder / "out") as out, open_log(folder / "err") as err:
        child = warm.fork(("python", "-m", "paceline.worker", "describe", str(folder)), env, out, err, graphs=False)
    assert child is not None, warm.why_not
    return child


def test_codes_signals_and_the_end(tmp_path: Path) -> None:
    with warmed() as warm:
        assert not warm.started
        child = forked(warm, tmp_path)
        assert (child.wait(), child.poll(), child.returncode, child.lost) == (1, 1, 1, False)
        assert "no such file" in (tmp_path / "err").read_text()
        assert (tmp_path / "out").read_text() == ""
        first = warm.process
        assert first is not None

        child = forked(warm, tmp_path, hangs=True)
        assert child.poll() is None
        assert [process.pid for process in first.family()] == [child.pid]
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL

        child = forked(warm, tmp_path, hangs=True)
        os.kill(first.pid, signal.SIGKILL)
        assert (child.wait(), child.lost) == (-signal.SIGKILL, True)
        assert left_after_kill(child.pid) is None
        assert not warm.started

        child = forked(warm, tmp_path)  # from a new one
        assert warm.process is not first
        assert child.wait() == 1
        assert warm.process is not None
        second = warm.process.pid
    assert not psutil.pid_exists(second)


def left_after_kill(pid: int) -> int | None:
    """The kernel kills it, in its own time; a process that nobody waits for is gone or a zombie then."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)
                continue
        return None
    return pid


def test_a_warm_process_that_hangs_goes_and_takes_its_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.launch.warm._CLOSE_S", 0.1)
    with warmed() as warm:
        child = forked(warm, tmp_path, hangs=True)
        process: Any = warm.process
        os.kill(process.pid, signal.SIGSTOP)
        assert child.wait() == -signal.SIGKILL
        assert left_after_kill(child.pid) is None
    assert not psutil.pid_exists(process.pid)


def test_one_that_is_never_asked_is_never_started() -> None:
    before = psutil.Process().children()
    with warmed() as warm:
        assert warm.process is None
        assert psutil.Process().children() == before


def hanging(folder: Path) -> RunDir:
    run = RunDir(folder)
    folder.mkdir(parents=True, exist_ok=True)
    os.mkfifo(run.request)
    return run


def test_a_warm_process_that_is_stopped_is_a_run_that_ran_out_of_time(tmp_path: Path) -> None:
    run = hanging(tmp_path / "run")
    with warmed() as warm:

        def tick(*_: object) -> None:
            if warm.process is not None and not warm.process.gone:
                os.kill(warm.process.pid, signal.SIGSTOP)

        ended = supervise(describe_plan(run), run, timeout_s=1.0, tick=tick, warm=warm)
    assert ended.timeout_s == 1.0 and all(end.code < 0 and end.ours for end in ended.exits)


def test_a_warm_process_that_ends_between_two_forks_is_a_lost_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = hanging(tmp_path / "run")
    (process,) = describe_plan(run).processes
    plan = Plan("local", 2, (process, replace(process, who="other")))
    with warmed() as warm:
        fork = warm.fork

        def once(*given: Any, **more: Any) -> Forked | None:
            if warm.process is not None:  # the first is there: now it goes
                warm.process.kill()
            return fork(*given, **more)

        monkeypatch.setattr(warm, "fork", once)
        ended = supervise(plan, run, timeout_s=20.0, warm=warm)
    assert ended.said is not None and ended.said.kind == "lost", ended
