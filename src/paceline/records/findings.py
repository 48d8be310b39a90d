"""What analysis concludes and reports print: intervals, comparisons, verdicts. Plain data; every number arrives here computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Verdict = Literal["faster", "slower", "better", "worse", "higher", "lower", "no difference shown", "too few runs"]
ReportVerdict = Literal["confirmed", "refuted", "no difference shown", "too few runs", "not tested"]


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
