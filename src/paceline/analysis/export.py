"""Every sample of a study as flat rows, one number each, for other tools. Nothing is averaged, nothing left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paceline.records.events import Applied, Broke, Epoch, Event, Finished, Mark, Started, Warned
from paceline.records.record import Record
from paceline.records.study import StudyRecord

# Every row has every column, so that a table has one shape whatever its first event was.
COLUMNS = (
    "study", "cell", "repeat", "seed", "outcome", "rank", "host", "event", "split", "scope", "epoch", "iteration", "t",
    "metric", "value", "n", "warmup", "text",
)  # fmt: skip


def _numbers(values: Mapping[str, Any], **common: Any) -> Iterator[dict[str, Any]]:
    for name, value in values.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield {**common, "metric": name, "value": float(value)}


def _event_rows(event: Event) -> Iterator[dict[str, Any]]:
    match event:
        case Started():
            yield {"metric": "pid", "value": float(event.pid)}
        case Applied():
            for name, value in event.values.items():
                yield {"metric": name, "text": str(value)}
        case Mark():
            where = {"split": "train", "epoch": event.epoch, "iteration": event.iteration, "warmup": event.warmup}
            yield from _numbers(event.local, scope="rank", n=event.num_local, **where)
            yield {**where, "scope": "rank", "metric": "seconds", "value": event.seconds, "n": event.num_global}
        case Epoch():
            where = {"split": event.split, "epoch": event.epoch, "iteration": event.iteration}
            yield from _numbers(event.local, scope="rank", n=event.num_local, **where)
            yield from _numbers(event.total, scope="all", n=event.num_total, **where)
            yield {**where, "scope": "all", "metric": "lr", "value": event.lr}
        case Finished():
            yield from _numbers({f"time.{part}_s": value for part, value in event.parts.items()}, scope="rank")
            yield from _numbers({f"memory.{name}": value for name, value in event.memory.items()}, scope="rank")
            yield {"scope": "rank", "metric": "time.training_s", "value": event.training_s}
        case Warned():
            yield {"metric": event.kind, "text": event.text}
        case Broke():
            yield {"metric": event.kind, "text": event.why}


def _run_rows(record: Record) -> Iterator[dict[str, Any]]:
    hosts = {rank.rank: rank.host for rank in record.ranks}
    for rank, event in record.events():
        common = {"rank": rank, "host": hosts.get(rank), "event": type(event).__name__.lower(), "t": event.t}
        for row in _event_rows(event):
            yield {**common, **row}


def samples(study: StudyRecord) -> Iterator[dict[str, Any]]:
    """One row for each number each rank of each run wrote; runs that a rule refused wrote none."""
    empty = dict.fromkeys(COLUMNS)
    for cell in study.cells:
        for repeat, record in cell.records:
            if record.folder is None:
                continue
            common = {
                "study": study.plan.name,
                "cell": cell.plan.label,
                "repeat": repeat,
                "seed": record.spec.get("seed"),
                "outcome": record.outcome,
            }
            for row in _run_rows(record):
                yield {**empty, **common, **row}
