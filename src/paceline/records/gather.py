"""From what the ranks wrote and how their processes ended to one record. Sums of sums, no statistics, no opinion."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.base.files import read_json
from paceline.records.cost import cost, energy
from paceline.records.events import Applied, Broke, Epoch, Event, Finished, Mark, Started, read
from paceline.records.layout import RunDir
from paceline.records.outcome import COMPLETED, Outcome, failed, under_cap
from paceline.records.profile import filed
from paceline.records.split import Span, memory, rank_parts, startup_parts, whole
from paceline.records.steady import RULE, pace
from paceline.spec.run import SCHEMA, Spec


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
class _Rank:
    rank: int
    started: Started | None = None
    applied: Applied | None = None
    marks: list[Mark] = field(default_factory=list[Mark])
    epochs: list[Epoch] = field(default_factory=list[Epoch])
    finished: Finished | None = None
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
            case Broke():
                self.broke = event

    def last(self, split: str) -> Epoch | None:
        return next((e for e in reversed(self.epochs) if e.split == split), None)


def _read_ranks(run: RunDir, world_size: int) -> list[_Rank]:
    ranks = [_Rank(rank) for rank in range(world_size)]
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


def judge(ranks: Sequence[_Rank], run: RunDir, ended: Ended) -> Outcome:
    """The first cause wins: our timeout, a signal from outside, the first rank that broke by itself, an early exit."""
    if ended.timeout_s is not None:
        return failed(
            "timeout", f"still running after {ended.timeout_s:g} s (timeout={ended.timeout_s:g}); ended by us"
        )
    for end in ended.exits:
        if end.code < 0 and not end.ours:
            return by_signal(end.who if end.rank is None else f"rank {end.rank}", end.code)
    # A launcher that started too many processes: the first to say so may be one that should not exist.
    own = {run.events(rank.rank) for rank in ranks}
    others = [*run.launcher_files(), *(path for path in run.event_files() if path not in own)]
    broken = [rank.broke for rank in ranks if rank.broke]
    broken += [event for path in others for event in read(path) if isinstance(event, Broke)]
    causes = [event for event in broken if event.kind != "peer"]
    if causes:
        first = min(causes, key=lambda event: event.t)
        alone = len(ranks) == 1 or first.rank is None or first.kind != "task"
        return failed(first.kind, first.why if alone else f"rank {first.rank}: {first.why}")
    if ended.said:
        return ended.said
    if broken:
        return failed("lost", broken[0].why)
    bad = next((end for end in ended.exits if end.code != 0 and not end.ours), None)
    if bad is not None:
        return failed("exit", f"{bad.who} left with exit code {bad.code} and no word; see {run.path / 'logs'}")
    ended_by_us = {end.rank for end in ended.exits if end.ours}
    missing = [rank.rank for rank in ranks if rank.finished is None and rank.rank not in ended_by_us]
    if missing:
        return failed("exit", f"rank {missing[0]} left before it had finished, with exit code 0")
    hashes = {rank.finished.weights_hash for rank in ranks if rank.finished}
    if len(hashes) != 1:
        return failed("mismatch", "the ranks ended with different weights: they did not train one model")
    applied = [rank.applied.values for rank in ranks if rank.applied]
    if any(values != applied[0] for values in applied):
        return failed("mismatch", "the ranks did not run under the same settings; see applied in events/")
    return COMPLETED


def _split(epoch: Epoch | None, *, count: str) -> dict[str, Any] | None:
    return None if epoch is None else {**epoch.total, count: epoch.num_total, "of": epoch.of}


def _rank_row(rank: _Rank, ended: Ended) -> dict[str, Any]:
    test, train, done = rank.last("test"), rank.last("train"), rank.finished
    return {
        "rank": rank.rank,
        "host": rank.started.host if rank.started else None,
        "start": rank.started.start if rank.started else None,
        "train": {**train.local, "num": train.num_local} if train else None,
        "test": {**test.local, "num": test.num_local} if test else None,
        "peak_bytes": done.memory.get("peak_bytes") if done else None,
        "rss_bytes": done.memory.get("rss_bytes") if done else None,
        "memory": done.memory if done else None,
        "time": rank_parts(rank.started, done, ended.span) if done and rank.started else None,
        "hidden_s": done.hidden_s if done else None,
        "late": done.late or None if done else None,
        "traffic": done.traffic or None if done else None,
        "graph": done.graph if done else None,
        "cores": done.cores if done else None,
    }


def _since_start(rank: _Rank, event: Epoch, started_t: float) -> float:
    """Seconds from the start of the first process to this event: the rank's own clock, from its first line on."""
    return (rank.started.t - started_t if rank.started else 0.0) + event.elapsed_s


def _history(rank: _Rank, started_t: float) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    for event in rank.epochs:
        row = rows.setdefault(event.epoch, {"epoch": event.epoch, "iteration": event.iteration, "lr": event.lr})
        row[event.split] = event.total
        row["t_s"] = _since_start(rank, event, started_t)
    return list(rows.values())


