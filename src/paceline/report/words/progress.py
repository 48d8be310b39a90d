"""What is said while runs are going: how far a run is, how long a study will take, how each run ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.report.words.numbers import duration
from paceline.report.words.runs import score_in_words
from paceline.spec.axes.shardings import SHARDINGS
from paceline.spec.run import Spec
from paceline.spec.topology import global_batch

if TYPE_CHECKING:
    from paceline.records.record import Record


@dataclass(frozen=True, slots=True)
class Glimpse:
    """Where the current run is; `epochs` None when it is told in steps."""

    phase: str
    epoch: int
    epochs: int | None
    iteration: int
    steps: int | None
    throughput: float | None
    loss: float | None = None  # of the first rank's training steps since the last line but one
    score: tuple[str, float] | None = None  # of the last evaluation


def words(glimpse: Glimpse, elapsed_s: float, waiting: str = "") -> str:
    """`waiting` says what a run that has not begun is waiting for."""
    if glimpse.phase == "starting":
        return f"{waiting or 'starting'}, {duration(elapsed_s)}"
    far = f"epoch {glimpse.epoch}/{glimpse.epochs}" if glimpse.epochs else f"step {glimpse.iteration}/{glimpse.steps}"
    rate = f", {glimpse.throughput:,.0f} samples/s" if glimpse.throughput else ""
    loss = f", loss {glimpse.loss:.4g}" if glimpse.loss is not None else ""
    score = f", test {score_in_words(*glimpse.score)}" if glimpse.score is not None else ""
    return f"{far}{loss}{score}{rate}, {duration(elapsed_s)}"


def batch_in_words(spec: Spec) -> str | None:
    """What a step's batch is made of, where it is not simply `batch`. In other tools accumulation multiplies: so it is said
    which of the two it does here. None where there is nothing to mistake."""
    ranks, micro, each = spec.topology.world_size, spec.accumulate, spec.batch_per_rank
    if micro == 1 and (each is None or ranks == 1):
        return None
    shares = ranks if SHARDINGS[spec.sharding].cuts_samples else 1
    at_once = -(-spec.batch // (shares * micro))
    about = "" if at_once * shares * micro == spec.batch else "about "
    counts = [f"{shares} rank{'s' if shares > 1 else ''}", f"{about}{at_once}", *([str(micro)] if micro > 1 else [])]
    whole = f"effective batch {spec.batch} = {' x '.join(counts)}"
    if shares < ranks:
        whole += ", each of the ranks sees all of it"
    if each is not None or micro == 1:
        return whole
    many = global_batch(spec.batch, spec.topology, accumulate=micro)
    return f"{whole}: accumulate={micro} cuts batch={spec.batch}; to multiply instead, batch_per_rank={spec.batch} makes it {many}"


@dataclass(frozen=True, slots=True)
class Position:
    """A run of a study: which of how many, in which cell."""

    done: int
    total: int
    label: str
    repeat: int


def before_study(name: str, *, total: int, done: int, skipped: int, left_s: float | None, how: str) -> str:
    """`how` says where the estimate comes from, or that there is none."""
    about = f"about {duration(left_s)} ({how})" if left_s is not None else f"how long is {how}"
    resumed = f", {done} done already" if done else ""
    return f"{name}: {total} runs{resumed}, {skipped} cells skipped; {about}"


def made_again(num: int, reason: str) -> str:
    return f"  {num} finished {'run is' if num == 1 else 'runs are'} made again: {reason}"


def during_study(place: Position, run: str, *, left_s: float | None) -> str:
    soon = f", about {duration(max(0.0, left_s))} left" if left_s is not None else ""
    return f"{place.done}/{place.total}{soon} | {place.label} repeat {place.repeat + 1}: {run}"


def ended(place: Position, record: Record) -> str:
    result = record.why or ("profile" if record.profile else "")
    if record.score:
        result = score_in_words(*record.score)
    where = f"[{place.done}/{place.total}] {place.label} repeat {place.repeat + 1}"
    log = f"; log: {record.log_path}" if record.log_path else ""
    return f"{where}: {record.outcome}, {duration(record.duration_s)}, {result}{log}"
