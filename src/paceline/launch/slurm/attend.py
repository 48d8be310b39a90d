"""Waiting for a run inside a Slurm job: by what it writes into its folder, and by what Slurm says of the job. It starts nothing.

The job's own words (job/began, job/ended, the ranks' events) are looked at often, because that is free; Slurm is asked seldom,
because everybody asks it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paceline.launch.slurm import queue
from paceline.launch.slurm.queue import State
from paceline.launch.supervise import Tick
from paceline.records.events import Broke, read
from paceline.records.gather import Ended, Exit
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome, failed
from paceline.spec.run import Spec

_LOOK_S = 0.2
_ASK_S = (0.5, 1.0, 2.0, 3.0, 5.0)  # between two questions to Slurm: longer and longer
_LAG_S = 3.0  # what a job wrote last may reach our disk a little after Slurm says that it is over
_LOST_S = 4.0  # for the others to say their word after one rank found a machine gone
_SLACK_S = 3.0  # on top of meet_within: the machines say themselves what is wrong, if they can
_CANCEL_S = 10.0
_TIMED_OUT = (124, 137)  # exit codes of timeout(1): asked, and made to leave


@dataclass(slots=True)
class Attended:
    """What is known of a job while we wait for one of its runs."""

    job: int
    run: RunDir
    spec: Spec
    after: RunDir | None = None  # the run packed before this one in the same job
    said: Outcome | None = None
    cancelled: bool = False

    def wait(self, tick: Tick | None = None) -> Ended:
        began, asked, turn = time.monotonic(), 0.0, 0
        state = State("PENDING")
        quiet_since: float | None = None
        lost_at: float | None = None
        while True:
            now = time.monotonic()
            if self.run.job("ended").exists():
                break
            if now - asked >= _ASK_S[min(turn, len(_ASK_S) - 1)] or turn == 0:
                state, asked, turn = queue.state(self.job), now, turn + 1
                self._refuse_hopeless(state)
            if state.over or self.said is not None:
                self._linger(lambda: self.run.job("ended").exists(), _LAG_S if self.said is None else 0.0)
                break
            if state.running and self._our_turn() and not self.run.machines.exists():
                quiet_since = quiet_since or now
                if now - quiet_since > self.spec.meet_within + _SLACK_S:
                    self._give_up(self._nothing_heard(state))
            if self._lost():
                lost_at = lost_at or now
                if now - lost_at > _LOST_S:
                    self._give_up(None)
                    break
            if tick is not None:
                tick(now - began, self._words(state))
            time.sleep(_LOOK_S)
        return self._ended(state)

    def cancel(self) -> None:
        """scancel, and wait a little for the job to be over: what is cancelled must not go on beside what comes next."""
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

    def _our_turn(self) -> bool:
        return self.after is None or self.after.job("ended").exists()

    def _lost(self) -> bool:
        """A rank has found another machine gone; Slurm itself may need minutes to see it."""
        return any(
            isinstance(event, Broke) and event.kind == "lost"
            for rank in range(self.spec.topology.world_size)
            for event in read(self.run.events(rank))
        )

    def _refuse_hopeless(self, state: State) -> None:
        """A job that waits for machines the partition has not got would wait for ever."""
        if state.word != "PENDING" or state.reason in ("Dependency", "Priority", "None", ""):
            return
        topology = self.spec.topology
        cpus = topology.processes * int(self.spec.cpus_per_task)
        num, broken = queue.usable(self.spec.partition, cpus=cpus)
        if num < topology.machines:
            names = f" ({', '.join(broken)} cannot be used)" if broken else ""
            self._give_up(
                failed(
                    "launch",
                    f"on={self.spec.on} needs {topology.machines} machines with {cpus} CPU{'s' * (cpus > 1)} each, and the partition "
                    f"has {num} such that can be used now{names}",
                )
            )

    def _no_word(self, state: State) -> Outcome:
        """The job is over, and nothing it wrote is here."""
        return failed(
            "launch",
            f"job {self.job} ended on {state.hosts or 'its machines'} ({state.word}) and left no word in {self.run.path}: put --out "
            "on a disk that all machines share, or see what Slurm says of it",
        )

    def _nothing_heard(self, state: State) -> Outcome:
        seen = (
            ""
            if self.run.job("job.log").exists()
            else "; not even its log is here: is --out on a disk that all machines share?"
        )
        return failed(
            "launch",
            f"job {self.job} was started on {state.hosts or 'its machines'}, but they did not find each other within "
            f"{self.spec.meet_within:g} s (a machine or its link is down; or give a longer meet_within=){seen}",
        )

    def _words(self, state: State) -> str:
        if state.word == "PENDING":
            return f"job {self.job} waits in the queue" + (f" ({state.reason})" if state.reason else "")
        return f"job {self.job} on {state.hosts}" if state.hosts else f"job {self.job} {state.word.lower()}"

    def _ended(self, state: State) -> Ended:
        code, ended_t = self._own_words()
        began = _first_number(self.run.job("began"))
        if code != 0 and self.said is None and not self.cancelled:
            # Why it ended is Slurm's to say; a job of several runs goes on, and says nothing of this one.
            if not state.over and self.after is None:
                self._linger(lambda: queue.state(self.job).over, _LAG_S)
            last = queue.state(self.job)
            self.said = queue.outcome(last, self.job) or (self._no_word(last) if code is None else None)
        started_t = began if began is not None else ended_t
        wall_s = max(0.0, ended_t - started_t)
        limit = self.spec.timeout
        timed_out = limit if limit and code in _TIMED_OUT and wall_s > limit - 1 else None
        exits = (Exit(self.spec.inner, None, code),) if code is not None else ()
        return Ended(started_t, wall_s, exits, timed_out, self.said)

    def _own_words(self) -> tuple[int | None, float]:
        """(exit code, time) the job wrote at the end of this run; (None, now) when it did not come to that."""
        path = self.run.job("ended")
        words = path.read_text().split() if path.exists() else []
        return (int(words[0]), float(words[1])) if len(words) == 2 else (None, time.time())


def _first_number(path: Path) -> float | None:
    words = path.read_text().split() if path.exists() else []
    return float(words[0]) if words else None
