"""Findings with their sentences: the same classes as in `records/findings.py`, and what is said of each. What every format prints."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.records.findings import CellFinding, Comparison, Judged, Missing, Payback, Straggler
from paceline.records.grid import Grid, Interaction, MainEffect
from paceline.records.study_findings import StudyFindings


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenStraggler(Straggler):
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenCell(CellFinding):
    stragglers: tuple[SpokenStraggler, ...] = ()
    bound: str | None = None  # what holds its training steps back
    reasons: tuple[str, ...] = ()  # of runs that did not complete


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenComparison(Comparison):
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenJudged(Judged):
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenMissing(Missing):
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenPayback(Payback):
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenEffect(MainEffect):
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenInteraction(Interaction):
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenGrid(Grid):
    effects: tuple[SpokenEffect, ...] = ()
    interactions: tuple[SpokenInteraction, ...] = ()
    gap: str = ""  # what cells without figures leave out


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenStudy(StudyFindings):
    cells: tuple[SpokenCell, ...]
    comparisons: tuple[SpokenComparison, ...]
    judged: tuple[SpokenJudged, ...]
    missing: tuple[SpokenMissing, ...] = ()
    payback: tuple[SpokenPayback, ...] = ()
    grid: SpokenGrid | None = None
    headline: str
    notes: tuple[str, ...]
    hardware: str
    versions: str
    code: str  # the git state of the source
    method: str  # how intervals and verdicts were made
