"""Waiting for a run inside a Slurm job: by what it writes into its folder, and by what Slurm says of the job. It starts nothing.

The job's own words (job/began, job/ended, the ranks' events) are looked at often, because that is free; Slurm is asked seldom,
because everybody asks it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.launch.slurm import queue
from paceline.launch.slurm.launchers import sruns_words
from paceline.launch.slurm.probe import last_line, last_sign, lost_machine, numbers, present, unfinished
from paceline.launch.slurm.queue import State
from paceline.launch.slurm.script import PREFLIGHT_FAILED
from paceline.launch.supervise import Tick
from paceline.records.judge import Ended, Exit
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome, failed
from paceline.spec.run import Spec

_LOOK_S = 0.2
_ASK_S = (0.5, 1.0, 2.0, 3.0, 5.0)  # between two questions to Slurm: longer and longer
_HOPE_S = 30.0  # between two checks whether there are machines for a job that waits
_LAG_S = 3.0  # what a job wrote last may reach our disk a little after Slurm says that it is over
_SHARED_DISK_S = 60.0  # and much later on a network file system: a run that went well is worth waiting for
_LOST_S = 4.0  # for the other ranks to write their reason after one rank has lost a machine
_SLACK_S = 3.0  # on top of meet_within: the ranks report themselves what is wrong, if they can
_PROLOG = 4.0  # times meet_within, from Slurm's "running" to the script's first line: sites do things in between
_CANCEL_S = 10.0
_TIMED_OUT = (124, 137)  # exit codes of timeout(1): asked, and made to leave


@dataclass(slots=True)
class WaitedJob:
    """What is known of a job while we wait for one of its runs. `largest` is the spec that needs most machines of the job."""

    job: int
    run: RunDir
    spec: Spec
    after: RunDir | None = None  # the run packed before this one in the same job
    largest: Spec | None = None
    packed: bool = False
    said: Outcome | None = None
    cancelled: bool = False
    _running_at: float | None = field(default=None, init=False)
    _checking_at: float | None = field(default=None, init=False)
    _lost_at: float | None = field(default=None, init=False)
    _hoped_at: float = field(default=0.0, init=False)

    def wait(self, tick: Tick | None = None) -> Ended:
        began, asked, num_asked = time.monotonic(), 0.0, 0
        state = State("PENDING")
        while not present(self.run.job("ended")):
            now = time.monotonic()
            if num_asked == 0 or now - asked >= _ASK_S[min(num_asked, len(_ASK_S) - 1)]:
                state, asked, num_asked = queue.state(self.job), now, num_asked + 1
                self._refuse_hopeless(state, now)
            if state.over:
                self._linger(
                    lambda: present(self.run.job("ended")), _SHARED_DISK_S if state.word == "COMPLETED" else _LAG_S
                )
                break
            self._refuse_silence(state, now)
            if self.said is not None or self._has_lost_a_machine(now):
                break
            if tick is not None:
                tick(now - began, self._words(state))
            time.sleep(_LOOK_S)
        return self._ended()

    def cancel(self) -> None:
        """scancel, and wait a little for the job's end: a cancelled job must not run at the same time as what comes
        next."""
        self.cancelled = True
        queue.cancel(self.job)
        # A machine that cannot be reached never confirms; Slurm then says COMPLETING until it gives that machine up.
        self._linger(lambda: (state := queue.state(self.job)).over or state.word == "COMPLETING", _CANCEL_S)

    def _linger(self, done: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not done() and time.monotonic() < until:
            time.sleep(_LOOK_S)

    def _give_up(self, why: Outcome | None) -> None:
        self.said = why
        self.cancel()

    def _has_lost_a_machine(self, now: float) -> bool:
        """A rank has reported that another machine is gone; Slurm itself may need minutes to see it."""
        if self._lost_at is None and lost_machine(self.run, self.spec):
            self._lost_at = now
        if self._lost_at is None or now - self._lost_at < _LOST_S:
            return False
        self._give_up(None)  # the rank's own words stand
        return True

    def _refuse_silence(self, state: State, now: float) -> None:
        """Machines that do not find each other: `meet_within`, counted from the script's first line; before it, the
        time that sites need."""
        if (
            not state.running
            or present(self.run.machines)
            or not (self.after is None or present(self.after.job("ended")))
        ):
            return
        self._running_at = self._running_at or now
        if self._checking_at is None and present(self.run.job("checking")):
            self._checking_at = now
        within_s = self.spec.meet_within
        late = (
            now - self._checking_at > within_s + _SLACK_S
            if self._checking_at is not None
            else now - self._running_at > _PROLOG * within_s
        )
        if late:
            self._give_up(
                failed(
                    "launch",
                    f"job {self.job} was started on {state.hosts or 'its machines'}, but they did not find each other within "
                    f"{within_s:g} s (a machine or its link is down; or give a longer meet_within=){self._where()}",
                )
            )

    def _refuse_hopeless(self, state: State, now: float) -> None:
        """A job that waits for machines the partition has not got would wait for ever."""
        if (
            state.word != "PENDING"
            or state.reason in ("Dependency", "")
            or (self._hoped_at and now - self._hoped_at < _HOPE_S)
        ):
            return
        self._hoped_at = now
        spec = self.largest or self.spec
        topology = spec.topology
        cpus = topology.processes * int(spec.cpus_per_task)
        usable = queue.usable(state.partition or spec.partition, cpus=cpus)
        if usable is None or usable[0] >= topology.machines:
            return
        names = f" ({', '.join(usable[1])} cannot be used)" if usable[1] else ""
        self._give_up(
            failed(
                "launch",
                f"on={spec.on} needs {topology.machines} machines with {cpus} CPU{'s' * (cpus > 1)} each, and the partition "
                f"has {usable[0]} such that can be used now{names}",
            )
        )

    def _where(self) -> str:
        """The job's own last words; without any, its disk is not ours."""
        log = self.run.job("job.log")
        if self.packed or present(log):
            return f"; it said: {last}" if (last := last_line(log)) else ""
        return "; not even its log is here: is --out on a disk that all machines share?"

    def _words(self, state: State) -> str:
        if state.word == "PENDING":
            return f"job {self.job} waits in the queue" + (f" ({state.reason})" if state.reason else "")
        return f"job {self.job} on {state.hosts}" if state.hosts else f"job {self.job} {state.word.lower()}"

    def _ended(self) -> Ended:
        code, ended_t = self._own_words()
        if code == 0:  # it went well: what the ranks wrote last may still be on its way to this machine
            self._linger(lambda: not unfinished(self.run, self.spec), _SHARED_DISK_S)
        elif self.said is None and not self.cancelled:
            self.said = self._why(code)
        began = next(iter(numbers(self.run.job("began"))), ended_t)
        wall_s = max(0.0, ended_t - began)
        limit = self.spec.timeout
        timed_out = limit if limit and code in _TIMED_OUT and wall_s > limit - 1 else None
        exits = (Exit(self.spec.inner, None, code),) if code is not None else ()
        return Ended(began, wall_s, exits, timed_out, self.said)

    def _why(self, code: int | None) -> Outcome | None:
        """Slurm's reason first, then that of the check before the ranks. What the ranks wrote themselves is read by
        `gather`."""
        state = queue.state(self.job)
        if not state.over and (not self.packed or state.word == "COMPLETING"):
            self._linger(lambda: queue.state(self.job).over, _LAG_S)
            state = queue.state(self.job)
        if by_slurm := queue.outcome(state, self.job):
            return by_slurm
        if code == PREFLIGHT_FAILED:
            log = self.run.log("preflight", "err")
            words = last_line(log) or "no word"
            return sruns_words(log.read_text(errors="replace")) or failed(
                "launch", f"the check before the ranks failed: {words}"
            )
        if code is None:
            return failed(
                "launch",
                f"job {self.job} ended on {state.hosts or 'its machines'} ({state.word}) before this run could say anything{self._where()}",
            )
        return None

    def _own_words(self) -> tuple[int | None, float]:
        """(exit code, time) that the job wrote at the end of this run; without them, (None, the time of the last
        event)."""
        words = numbers(self.run.job("ended"))
        return (int(words[0]), words[1]) if len(words) == 2 else (None, last_sign(self.run, self.spec) or time.time())
