"""From what the ranks wrote and how their processes ended to one record. Sums of sums, no statistics, no opinion."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from paceline.base.files import read_json
from paceline.records.applied import Applied
from paceline.records.better import reaches
from paceline.records.cost import cost, energy
from paceline.records.events import Epoch, Finished
from paceline.records.judge import Ended, Exit, RankEvents, by_signal, judge, read_ranks
from paceline.records.layout import RunDir
from paceline.records.measured import Graph, Late, Memory, Rank, Traffic
from paceline.records.origin import Fingerprint, SlurmJob
from paceline.records.outcome import COMPLETED, under_cap
from paceline.records.profile import Profile
from paceline.records.record import Caution, OwnScore, Record, parse
from paceline.records.section import Place, Scores
from paceline.records.split import all_parts, most_memory, rank_parts, startup_parts
from paceline.records.steady import RULE, pace
from paceline.records.timing import Best, EpochRow, Evaluation, Steady, Stopped, Time
from paceline.spec.run import SCHEMA, Spec

__all__ = ["Ended", "Exit", "by_signal", "filed", "gather", "refusal"]


def _scores(epoch: Epoch | None, *, count: str) -> Scores:
    return Scores() if epoch is None else Scores({**epoch.total, count: epoch.num_total, "of": epoch.of})


def _own_scores(epoch: Epoch | None) -> Scores:
    return Scores() if epoch is None else Scores({**epoch.local, "num": epoch.num_local})


def _rank(rank: RankEvents, ended: Ended, place: Place) -> Rank:
    row = Rank(
        rank=rank.rank, host=rank.started.host if rank.started else None, start=rank.started.start if rank.started else None,
        machine=rank.started.machine if rank.started else None, machine_cores=rank.started.cores if rank.started else None,
        train=_own_scores(rank.last("train")), test=_own_scores(rank.last("test")),
    )  # fmt: skip
    done = rank.finished
    if done is None:
        return row
    memory = Memory.read(done.memory, place.inside("memory"))
    parts: dict[str, float | None] | None = {**rank_parts(rank.started, done, ended.span)} if rank.started else None
    return replace(
        row, peak_bytes=memory.peak_bytes, rss_bytes=memory.rss_bytes, memory=memory, time=parts, hidden_s=done.hidden_s,
        late=Late.read(done.late, place.inside("late")) if done.late else None,
        traffic=Traffic.read(done.traffic, place.inside("traffic")) if done.traffic else None,
        graph=Graph.read(done.graph, place.inside("graph")) if done.graph is not None else None,
        cores=None if done.cores is None else (*done.cores,),
    )  # fmt: skip


def _since_start(rank: RankEvents, event: Epoch, started_t: float) -> float:
    """Seconds from the start of the first process to this event: the rank's own clock, from its first line on."""
    return (rank.started.t - started_t if rank.started else 0.0) + event.elapsed_s


def _history(rank: RankEvents, started_t: float) -> tuple[EpochRow, ...]:
    rows: dict[int, EpochRow] = {}
    for event in (event for event in rank.epochs if not event.middle):
        new = EpochRow(epoch=event.epoch, iteration=event.iteration, lr=event.lr, without=("train", "test"))
        row = rows.get(event.epoch, new)
        total: dict[str, Any] = {event.split: Scores(event.total)}
        without = tuple(split for split in row.without if split != event.split)
        rows[event.epoch] = replace(row, t_s=_since_start(rank, event, started_t), without=without, **total)
    return tuple(rows.values())


def _evaluations(rank: RankEvents, started_t: float) -> tuple[Evaluation, ...]:
    return tuple(
        Evaluation(iteration=event.iteration, epoch=event.epoch, t_s=_since_start(rank, event, started_t), test=Scores(event.total))
        for event in rank.epochs
        if event.split == "test"
    )  # fmt: skip


