"""How a run ended, from how its processes did and what its ranks wrote last: the first cause wins. It makes no figures."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from paceline.records.events import Applied, Broke, Epoch, Event, Finished, Mark, Started, Warned, read
from paceline.records.layout import RunDir
from paceline.records.outcome import COMPLETED, Outcome, failed
from paceline.records.split import Span


@dataclass(frozen=True, slots=True)
class Exit:
    """How one process of the plan ended; `ours` when we ended it ourselves."""

    who: str
    rank: int | None
    code: int
    ours: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """What the parent saw from outside, in the order it happened."""

    started_t: float
    wall_s: float
    exits: tuple[Exit, ...] = ()
    timeout_s: float | None = None
    said: Outcome | None = None  # the launcher's own last words on what broke, where it has any
    before: Mapping[str, float] = field(default_factory=dict[str, float])  # of wall_s: what a single command did first

    @property
    def span(self) -> Span:
        return Span(self.started_t, self.wall_s, self.before)


@dataclass(slots=True)
class RankEvents:
    """Everything one rank wrote, by kind."""

    rank: int
    started: Started | None = None
    applied: Applied | None = None
    marks: list[Mark] = field(default_factory=list[Mark])
    epochs: list[Epoch] = field(default_factory=list[Epoch])
    finished: Finished | None = None
    warned: list[Warned] = field(default_factory=list[Warned])
    broke: Broke | None = None

    def take(self, event: Event) -> None:
        match event:
            case Started():
                self.started = event
            case Applied():
                self.applied = event
            case Mark():
                self.marks.append(event)
            case Epoch():
                self.epochs.append(event)
            case Finished():
                self.finished = event
            case Warned():
                self.warned.append(event)
            case Broke():
                self.broke = event

    def last(self, split: str) -> Epoch | None:
        return next((e for e in reversed(self.epochs) if e.split == split), None)


def read_ranks(run: RunDir, world_size: int) -> list[RankEvents]:
    ranks = [RankEvents(rank) for rank in range(world_size)]
    for rank in ranks:
        for event in read(run.events(rank.rank)):
            rank.take(event)
    return ranks


def signal_name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def by_signal(who: str, code: int) -> Outcome:
    """A process that a signal ended left no word; SIGSEGV and its like are the program's own doing."""
    name = signal_name(code)
    if name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"):
        hint = ", or by the kernel because memory ran out" if name == "SIGKILL" else ""
        return failed("killed", f"{who} was killed by {name} (from outside or by the task itself{hint})")
    return failed("crash", f"{who} crashed with {name}")


def judge(ranks: Sequence[RankEvents], run: RunDir, ended: Ended) -> Outcome:
    """The first cause wins: our timeout, a signal from outside, the first rank that broke by itself, an early exit."""
    if ended.timeout_s is not None:
        return failed(
            "timeout", f"still running after {ended.timeout_s:g} s (timeout={ended.timeout_s:g}); ended by us"
        )
    for end in ended.exits:
        if end.code < 0 and not end.ours:
            return replace(by_signal(end.who if end.rank is None else f"rank {end.rank}", end.code), rank=end.rank)
    # A launcher that started too many processes: the first to say so may be one that should not exist.
    own = {run.events(rank.rank) for rank in ranks}
    others = [*run.launcher_files(), *(path for path in run.event_files() if path not in own)]
    broken = [rank.broke for rank in ranks if rank.broke]
    broken += [event for path in others for event in read(path) if isinstance(event, Broke)]
    causes = [event for event in broken if event.kind != "peer"]
    if causes:
        first = min(causes, key=lambda event: event.t)
        alone = len(ranks) == 1 or first.rank is None or first.kind != "task"
        return failed(first.kind, first.why if alone else f"rank {first.rank}: {first.why}", first.rank)
    if ended.said:
        return ended.said
    if broken:
        return failed("lost", broken[0].why, broken[0].rank)
    bad = next((end for end in ended.exits if end.code != 0 and not end.ours), None)
    if bad is not None:
        why = f"{bad.who} left with exit code {bad.code} and no word; see {run.path / 'logs'}"
        return failed("exit", why, bad.rank)
    ended_by_us = {end.rank for end in ended.exits if end.ours}
    missing = [rank.rank for rank in ranks if rank.finished is None and rank.rank not in ended_by_us]
    if missing:
        return failed("exit", f"rank {missing[0]} left before it had finished, with exit code 0", missing[0])
    hashes = {rank.finished.weights_hash for rank in ranks if rank.finished}
    if len(hashes) != 1:
        return failed("mismatch", "the ranks ended with different weights: they did not train one model")
    applied = [rank.applied.values for rank in ranks if rank.applied]
    if any(values != applied[0] for values in applied):
        return failed("mismatch", "the ranks did not run under the same settings; see applied in events/")
    return COMPLETED
