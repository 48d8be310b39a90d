"""Where training time went, over the runs of a cell, and how much of it scaling should have removed and did not. Figures, no sentences.

Missing time, a training sample at a time: a cell with s times the processes would ideally need the baseline's seconds / s. What it
needs beyond that, as a share of what it needs, is missing; it is 1 - efficiency. The same difference part by part adds up to it.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence

from paceline.analysis.stats import interval, positive_interval
from paceline.records.findings import Interval, Straggler
from paceline.records.limits import GROUPS, Group, bound, lateness, mean_parts, step_shares, stragglers, training_parts
from paceline.records.record import Record
from paceline.records.split import PARTS

__all__ = [
    "bound", "causes", "cell_bound", "cell_stragglers", "cost", "mean_parts", "shares", "stragglers", "training_means",
]  # fmt: skip

Cost = Mapping[str, float]  # part -> seconds a training sample


def training_means(records: Sequence[Record]) -> dict[str, float]:
    """Seconds by part of the training time, with `other`: the mean over ranks, then over runs. Empty where a run has not told."""
    rows = [training_parts(record) for record in records]
    if not rows or not all(rows):
        return {}
    names = [name for name in PARTS if any(name in row for row in rows)]
    return {name: statistics.fmean(row.get(name, 0.0) for row in rows) for name in names}


def causes(parts: Mapping[str, float]) -> dict[str, float]:
    """Parts in groups: all computing is one cause, in however many parts it is told.

    >>> causes({"data": 1.0, "forward": 2.0, "backward": 3.0, "other": 0.5})
    {'data': 1.0, 'compute': 5.0, 'other': 0.5}
    """
    named: dict[str, list[float]] = {
        group: [parts[name] for name in names if name in parts] for group, names in GROUPS.items()
    }
    grouped = {name for names in GROUPS.values() for name in names}
    alone = {name: value for name, value in parts.items() if name not in grouped}
    return {**{group: sum(values) for group, values in named.items() if values}, **alone}


def cell_bound(records: Sequence[Record]) -> tuple[Group, Interval] | None:
    """(group, its share of the training steps' time), where the same group is the largest in most runs."""
    rows = [step_shares(record) for record in records]
    count: Counter[Group] = Counter(largest.group for record in records if (largest := bound(record)) is not None)
    for group, num in count.most_common(1):
        if 2 * num > len(records) and all(rows):
            return group, interval([row[group] for row in rows])
    return None


def cell_stragglers(records: Sequence[Record]) -> tuple[Straggler, ...]:
    """Ranks, by number and host, that straggle in most runs; their figures are over all runs they were in, not only over those."""
    ranks = [rank for record in records for rank in lateness(record)]
    late: list[Straggler] = []
    for key, runs in Counter((rank.rank, rank.host) for rank in ranks if rank.straggler).items():
        if 2 * runs > len(records):
            own = [rank for rank in ranks if (rank.rank, rank.host) == key]
            last, lag = interval([rank.last for rank in own]), positive_interval([rank.step_s for rank in own])
            late.append(Straggler(*key, last, lag, runs, len(records), own[0].of))
    return tuple(late)


def cost(record: Record) -> Cost | None:
    """None where the run has not told its parts, or not how many samples it trained on."""
    parts, samples = training_parts(record), record.samples
    if not parts or not samples or (record.training_s or 0.0) <= 0:
        return None
    return {name: seconds / samples for name, seconds in parts.items()}


def shares(base: Cost, cell: Cost, growth: float) -> dict[str, float]:
    """What each part adds to the missing share of the cell's time. Below zero: the cell needs less than its ideal there.

    >>> shares({"forward": 2.0}, {"forward": 1.0, "transfer": 1.0}, 2)
    {'forward': 0.0, 'transfer': 0.5}
    """
    total = sum(cell.values())
    names = [name for name in PARTS if name in base or name in cell]
    return {name: (cell.get(name, 0.0) - base.get(name, 0.0) / growth) / total for name in names}