def _time(ranks: Sequence[_Rank], spec: Spec, ended: Ended) -> dict[str, Any]:
    """The critical rank is the one that trained longest; what its parts leave of the wall time is `other`."""
    time: dict[str, Any] = {
        "wall_s": ended.wall_s,
        "training_s": None,
        "parts": whole({}),
        "startup": {},
        "hidden_s": None,
    }
    done = [rank for rank in ranks if rank.finished]
    if done:
        critical = max(done, key=lambda rank: rank.finished.training_s if rank.finished else 0.0)
        started, finished = critical.started, critical.finished
        assert started and finished
        time |= {
            "training_s": finished.training_s,
            "critical_rank": critical.rank,
            "parts": whole(rank_parts(started, finished, ended.span)),
            "startup": startup_parts(started, finished, ended.span),
            "hidden_s": finished.hidden_s,
        }
    if spec.target is not None:
        time["to_target_s"] = _to_target(ranks[0], spec.target, ended.started_t)
    return time


def _graph(rows: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Of the rank whose graphs took longest to make: the others waited for it. Null where steps ran eagerly."""
    return max((row for row in rows if row is not None), key=lambda row: row["compile_s"], default=None)


def _traffic(rows: Sequence[dict[str, float]]) -> dict[str, float] | None:
    """Of the rank that gives most to the messages of a step; that of one rank alone is none."""
    told = [row for row in rows if row]
    return max(told, key=lambda row: row["bytes_per_step"]) if told else None


def _to_target(rank: _Rank, target: float, started_t: float) -> float | None:
    score = rank.finished.score if rank.finished else None
    if not score or score["name"] is None:
        return None
    for event in rank.epochs:
        value = event.total.get(score["name"]) if event.split == "test" else None
        if value is not None and (value >= target if score["better"] == "higher" else value <= target):
            return _since_start(rank, event, started_t)
    return None


def _queue(run: RunDir, ended: Ended) -> dict[str, Any] | None:
    """Of a run in a Slurm job: which, and how long it waited for its turn. That time is nobody's but the queue's."""
    if not run.job("job.json").exists():
        return None
    job: dict[str, Any] = read_json(run.job("job.json"))
    machines: list[dict[str, Any]] = read_json(run.machines)["machines"] if run.machines.exists() else []
    return {
        "job": job["job"],
        "waited_s": max(0.0, ended.started_t - job["submitted_t"]),
        "hosts": [machine["host"] for machine in machines],
    }


def gather(run: RunDir, spec: Spec, ended: Ended, *, fingerprint: dict[str, Any]) -> dict[str, Any]:
    """The document `paceline run --json` prints and `result.json` holds."""
    ranks = _read_ranks(run, spec.topology.world_size)
    outcome = under_cap(judge(ranks, run, ended), spec.memory_cap)
    first = ranks[0]
    speed = pace(first.marks)
    samples = sum(mark.num_global for mark in first.marks)
    document = {
        "schema": SCHEMA,
        "outcome": outcome.status,
        "kind": outcome.kind,
        "why": outcome.why,
        "run_dir": str(run.path),
        "key": spec.key(),
        "spec": spec.plain(),
        "applied": first.applied.values if first.applied else None,
        "train": _split(first.last("train"), count="seen"),
        "test": _split(first.last("test"), count="evaluated"),
        "score": first.finished.score if first.finished else None,
        "ranks": [_rank_row(rank, ended) for rank in ranks],
        "time": _time(ranks, spec, ended),
        "steps": max((mark.iteration for mark in first.marks), default=0),
        "samples": samples,
        "graph": _graph([rank.finished.graph for rank in ranks if rank.finished]),
        "throughput": speed.throughput,
        "steady": {"steady": speed.steady, "dropped_steps": speed.dropped_steps, "rule": RULE},
        "memory": memory([rank.finished.memory for rank in ranks if rank.finished]),
        "traffic": _traffic([rank.finished.traffic for rank in ranks if rank.finished]),
        "energy": energy([rank.finished.energy if rank.finished else {} for rank in ranks], samples),
        "cost": cost(spec, ended.wall_s),
        "weights": str(run.weights) if run.weights.exists() else None,
        "weights_hash": first.finished.weights_hash if outcome is COMPLETED and first.finished else None,
        "num_parameters": first.finished.num_parameters if first.finished else None,
        "history": _history(first, ended.started_t),
        "restarts": 0,
        "queue": _queue(run, ended),
        "fingerprint": fingerprint,
        "finished_t": ended.started_t + ended.wall_s,
    }
    return filed(document, run)


def refusal(spec_plain: dict[str, Any], why: str) -> dict[str, Any]:
    """The record of a run that a rule refused: it has a reason and nothing else."""
    return {
        "schema": SCHEMA, "outcome": "skipped", "kind": "refused", "why": why, "run_dir": None, "spec": spec_plain,
        "applied": None, "train": None, "test": None, "score": None, "ranks": [], "time": None, "throughput": None,
        "memory": None, "weights": None, "weights_hash": None, "history": [], "restarts": 0, "energy": None,
        "cost": None, "profile": None,
    }  # fmt: skip
