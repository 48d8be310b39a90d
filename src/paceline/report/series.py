"""Curves for the charts: raw events thinned until the page stays small. It leaves points out; it averages and invents none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from paceline.records.events import Mark
from paceline.records.record import Record
from paceline.records.study import CellRecord, StudyRecord

Row = dict[str, Any]
Item = TypeVar("Item")

EPOCH_POINTS = 3000  # over all curves of one chart: about 100 KB of page
RANK_POINTS = 6000
MAX_RANKS = 16


def thin(items: Sequence[Item], keep: int) -> list[Item]:
    """At most `keep` of them, evenly spaced, first and last among them.

    >>> thin(range(10), 4)
    [0, 3, 6, 9]
    """
    if len(items) <= keep or keep < 2:
        return list(items)
    return [items[round(i * (len(items) - 1) / (keep - 1))] for i in range(keep)]


def short(value: float | None) -> float | None:
    """Five digits: more cannot be seen, and they are most of the page."""
    return None if value is None else float(f"{value:.5g}")


def _history(record: Record) -> list[Row]:
    return record.plain.get("history") or []


def epochs(study: StudyRecord, score: str | None) -> list[Row]:
    """One row an epoch, split, repeat and cell: where training stood, and after how many seconds."""
    runs = [(cell, repeat, record) for cell in study.cells for repeat, record in cell.completed]
    keep = max(5, EPOCH_POINTS // max(1, 2 * len(runs)))
    rows: list[Row] = []
    for cell, repeat, record in runs:
        for point in thin(_history(record), keep):
            for split in ("train", "test"):
                if figures := point.get(split):
                    row = {"cell": cell.plan.label, "repeat": repeat + 1, "split": split, "epoch": point["epoch"] + 1}
                    row |= {"t": short(point.get("t_s")), "loss": short(figures.get("loss"))}
                    rows.append(row | ({"score": short(figures.get(score))} if score else {}))
    return rows


@dataclass(frozen=True, slots=True)
class RankCurves:
    """Each rank's own training loss in one run of each cell; `note` says what was left out."""

    rows: list[Row]
    note: str


def _shown_run(cell: CellRecord) -> tuple[int, Record] | None:
    """The first completed run; failing that the first that started at all, for its curve may show why it failed."""
    return next(iter(cell.completed), None) or next((run for run in cell.failed if run[1].plain.get("run_dir")), None)


def _marks(record: Record) -> dict[int, list[Mark]]:
    found: dict[int, list[Mark]] = {}
    for rank, event in record.events():
        if isinstance(event, Mark) and event.local.get("loss") is not None:
            found.setdefault(rank, []).append(event)
    return found


def _lines(study: StudyRecord) -> Iterator[tuple[str, int, int, list[Mark]]]:
    for cell in study.cells:
        if run := _shown_run(cell):
            marks = _marks(run[1])
            for rank in thin(sorted(marks), MAX_RANKS):
                yield cell.plan.label, run[0], rank, marks[rank]


def ranks(study: StudyRecord) -> RankCurves:
    """Lists of x and y rather than a row a point: a third of the bytes."""
    lines = list(_lines(study))
    keep = max(20, RANK_POINTS // max(1, len(lines)))
    rows: list[Row] = []
    for label, repeat, rank, marks in lines:
        kept = thin(marks, keep)
        x, y = [mark.iteration for mark in kept], [short(mark.local["loss"]) for mark in kept]
        rows.append({"cell": label, "repeat": repeat + 1, "rank": rank, "x": x, "y": y})
    thinned = any(len(marks) > keep for *_, marks in lines)
    left = f" Thinned to {keep} points a curve; the export has every sample." if thinned else ""
    return RankCurves(rows, f"Each rank's own loss on its own share of the data, first run of the cell.{left}")
