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

EPOCH_POINTS = 2000  # over all curves of one chart: about 70 KB of page
RANK_POINTS = 4000
RANK_CURVES = 160  # over all cells; a cell shows at most 16 ranks, evenly chosen
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


def ranks_shown(study: StudyRecord) -> int:
    """How many ranks of a cell a page has room for."""
    return max(2, min(MAX_RANKS, RANK_CURVES // max(1, len(study.cells))))


def epochs(study: StudyRecord, score: str | None) -> list[Row]:
    """One row a cell, repeat and split, with lists over its epochs: loss and score, and after how many seconds."""
    runs = [(cell, repeat, record) for cell in study.cells for repeat, record in cell.completed]
    keep = max(5, EPOCH_POINTS // max(1, 2 * len(runs)))
    rows: list[Row] = []
    for cell, repeat, record in runs:
        for split in ("train", "test"):
            points = thin([row for row in record.history if row.scores(split)], keep)
            if points:
                rows.append({
                    "cell": cell.plan.label, "repeat": repeat + 1, "split": split,
                    "epoch": [point.epoch + 1 for point in points],
                    "t": [short(point.t_s) for point in points],
                    "loss": [short(point.scores(split).get("loss")) for point in points],
                    "score": [short(point.scores(split).get(score or "")) for point in points],
                })  # fmt: skip
    return rows


@dataclass(frozen=True, slots=True)
class RankCurves:
    """Each rank's own training loss in one run of each cell; `note` says what was left out."""

    rows: list[Row]
    note: str


def _shown_run(cell: CellRecord) -> tuple[int, Record] | None:
    """The first completed run; failing that the first that started at all, for its curve may show why it failed."""
    return next(iter(cell.completed), None) or next((run for run in cell.failed if run[1].folder), None)


def _marks(record: Record) -> dict[int, list[Mark]]:
    marks: dict[int, list[Mark]] = {}
    for rank, event in record.events():
        if isinstance(event, Mark) and event.local.get("loss") is not None:
            marks.setdefault(rank, []).append(event)
    return marks


def _lines(study: StudyRecord) -> Iterator[tuple[str, int, int, list[Mark]]]:
    for cell in study.cells:
        if run := _shown_run(cell):
            marks = _marks(run[1])
            for rank in thin(sorted(marks), ranks_shown(study)):
                yield cell.plan.label, run[0], rank, marks[rank]


def ranks(study: StudyRecord) -> RankCurves:
    """One row a rank, with lists over its iterations: lists are a third of the bytes of a row a point."""
    lines = list(_lines(study))
    keep = max(20, RANK_POINTS // max(1, len(lines)))
    rows: list[Row] = []
    for label, repeat, rank, marks in lines:
        kept = thin(marks, keep)
        x, y = [mark.iteration for mark in kept], [short(mark.local["loss"]) for mark in kept]
        rows.append({"cell": label, "repeat": repeat + 1, "rank": rank, "x": x, "y": y})
    thinned = any(len(marks) > keep for *_, marks in lines)
    left = f" At most {keep} points a curve and {ranks_shown(study)} ranks; the export has all." if thinned else ""
    return RankCurves(rows, f"Each rank's own loss on its own share of the data, first run of the cell.{left}")
