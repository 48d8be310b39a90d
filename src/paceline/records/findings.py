"""What analysis concludes: intervals, comparisons, verdicts, reasons by name. Plain data without a sentence: `report/words/` speaks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from paceline.records.applied import NumberFormats
from paceline.records.limits import Group

# A verdict needs so many runs to compare, and a p below this after false-discovery control over the study.
MIN_RUNS = 3
ALPHA = 0.05

Verdict = Literal["faster", "slower", "better", "worse", "higher", "lower", "no difference shown", "too few runs"]
# Why a comparison ended as it did: too few runs; p not below 0.05; below it, but not once all comparisons are counted; a difference
# smaller than the practical size; beyond both.
Reason = Literal["too few runs", "chance", "chance among many", "small", "shown"]
CellOutcome = Literal["completed", "failed", "skipped", "partial", "pending"]
PaybackVerdict = Literal["paid back", "never", "not shown", "too few runs"]
ReportVerdict = Literal[
    "confirmed", "refuted", "no difference shown", "not decided", "too few runs", "not tested", "not tested here"
]
# What a judgement stands on: a comparison, or why there is none.
Basis = Literal[
    "compared", "within the practical size", "beyond the interval", "beyond its size", "both sides of its size", "quick study",
    "no such cell", "no completed run", "failed", "refused", "no such figure", "other hardware",
]  # fmt: skip
# How clear a cause is: it takes more runs to name one; no cause is above every other; slow ranks; at least half of what is missing; less.
Clarity = Literal["too few runs", "none", "slow ranks", "mostly", "above all"]


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
    floor: float = (
        0.0  # in its own unit: a difference below it is noise of the measurement, however small the figure itself is
    )
    compared: bool = True
    main: bool = True  # shown in the table of cells; the others only in the table of all figures


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % t interval; `low` and `high` are None below two values. `std` is the standard deviation."""

    mean: float
    low: float | None
    high: float | None
    n: int
    values: tuple[float, ...]
    std: float | None = None


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank that came late in most runs of a cell."""

    rank: int
    host: str
    last: Interval  # share of the collectives in which it came last
    lag_s: Interval  # seconds a step that it came after the mean of the others
    runs: int  # in how many of the cell's runs the rule holds
    num_runs: int
    of: Literal["steps", "collectives"]  # what it came last in


@dataclass(frozen=True, slots=True)
class FailedLog:
    """Of one failed run, the file that says more."""

    repeat: int
    path: str


@dataclass(frozen=True, slots=True)
class FailedRuns:
    """Runs of a cell that ended for the same reason."""

    kind: str | None
    why: str | None
    num: int
    logs: tuple[FailedLog, ...] = ()


@dataclass(frozen=True, slots=True)
class CellFinding:
    label: str
    settings: dict[str, Any]
    n: int
    outcome: CellOutcome
    metrics: dict[str, Interval]
    skipped: str | None = None  # why a rule refused the cell
    failures: tuple[FailedRuns, ...] = ()
    reference: dict[str, float] = field(default_factory=dict[str, float])
    planned: int = 0
    to_make: int = 0  # planned runs without a record
    reached: int | None = None  # completed runs that reached the target; None where no target was set
    parts: dict[str, float] = field(default_factory=dict[str, float])  # mean seconds of each part of the wall time
    # Of the training time, with `other`: the mean over ranks and runs, in seconds; empty where a run has not told its parts.
    training_parts: dict[str, float] = field(default_factory=dict[str, float])
    training_shares: dict[str, float] = field(
        default_factory=dict[str, float]
    )  # the same in groups, of the training time
    hidden_s: float | None = None  # communication that ran while ranks computed: in no part
    unexplained: float | None = None  # `other` of the wall time, as a share of it
    bound_by: Group | None = None  # the largest group of a training step in most runs
    bound_share: Interval | None = None  # of the training steps' time
    stragglers: tuple[Straggler, ...] = ()
    formats: tuple[NumberFormats, ...] = ()  # as read back, each once
    left_out: tuple[int, int] = (0, 0)  # updates that fp16 left out, of so many, over all runs


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
    reason: Reason
    size: float = 0.0  # the practical size on the scale of the comparison: of logarithms for a ratio
    # Of a claim alone: the baseline's metric where it is another one, and what the baseline was multiplied by.
    against: str = ""
    factor: float = 1.0


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
    ideal_s: float  # the training time it would have had
    paired: bool  # by seed and block; else there is no interval
    rest: Interval  # parts too small to be named, together
    computing: Interval | None = None  # the named parts of computing, together
    clarity: Clarity = "none"
    cause: str | None = None
    slower_computing: Literal["threads", "strong", "weak"] | None = (
        None  # fewer threads, a smaller batch, the same batch
    )
    threads: tuple[int, int] | None = None  # of a rank: baseline's, this one's
    late: tuple[Straggler, ...] = ()  # ranks that the others wait for: all of them
    late_named: bool = False  # whether that waiting is a part worth naming

    @property
    def shown(self) -> bool:
        """Whether something is missing at all, beyond chance where there is an interval."""
        return (self.missing.mean if self.missing.low is None else self.missing.low) > 0


@dataclass(frozen=True, slots=True)
class Payback:
    """A graph's cost beside what its steps save.

    `steps`: after so many it is paid back. None where a step is not quicker, or is not shown to be. Where there are too few runs for a
    verdict, it is the number they give, and no claim.
    """

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


@dataclass(frozen=True, slots=True)
class Past:
    """The report's own effect, and how far its figures for one and the same configuration lie apart."""

    metric: str
    kind: Literal["ratio", "difference"]
    effect: float  # candidate / baseline, or candidate - baseline
    of: str = ""  # another report than the claim's; empty: its own
    what: str = ""  # the configuration it measured several times
    values: tuple[float, ...] = ()
    spread: float | None = None  # largest / smallest, or largest - smallest
    smaller: bool = False  # the effect is smaller than the spread


@dataclass(frozen=True, slots=True)
class Judged:
    """A report's conclusion beside our figures."""

    claim: str
    verdict: ReportVerdict
    basis: Basis
    metric: str
    comparison: Comparison | None = None
    cell: str = ""  # the one that lacks what could be compared
    says: Literal["lower", "higher", "equal"] = "equal"
    report: str | None = None  # whose claim it is; None: our own
    note: str = ""
    size: float | None = None  # how far from the same it had to lie, where the claim says so itself
    lacking: tuple[str, ...] = ()  # hardware the claim speaks of, and these runs did not have
    equal_work: Comparison | None = None
    past: Past | None = None
