"""What analysis concludes and reports print: intervals, comparisons, verdicts. Plain data; every number arrives here computed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

Verdict = Literal["faster", "slower", "better", "worse", "higher", "lower", "no difference shown", "too few runs"]
PaybackVerdict = Literal["paid back", "never", "not shown", "too few runs"]
ReportVerdict = Literal["confirmed", "refuted", "no difference shown", "too few runs", "not tested"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a run: its dotted name in the record, how it is read, and how big a difference must be to matter."""

    name: str
    title: str
    unit: Literal["s", "samples/s", "bytes", "fraction", "J", ""]
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
class Straggler:
    """A rank that came late in most runs of a cell."""

    rank: int
    host: str
    last: Interval  # share of the collectives in which it came last
    lag_s: Interval  # seconds a step that it came after the mean of the others
    runs: int  # in how many of the cell's runs the rule holds
    words: str


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
    # Of the training time, with `other`: the mean over ranks and runs, in seconds; empty where a run has not told its parts.
    training_parts: dict[str, float] = field(default_factory=dict[str, float])
    training_shares: dict[str, float] = field(
        default_factory=dict[str, float]
    )  # the same in groups, of the training time
    hidden_s: float | None = None  # communication that ran while ranks computed: in no part
    unexplained: float | None = None  # `other` of the wall time, as a share of it
    bound: str | None = None  # input-bound | compute-bound | waiting for a rank | bound by transfer
    bound_share: Interval | None = None  # of the training steps' time
    stragglers: tuple[Straggler, ...] = ()


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
class Missing:
    """Why a topology is not as fast as its number of processes: the share of its training time that an ideal one would not need.

    `parts` add up to `missing`; a part below zero was won back. `cause` is None where no single one stands out.
    """

    label: str
    baseline: str
    ideal: float
    speedup: float
    missing: Interval
    parts: dict[str, Interval]
    words: str
    ideal_s: float  # the training time it would have had
    answer: str = ""
    cause: str | None = None


@dataclass(frozen=True, slots=True)
class Payback:
    """A graph's cost beside what its steps save. `steps`: after so many it is paid back; None where a step is not quicker, or that
    is not shown. Of too few runs it is the number they give, which is no claim."""

    label: str
    baseline: str
    compile_s: Interval
    step_s: Interval
    eager_step_s: Interval
    saved_s: Interval
    verdict: PaybackVerdict
    steps: Interval | None
    made_steps: float  # steps of these runs, on average
    counts: dict[str, float]  # graphs, breaks, recompiles, eager_steps: means over runs
    reasons: tuple[str, ...]
    words: str

    def said(self, words: str) -> Payback:
        return replace(self, words=words)


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
    missing: tuple[Missing, ...] = ()  # studies that sweep `on` only
    payback: tuple[Payback, ...] = ()  # studies that sweep `graph` only

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)
