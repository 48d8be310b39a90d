"""What the line on top of a report concludes, one class for every way a study can end. Named conclusions with their figures, no words."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.records.findings import CellFinding, Comparison, Interval, Metric, Missing, Payback


@dataclass(frozen=True, slots=True)
class NothingCompleted:
    outcomes: dict[str, int]  # how many cells ended in which way


@dataclass(frozen=True, slots=True)
class OneCell:
    """Only this one completed a run, or the study has no other."""

    cell: CellFinding
    others: int


@dataclass(frozen=True, slots=True)
class Choice:
    """A cell shown to be faster; `speedup` is over the baseline, `score` the comparison of their scores, where there is one."""

    speedup: Comparison
    score: Comparison | None

    @property
    def label(self) -> str:
        return self.speedup.candidate

    @property
    def worse(self) -> bool:
        return self.score is not None and self.score.verdict == "worse"


@dataclass(frozen=True, slots=True)
class Fastest:
    """`best` is the fastest. Where its score is worse, `safe` is the fastest whose score is not, if there is one."""

    metric: Metric
    best: Choice
    safe: Choice | None = None
    runner_up: str | None = None  # the second, where it is not shown to differ from the first


@dataclass(frozen=True, slots=True)
class NoFigure:
    """No cell but the baseline has the figure that decides."""

    metric: Metric


@dataclass(frozen=True, slots=True)
class TooFewRuns:
    n: int


@dataclass(frozen=True, slots=True)
class KeepBaseline:
    """`nearest` is the quickest of those shown to be slower."""

    metric: Metric
    nearest: Comparison
    num_slower: int
    num_others: int  # not shown to differ


@dataclass(frozen=True, slots=True)
class NoDifference:
    metric: Metric
    n: int


@dataclass(frozen=True, slots=True)
class RankedOnly:
    """The baseline has no such figure: the others can only be ranked. `first` is None where none has enough runs."""

    metric: Metric
    first: CellFinding | None = None
    runner_up: str | None = None


@dataclass(frozen=True, slots=True)
class ProfilesApart:
    """Profiles with no figure that all have."""

    num: int
    metrics: tuple[Metric, ...]


@dataclass(frozen=True, slots=True)
class OneProfile:
    label: str
    metric: Metric
    figure: Interval


@dataclass(frozen=True, slots=True)
class ProfilesDiffer:
    metric: Metric
    most: Comparison
    others: tuple[Comparison, ...]
    num_silent: int  # not shown to differ


Main = (
    NothingCompleted | OneCell | Fastest | NoFigure | TooFewRuns | KeepBaseline | NoDifference | RankedOnly | ProfilesApart
    | OneProfile | ProfilesDiffer
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scores:
    """What became of the task's score where the main conclusion, which is about speed, does not say it.

    `shown`: cells whose score is shown to differ from the baseline's, the furthest first. `ends`: the lowest and the highest cell,
    where no comparison could be made. With neither, no difference is shown.
    """

    metric: Metric
    n: int
    shown: tuple[Comparison, ...] = ()
    ends: tuple[CellFinding, CellFinding] | None = None


@dataclass(frozen=True, slots=True)
class Headline:
    """`silent` is the metric that should have decided and shows nothing; `missed` are cells of which not every run reached the target."""

    main: Main
    silent: Metric | None = None
    scores: Scores | None = None
    missed: tuple[CellFinding, ...] = ()
    target_missed: bool = False  # by every cell, so that training time decides
    slow: Missing | None = None  # the largest topology whose missing time has a cause
    paid_back: Payback | None = None  # the graph that is paid back soonest
