"""Why not twice as fast? The missing time of each topology with its intervals, and the sentence that answers. Arithmetic: `attribution.py`.

A cause is named only where it is shown to be larger than the second, run by run, over at least three runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from paceline.analysis.attribution import Cost, causes, cost, points, shares
from paceline.analysis.compare import MIN_RUNS
from paceline.analysis.stats import interval
from paceline.records.findings import CellFinding, Interval, Missing, Scaling
from paceline.records.limits import GROUPS
from paceline.records.record import Record
from paceline.records.split import PARTS
from paceline.records.study import CellRecord, StudyRecord

SMALL = 0.01  # parts of less than one point are summed up as the rest


@dataclass(frozen=True, slots=True)
class _Pair:
    """What a training sample cost in a run of the baseline and in one of the cell, and how many the latter trained on."""

    base: Cost
    cell: Cost
    samples: float

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

    @property
    def runs(self) -> str:
        if not self.paired:
            return f"n = {self.n}, not paired: no interval"
        return f"n = {self.n}" if self.n > 1 else "n = 1: no interval"


def _mean(costs: Sequence[Cost]) -> Cost:
    names = dict.fromkeys(name for one in costs for name in one)
    return {name: statistics.fmean(one.get(name, 0.0) for one in costs) for name in names}


def _pairs(base: CellRecord, cell: CellRecord) -> _Pairs:
    told: list[dict[int, tuple[Record, Cost]]] = [
        {repeat: (record, found) for repeat, record in one.completed if (found := cost(record))} for one in (base, cell)
    ]
    first, second = told
    if base.plan.keys and cell.plan.keys:
        rows = [
            _Pair(spent, second[repeat][1], second[repeat][0]["samples"])
            for repeat, (record, spent) in first.items()
            if repeat in second and second[repeat][0].spec.get("seed") == record.spec.get("seed")
        ]
        return _Pairs(rows, len(rows), paired=True)
    if not first or not second:
        return _Pairs([], 0, paired=False)
    samples = statistics.fmean(record["samples"] for record, _ in second.values())
    pair = _Pair(_mean([c for _, c in first.values()]), _mean([c for _, c in second.values()]), samples)
    return _Pairs([pair], min(len(first), len(second)), paired=False)


def _answer(rows: Sequence[Mapping[str, float]]) -> tuple[str, str | None]:
    """(answer, cause). All computing is one cause: a forward and a backward pass are slow for the same reasons."""
    if len(rows) < MIN_RUNS:
        return f"No single cause stands out (n = {len(rows)}; it takes {MIN_RUNS} paired runs to name one).", None
    grouped = [causes(row) for row in rows]
    order = sorted(grouped[0], key=lambda name: -statistics.fmean(row[name] for row in grouped))
    first, second = order[0], order[1] if len(order) > 1 else None
    ahead = interval([row[first] - (row[second] if second else 0.0) for row in grouped])
    if ahead.low is None or ahead.low <= 0:
        return "No single cause stands out.", None
    half = sum(sum(row.values()) for row in rows) / 2
    most = "Mostly" if sum(row[first] for row in grouped) >= half else "Above all"
    return f"{most} {_name(first)}.", first


def _name(part: str) -> str:
    return "unexplained" if part == "other" else part


def _listed(parts: Mapping[str, Interval], rest: Interval) -> str:
    """The parts of at least a point, the largest first; then what was won back."""
    large = sorted((name for name, share in parts.items() if share.mean >= SMALL), key=lambda name: -parts[name].mean)
    back = sorted((name for name, share in parts.items() if share.mean <= -SMALL), key=lambda name: parts[name].mean)
    named = [f"{_name(name)} {points(parts[name])}" for name in large]
    if round(rest.mean * 100):
        named.append(f"the rest {points(rest)}")
    won = [f"{_name(name)} {points(_turned(parts[name]))}" for name in back]
    return ", ".join(named) + (f"; won back: {', '.join(won)}" if won else "")


def _turned(share: Interval) -> Interval:
    low, high = (None if value is None else -value for value in (share.high, share.low))
    return replace(share, mean=-share.mean, low=low, high=high)


def _why_compute(base: CellRecord, cell: CellRecord, kind: str) -> str:
    """Fewer threads are a reason of their own, and the first to look at: the cell then has not got its times the machine."""
    threads = [one.plan.spec.get("threads") for one in (base, cell)]
    if None not in threads and threads[0] != threads[1]:
        return f" A rank of {cell.plan.label} has threads={threads[1]} to compute with, one of {base.plan.label} {threads[0]}."
    if kind == "strong":
        return " Computing: a smaller batch a rank does not take proportionally less time."
    if kind == "weak":
        return f" Computing: a rank takes longer than in {base.plan.label} for a batch of the same size."
    return ""


def _sentences(row: Missing, pairs: _Pairs, rest: Interval, more: str) -> str:
    fast = f"{row.label} trains {row.speedup:.2f}x as fast as {row.baseline}"
    if not _shown(row.missing):
        said = "nothing is missing" if row.missing.mean <= 0 else "nothing is shown to be missing"
        return f"{fast}, ideal {row.ideal:g}x: {said} ({points(row.missing)}, {pairs.runs})."
    parts = _listed(row.parts, rest)
    gone = f"{points(row.missing)} of its time is missing: {parts} ({pairs.runs})."
    return f"{row.answer} {fast} instead of {row.ideal:g}x: {gone}{more}"


def _shown(missing: Interval) -> bool:
    """Whether something is missing at all, beyond chance where there is an interval."""
    return (missing.mean if missing.low is None else missing.low) > 0


def _row(base: CellRecord, cell: CellRecord, scaled: Scaling, growth: float, late: str) -> Missing | None:
    pairs = _pairs(base, cell)
    if not pairs.rows:
        return None
    told = [shares(pair.base, pair.cell, growth) for pair in pairs.rows]
    names = [name for name in PARTS if any(name in row for row in told)]
    rows = [{name: row.get(name, 0.0) for name in names} for row in told]
    parts = {name: pairs.over([row[name] for row in rows]) for name in names}
    small = [name for name in names if abs(parts[name].mean) < SMALL]
    rest = pairs.over([sum(row[name] for name in small) for row in rows])
    whole = pairs.over([sum(row.values()) for row in rows])
    answer, cause = _answer(rows if pairs.paired else []) if _shown(whole) else ("", None)
    row = Missing(
        scaled.label, scaled.baseline, growth, statistics.geometric_mean(pair.speedup for pair in pairs.rows), whole, parts, "",
        statistics.fmean(sum(pair.base.values()) / growth * pair.samples for pair in pairs.rows), answer, cause,
    )  # fmt: skip
    slow = sum(parts[name].mean for name in GROUPS["compute"] if name in parts) >= SMALL
    more = _why_compute(base, cell, scaled.kind) if slow else ""
    if late and parts.get("waiting", rest).mean >= SMALL:
        more += late
    return replace(row, words=_sentences(row, pairs, rest, more))


def missing(study: StudyRecord, rows: Sequence[Scaling], found: Sequence[CellFinding]) -> tuple[Missing, ...]:
    """One for each topology at least as large as its baseline; a smaller one is not asked why it is not faster."""
    cells = {cell.plan.label: cell for cell in study.cells}
    late = {
        cell.label: "".join(f" {rank.words[0].upper()}{rank.words[1:]}." for rank in cell.stragglers) for cell in found
    }
    made = [
        _row(cells[row.baseline], cells[row.label], row, row.ideal, late[row.label])
        for row in rows
        if row.label != row.baseline and row.ideal is not None and row.ideal >= 1
    ]
    return tuple(row for row in made if row is not None)
