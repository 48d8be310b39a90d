"""Why not twice as fast? The missing time of each topology with its intervals, and the sentence that answers. Arithmetic: `attribution.py`.

A cause is named only where it is shown to be larger than the second, run by run, over at least three runs. A slow rank is a cause of
its own where mending it alone would bring back more than half: in the parts it is its own computing and the others' waiting.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from paceline.analysis.attribution import Cost, causes, cost, points, shares
from paceline.analysis.compare import MIN_RUNS
from paceline.analysis.stats import interval
from paceline.records.findings import CellFinding, Interval, Missing, Scaling, Straggler
from paceline.records.limits import GROUPS, lateness
from paceline.records.record import Record
from paceline.records.split import PARTS
from paceline.records.study import CellRecord, StudyRecord

STRAGGLER = "a slow rank"
SMALL = 0.01  # parts of less than one point are summed up as the rest


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

    @property
    def runs(self) -> str:
        if not self.paired:
            return f"n = {self.n}, not paired: no interval"
        return f"n = {self.n}" if self.n > 1 else "n = 1: no interval"


def _mean(costs: Sequence[Cost]) -> Cost:
    names = dict.fromkeys(name for one in costs for name in one)
    return {name: statistics.fmean(one.get(name, 0.0) for one in costs) for name in names}


def _lag(record: Record, late: Sequence[Straggler]) -> float:
    named = {(rank.rank, rank.host) for rank in late}
    return max((rank.share for rank in lateness(record) if (rank.rank, rank.host) in named), default=0.0)


def _pairs(base: CellRecord, cell: CellRecord, late: Sequence[Straggler]) -> _Pairs:
    told: list[dict[int, tuple[Record, Cost]]] = [
        {repeat: (record, found) for repeat, record in one.completed if (found := cost(record))} for one in (base, cell)
    ]
    first, second = told
    if base.plan.keys and cell.plan.keys:
        rows = [
            _Pair(spent, second[repeat][1], second[repeat][0]["samples"], _lag(second[repeat][0], late))
            for repeat, (record, spent) in first.items()
            if repeat in second and second[repeat][0].spec.get("seed") == record.spec.get("seed")
        ]
        return _Pairs(rows, len(rows), paired=True)
    if not first or not second:
        return _Pairs([], 0, paired=False)
    samples = statistics.fmean(record["samples"] for record, _ in second.values())
    pair = _Pair(_mean([c for _, c in first.values()]), _mean([c for _, c in second.values()]), samples, 0.0)
    return _Pairs([pair], min(len(first), len(second)), paired=False)


def _answer(rows: Sequence[Mapping[str, float]], lags: Sequence[float], num_late: int) -> tuple[str, str | None]:
    """(answer, cause). All computing is one cause: a forward and a backward pass are slow for the same reasons."""
    if len(rows) < MIN_RUNS:
        return f"No single cause stands out (it takes {MIN_RUNS} paired runs to name one).", None
    halves = [sum(row.values()) / 2 for row in rows]
    if _above(lags, halves):
        return "Mostly one slow rank." if num_late == 1 else f"Mostly {num_late} slow ranks.", STRAGGLER
    grouped = [causes(row) for row in rows]
    order = sorted(grouped[0], key=lambda name: -statistics.fmean(row[name] for row in grouped))
    first, *others = ([row[name] for row in grouped] for name in order)
    if not all(_above(first, other) for other in others):
        return "No single cause stands out.", None
    most = "Mostly" if sum(first) >= sum(halves) else "Above all"
    return f"{most} {_name(order[0])}.", order[0]


def _above(first: Sequence[float], second: Sequence[float]) -> bool:
    low = interval([a - b for a, b in zip(first, second, strict=True)]).low
    return low is not None and low > 0


def _name(part: str) -> str:
    """`other` of the training time is not the record's `other`, which is of the wall time and is called unexplained."""
    return "time in no part" if part == "other" else part


