"""The times of a record, typed: the wall time and its parts, the steady state, and the figures of every epoch."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.records.section import Scores, Section

Parts = dict[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Time(Section):
    """Seconds of the critical rank, which trained longest. `parts` add up to `wall_s`, with the unexplained rest as `other`."""

    wall_s: float | None = None
    training_s: float | None = None
    parts: Parts | None = field(default_factory=dict[str, float | None])
    startup: dict[str, float] | None = field(default_factory=dict[str, float])
    hidden_s: float | None = None  # communication that ran while the rank computed: in no part
    critical_rank: int | None = None
    to_target_s: float | None = None  # only where a target was set; null where it was not reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady(Section):
    """Which steps the throughput is of; `steady` is false where there was no step beyond the warm-up."""

    steady: bool = True
    dropped_steps: int = 0
    rule: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRow(Section):
    """What all ranks together had at the end of an epoch, and how long after the start that was."""

    epoch: int
    iteration: int = 0
    lr: float | None = None
    train: Scores = field(default_factory=Scores)
    t_s: float | None = None
    test: Scores = field(default_factory=Scores)

    def scores(self, split: str) -> Scores:
        return self.train if split == "train" else self.test


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(Section):
    """Where `stop_at` ended a run before its planned length, and which of its kinds did: target or plateau."""

    by: str = ""
    iteration: int = 0
    epoch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Best(Section):
    """The evaluation with the best score, and its weights: those of the last one, or a file of their own beside them."""

    iteration: int
    epoch: int = 0
    score: str = ""
    value: float | None = None
    weights: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation(Section):
    """One of all evaluations of a run, in the middle of an epoch or at its end: after so many steps, so long after the start."""

    iteration: int
    epoch: int = 0
    t_s: float | None = None
    test: Scores = field(default_factory=Scores)
