"""What analysis concludes and reports print: intervals, comparisons, verdicts. Plain data; every number arrives here computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["faster", "slower", "better", "worse", "higher", "lower", "no difference shown", "too few runs"]
ReportVerdict = Literal["confirmed", "refuted", "no difference shown", "too few runs", "not tested"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run: its dotted name in the record, how it is read, and how big a difference must be to matter."""

    name: str
    title: str
    unit: Literal["s", "samples/s", "bytes", "fraction", ""]
    better: Literal["higher", "lower"] | None
    kind: Literal["ratio", "difference"]
    size: float  # the practical size: a share for ratios and for `relative` differences, else in the metric's own unit
    relative: bool = False
    compared: bool = True
    main: bool = True  # shown in the table of cells; the others only in the table of all figures


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % t interval; `low` and `high` are None below two values. `spread` is the standard deviation."""

    mean: float
    low: float | None
    high: float | None
    n: int
    values: tuple[float, ...]
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class CellFinding:
    label: str
    settings: dict[str, Any]
    n: int
    outcome: str  # completed | failed | skipped | partial | pending
    metrics: dict[str, Interval]
    reasons: tuple[str, ...] = ()
    reference: dict[str, float] = field(default_factory=dict[str, float])
    planned: int = 0
    reached: int | None = None  # completed runs that reached the target; None where no target was set
    parts: dict[str, float] = field(default_factory=dict[str, float])  # mean seconds of each part of the wall time


@dataclass(frozen=True, slots=True)
class Comparison:
    """candidate against baseline: `ratio` for times and rates (log scale), `difference` for scores and losses."""

    metric: str
    baseline: str
    candidate: str
    kind: Literal["ratio", "difference"]
    value: float | None
    low: float | None
    high: float | None
    n: int
    p: float | None  # after false-discovery control over all comparisons of the study
    paired: bool
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True, slots=True)
class Scaling:
    """Speed-up and efficiency of one topology against the baseline; strong: same global batch, weak: it grows with the ranks."""

    label: str
    world_size: int
    kind: Literal["strong", "weak", "mixed"]
    speedup: float | None
    low: float | None
    high: float | None
    efficiency: float | None
    metric: str
    baseline: str = ""
    ideal: float | None = None
    n: int = 0


@dataclass(frozen=True, slots=True)
class Judged:
    """A report's conclusion beside our figures."""

    claim: str
    verdict: ReportVerdict
    why: str


@dataclass(frozen=True, slots=True)
class StudyFindings:
    name: str
    about: str
    task: str
    headline: str
    baseline: str
    quick: bool
    cells: tuple[CellFinding, ...]
    comparisons: tuple[Comparison, ...]
    scaling: tuple[Scaling, ...]
    judged: tuple[Judged, ...]
    notes: tuple[str, ...]
    hardware: str
    versions: str
    source: str = ""
    swept: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    code: str = ""  # the git state of the source
    method: str = ""  # how intervals and verdicts were made, in sentences
    target: float | None = None

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)