def _listed(parts: Mapping[str, Interval], total: Callable[[Sequence[str]], Interval]) -> str:
    """What is missing, the largest first, computing in one with its parts behind it; then what was won back.

    `total` is the sum of some parts, with an interval of its own. Parts of less than a point are the rest.
    """
    large = [name for name, share in parts.items() if share.mean >= SMALL]
    computing = [name for name in large if name in GROUPS["compute"]]
    gone = [(_name(name), parts[name], "") for name in large if name not in computing]
    if computing:
        detail = ", ".join(f"{name} {round(parts[name].mean * 100)} %" for name in computing)
        several = len(computing) > 1
        gone.append(("compute" if several else computing[0], total(computing), f" ({detail})" if several else ""))
    gone.sort(key=lambda item: -item[1].mean)
    won = [(_name(name), _turned(share), "") for name, share in parts.items() if share.mean <= -SMALL]
    rest = total([name for name, share in parts.items() if abs(share.mean) < SMALL])
    if round(rest.mean * 100) > 0:
        gone.append(("the rest", rest, ""))
    elif round(rest.mean * 100) < 0:
        won.append(("the rest", _turned(rest), ""))
    text, back = (", ".join(f"{name} {points(s)}{detail}" for name, s, detail in items) for items in (gone, won))
    return f"{text}; won back: {back}" if back else text


def _turned(share: Interval) -> Interval:
    low, high = (None if value is None else -value for value in (share.high, share.low))
    return replace(share, mean=-share.mean, low=low, high=high)


def _why_compute(base: CellRecord, cell: CellRecord, kind: str) -> str:
    """Fewer threads are a reason of their own, and the first to look at: the cell then has not got its times the machine."""
    threads = [one.plan.spec.get("threads") for one in (base, cell)]
    if None not in threads and threads[0] != threads[1]:
        return f" A rank of {cell.plan.label} has threads={threads[1]} to compute with, one of {base.plan.label} {threads[0]}."
    if kind == "strong":
        return " Computing: a smaller batch a rank may not take proportionally less time, or the ranks are in each other's way."
    if kind == "weak":
        return f" Computing: a rank takes longer than in {base.plan.label} for a batch of the same size."
    return ""


def _sentences(row: Missing, runs: str, listed: str, more: str) -> str:
    fast = f"{row.label} trains {row.speedup:.2f}x as fast as {row.baseline}"
    if not _shown(row.missing):
        said = "nothing is missing" if row.missing.mean <= 0 else "nothing is shown to be missing"
        return f"{fast}, ideal {row.ideal:g}x: {said} ({points(row.missing)}, {runs})."
    gone = f"{points(row.missing)} of its time is missing: {listed} ({runs})."
    return f"{row.answer} {fast} instead of {row.ideal:g}x: {gone}{more}"


def _shown(missing: Interval) -> bool:
    """Whether something is missing at all, beyond chance where there is an interval."""
    return (missing.mean if missing.low is None else missing.low) > 0


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

    whole = total(names)
    answer, cause = "", None
    if _shown(whole):
        answer, cause = _answer(rows if pairs.paired else [], [pair.lag for pair in pairs.rows], len(late))
    row = Missing(
        scaled.label, scaled.baseline, growth, statistics.geometric_mean(pair.speedup for pair in pairs.rows), whole, parts, "",
        statistics.fmean(sum(pair.base.values()) / growth * pair.samples for pair in pairs.rows), answer, cause,
    )  # fmt: skip
    computing = total([name for name in names if name in GROUPS["compute"]])
    # A slow rank computes longer than its batch takes: that is no reason of the batch's.
    slow = computing.mean >= SMALL and _shown(computing) and not late
    more = _why_compute(base, cell, scaled.kind) if slow else ""
    if "waiting" in parts and parts["waiting"].mean >= SMALL:
        more += "".join(f" {rank.words[0].upper()}{rank.words[1:]}." for rank in late)
    return replace(row, words=_sentences(row, pairs.runs, _listed(parts, total), more))


def missing(study: StudyRecord, rows: Sequence[Scaling], found: Sequence[CellFinding]) -> tuple[Missing, ...]:
    """One for each topology at least as large as its baseline; a smaller one is not asked why it is not faster."""
    cells = {cell.plan.label: cell for cell in study.cells}
    late = {cell.label: cell.stragglers for cell in found}
    made = [
        _row(cells[row.baseline], cells[row.label], row, row.ideal, late[row.label])
        for row in rows
        if row.label != row.baseline and row.ideal is not None and row.ideal >= 1
    ]
    return tuple(row for row in made if row is not None)