def _time(ranks: Sequence[RankEvents], spec: Spec, ended: Ended) -> Time:
    """The critical rank is the one that trained longest; what its parts leave of the wall time is `other`."""
    without = ("critical_rank", *(() if spec.target is not None else ("to_target_s",)))
    reached = None if spec.target is None else _to_target(ranks[0], spec.target, ended.started_t)
    time = Time(wall_s=ended.wall_s, parts=all_parts({}), to_target_s=reached, without=without)
    done = [(rank, rank.started, rank.finished) for rank in ranks if rank.started and rank.finished]
    if not done:
        return time
    critical, started, finished = max(done, key=lambda row: row[2].training_s)
    return replace(
        time, training_s=finished.training_s, critical_rank=critical.rank, hidden_s=finished.hidden_s, without=without[1:],
        parts=all_parts(rank_parts(started, finished, ended.span)), startup=startup_parts(started, finished, ended.span),
    )  # fmt: skip


def _slowest_graph(ranks: Sequence[Rank]) -> Graph | None:
    """Of the rank whose graphs took longest to make: the others waited for it. None where steps ran eagerly."""
    return max((rank.graph for rank in ranks if rank.graph), key=lambda graph: graph.compile_s, default=None)


def _most_traffic(ranks: Sequence[Rank]) -> Traffic | None:
    """Of the rank that gives most to the messages of a step; that of one rank alone is none."""
    return max((rank.traffic for rank in ranks if rank.traffic), key=lambda row: row.bytes_per_step, default=None)


def _memory(ranks: Sequence[Rank]) -> Memory | None:
    """Of the rank that needs most, and beside it what the machine with most holds: pages that its ranks share are there once."""
    most = most_memory([rank.memory for rank in ranks if rank.memory])
    if most is None:
        return None
    return Memory.read({**most.plain, "machine_bytes": _machine_bytes(ranks)}, Place("memory"))


def _machine_bytes(ranks: Sequence[Rank]) -> int | None:
    """The sum of proportional set sizes on the machine where it is largest. None where a rank has none: a part is no sum."""
    by_host: dict[str | None, int] = {}
    for rank in ranks:
        if rank.memory is None or rank.memory.pss_bytes is None:
            return None
        by_host[rank.host] = by_host.get(rank.host, 0) + rank.memory.pss_bytes
    return max(by_host.values(), default=None)


def _to_target(rank: RankEvents, target: float, started_t: float) -> float | None:
    score = rank.finished.score if rank.finished else None
    if not score or score["name"] is None:
        return None
    for event in rank.epochs:
        value = event.total.get(score["name"]) if event.split == "test" else None
        if value is not None and reaches(value, target, score["better"]):
            return _since_start(rank, event, started_t)
    return None


def _stopped(finished: Finished | None) -> Stopped | None:
    return None if finished is None or finished.stopped is None else Stopped.read(finished.stopped, Place("stopped"))


def _best(finished: Finished | None, run: RunDir) -> Best | None:
    if finished is None or finished.best is None:
        return None
    weights = str(run.weights.with_name(str(finished.best["weights"])))
    return Best.read({**finished.best, "weights": weights}, Place("best"))


def _job(run: RunDir, ended: Ended) -> SlurmJob | None:
    """Of a run in a Slurm job: which, and how long it waited for its turn. That time is nobody's but the queue's."""
    if not run.job("job.json").exists():
        return None
    job: dict[str, Any] = read_json(run.job("job.json"))
    machines: list[dict[str, Any]] = read_json(run.machines)["machines"] if run.machines.exists() else []
    waited_s = max(0.0, ended.started_t - job["submitted_t"])
    return SlurmJob(job=job["job"], waited_s=waited_s, hosts=tuple(machine["host"] for machine in machines))


def _warnings(ranks: Sequence[RankEvents]) -> tuple[Caution, ...]:
    """Each once, whichever ranks gave it."""
    told = dict.fromkeys((warned.kind, warned.text) for rank in ranks for warned in rank.warned)
    return tuple(Caution(kind=kind, text=text) for kind, text in told)


def _own_score(finished: Finished | None) -> OwnScore | None:
    return None if finished is None else OwnScore.read(finished.score, Place("score"))


