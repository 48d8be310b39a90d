"""Why not twice as fast? The missing time of each topology with its intervals, and its cause by name. Arithmetic: `attribution.py`.

A cause is named only where it is shown to be larger than the second, run by run, over at least three runs. A slow rank is a cause of
its own where mending it alone would bring back more than half: in the parts it is its own computing and the others' waiting.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from paceline.analysis.attribution import Cost, causes, cost, shares
from paceline.analysis.stats import interval
from paceline.records.findings import MIN_RUNS, CellFinding, Clarity, Interval, Missing, Scaling, Straggler
from paceline.records.limits import GROUPS, lateness
from paceline.records.record import Record
from paceline.records.split import PARTS
from paceline.records.study import CellRecord, StudyRecord

STRAGGLER = "a slow rank"
SMALL = 0.01  # parts of less than one point are summed up as the rest
Computing = Literal["threads", "strong", "weak"]


@dataclass(frozen=True, slots=True)
class _Pair:
    """A run of the baseline and one of the cell: what a training sample cost in each. Of the latter also how many samples it
    trained on, and the share of its time by which its straggler came late."""

    base: Cost
    cell: Cost
    samples: float
    lag: float

    @property
    def speedup(self) -> float:
        return sum(self.base.values()) / sum(self.cell.values())


@dataclass(frozen=True, slots=True)
class _Pairs:
    """`n` runs; paired by seed and block, or one pair of means where no plan paired them, which has no interval."""

    rows: Sequence[_Pair]
    n: int
    paired: bool

    def over(self, values: Sequence[float]) -> Interval:
        return interval(values) if self.paired else Interval(values[0], None, None, self.n, ())


def _mean(costs: Sequence[Cost]) -> Cost:
    names = dict.fromkeys(name for one in costs for name in one)
    return {name: statistics.fmean(one.get(name, 0.0) for one in costs) for name in names}


def _lag(record: Record, late: Sequence[Straggler]) -> float:
    named = {(rank.rank, rank.host) for rank in late}
    return max((rank.share for rank in lateness(record) if (rank.rank, rank.host) in named), default=0.0)


def _pairs(base: CellRecord, cell: CellRecord, late: Sequence[Straggler]) -> _Pairs:
    told: list[dict[int, tuple[Record, Cost]]] = [
        {repeat: (record, spent) for repeat, record in one.completed if (spent := cost(record))} for one in (base, cell)
    ]
    first, second = told
    if base.plan.keys and cell.plan.keys:
        rows = [
            _Pair(spent, second[repeat][1], second[repeat][0].samples or 0, _lag(second[repeat][0], late))
            for repeat, (record, spent) in first.items()
            if repeat in second and second[repeat][0].spec.get("seed") == record.spec.get("seed")
        ]
        return _Pairs(rows, len(rows), paired=True)
    if not first or not second:
        return _Pairs([], 0, paired=False)
    samples = statistics.fmean(record.samples or 0 for record, _ in second.values())
    pair = _Pair(_mean([c for _, c in first.values()]), _mean([c for _, c in second.values()]), samples, 0.0)
    return _Pairs([pair], min(len(first), len(second)), paired=False)


def _cause(rows: Sequence[Mapping[str, float]], lags: Sequence[float]) -> tuple[Clarity, str | None]:
    """All computing is one cause: a forward and a backward pass are slow for the same reasons."""
    if len(rows) < MIN_RUNS:
        return "too few runs", None
    halves = [sum(row.values()) / 2 for row in rows]
    if _above(lags, halves):
        return "slow ranks", STRAGGLER
    grouped = [causes(row) for row in rows]
    order = sorted(grouped[0], key=lambda name: -statistics.fmean(row[name] for row in grouped))
    first, *others = ([row[name] for row in grouped] for name in order)
    if not all(_above(first, other) for other in others):
        return "none", None
    return "mostly" if sum(first) >= sum(halves) else "above all", order[0]


def _above(first: Sequence[float], second: Sequence[float]) -> bool:
    low = interval([a - b for a, b in zip(first, second, strict=True)]).low
    return low is not None and low > 0


def _threads(base: CellRecord, cell: CellRecord) -> tuple[int, int] | None:
    """Of a rank of each, where they differ: then the cell has not got its times the machine."""
    first, second = (one.plan.spec.get("threads") for one in (base, cell))
    return (first, second) if first is not None and second is not None and first != second else None


def _computing(threads: tuple[int, int] | None, kind: Literal["strong", "weak", "mixed"]) -> Computing | None:
    """Why computing may take longer. Fewer threads are a reason of their own, and the first to look at."""
    return "threads" if threads else kind if kind != "mixed" else None


def _shown(share: Interval) -> bool:
    return (share.mean if share.low is None else share.low) > 0


def _row(
    base: CellRecord, cell: CellRecord, scaled: Scaling, growth: float, late: Sequence[Straggler]
) -> Missing | None:
    pairs = _pairs(base, cell, late)
    if not pairs.rows:
        return None
    told = [shares(pair.base, pair.cell, growth) for pair in pairs.rows]
    names = [name for name in PARTS if any(name in row for row in told)]
    rows = [{name: row.get(name, 0.0) for name in names} for row in told]
    parts = {name: pairs.over([row[name] for row in rows]) for name in names}

    def total(of: Sequence[str]) -> Interval:
        return pairs.over([sum(row[name] for name in of) for row in rows])

    missing_share = total(names)
    clarity, cause = "none", None
    if _shown(missing_share):
        clarity, cause = _cause(rows if pairs.paired else [], [pair.lag for pair in pairs.rows])
    compute = [name for name in names if name in GROUPS["compute"]]
    named = [name for name in compute if parts[name].mean >= SMALL]
    threads = _threads(base, cell)
    # A slow rank computes longer than its batch takes: that is no reason of the batch's.
    slower = total(compute).mean >= SMALL and _shown(total(compute)) and not late
    return Missing(
        label=scaled.label,
        baseline=scaled.baseline,
        ideal=growth,
        speedup=statistics.geometric_mean(pair.speedup for pair in pairs.rows),
        missing=missing_share,
        parts=parts,
        ideal_s=statistics.fmean(sum(pair.base.values()) / growth * pair.samples for pair in pairs.rows),
        paired=pairs.paired,
        rest=total([name for name in names if abs(parts[name].mean) < SMALL]),
        computing=total(named) if named else None,
        clarity=clarity,
        cause=cause,
        slower_computing=_computing(threads, scaled.kind) if slower else None,
        threads=threads,
        late=tuple(late),
        late_named="waiting" in parts and parts["waiting"].mean >= SMALL,
    )


def missing(study: StudyRecord, rows: Sequence[Scaling], cells: Sequence[CellFinding]) -> tuple[Missing, ...]:
    """One for each topology at least as large as its baseline; a smaller one is not asked why it is not faster."""
    records = {cell.plan.label: cell for cell in study.cells}
    late = {cell.label: cell.stragglers for cell in cells}
    made = [
        _row(records[row.baseline], records[row.label], row, row.ideal, late[row.label])
        for row in rows
        if row.label != row.baseline and row.ideal is not None and row.ideal >= 1
    ]
    return tuple(row for row in made if row is not None)