def gather(run: RunDir, spec: Spec, ended: Ended, *, fingerprint: dict[str, Any]) -> Record:
    """The record that `result.json` holds and `paceline run --json` prints."""
    told = read_ranks(run, spec.topology.world_size)
    outcome = under_cap(judge(told, run, ended), spec.memory_cap)
    first = told[0]
    speed, samples = pace(first.marks), sum(mark.num_global for mark in first.marks)
    ranks = tuple(_rank(rank, ended, Place(str(run.events(rank.rank)))) for rank in told)
    log = None if outcome is COMPLETED else run.telling_log(outcome.rank)
    record = Record(
        outcome=outcome.status,
        kind=outcome.kind,
        why=outcome.why,
        log=None if log is None else str(log.relative_to(run.path)),
        folder=str(run.path),
        key=spec.key(),
        spec=spec.plain(),
        applied=Applied.read(first.applied.values, Place(str(run.events(0)), "applied")) if first.applied else None,
        train=_scores(first.last("train"), count="seen"),
        test=_scores(first.last("test"), count="evaluated"),
        own_score=_own_score(first.finished),
        ranks=ranks,
        time=_time(told, spec, ended),
        steps=max((mark.iteration for mark in first.marks), default=0),
        samples=samples,
        graph=_slowest_graph(ranks),
        throughput=speed.throughput,
        steady=Steady(steady=speed.steady, dropped_steps=speed.dropped_steps, rule=RULE),
        memory=_memory(ranks),
        traffic=_most_traffic(ranks),
        energy=energy([rank.finished.energy if rank.finished else {} for rank in told], samples),
        cost=cost(spec, ended.wall_s),
        weights=str(run.weights) if run.weights.exists() else None,
        weights_hash=first.finished.weights_hash if outcome is COMPLETED and first.finished else None,
        best=_best(first.finished, run) if outcome is COMPLETED else None,
        num_parameters=first.finished.num_parameters if first.finished else None,
        history=_history(first, ended.started_t),
        evaluations=_evaluations(first, ended.started_t),
        stopped=_stopped(first.finished),
        warnings=_warnings(told),
        probe=None if spec.probe is None else spec.probe.model_dump(mode="json"),
        queue=_job(run, ended),
        fingerprint=Fingerprint.read(fingerprint, Place(str(run.fingerprint))),
        finished_t=ended.started_t + ended.wall_s,
        without=("took_s",),
    )
    return filed(record, run)


def filed(record: Record, run: RunDir) -> Record:
    """A run that was profiled keeps what the profiler saw, and loses every figure of a run that trained undisturbed.

    `took_s` is there to plan the rest of a study with; no metric reads it.
    """
    if record.spec["profile"] == "none":
        return record
    seen = Profile.read(read_json(run.profile), Place(str(run.profile))) if run.profile.exists() else None
    return replace(
        record, train=Scores(), test=Scores(), own_score=None, time=None, throughput=None, steady=None, memory=None, energy=None,
        cost=None, weights=None, weights_hash=None, history=(), evaluations=(), took_s=record.duration_s, profile=seen,
        ranks=tuple(_place_of(rank) for rank in record.ranks), document=None, without=(),
    )  # fmt: skip


def _place_of(rank: Rank) -> Rank:
    return Rank(rank=rank.rank, host=rank.host, machine=rank.machine, machine_cores=rank.machine_cores)


def refusal(spec_plain: dict[str, Any], why: str) -> Record:
    """The record of a run that a rule refused: it has a reason and nothing else."""
    return parse({
        "schema": SCHEMA, "outcome": "skipped", "kind": "refused", "why": why, "log": None, "run_dir": None, "spec": spec_plain,
        "applied": None, "train": None, "test": None, "score": None, "ranks": [], "time": None, "throughput": None,
        "memory": None, "weights": None, "weights_hash": None, "history": [], "evaluations": [], "restarts": 0, "energy": None,
        "cost": None, "profile": None,
    })  # fmt: skip
