"""All that analysis concludes of a study: its cells, comparisons and scaling, the headline, and what must stand beside the figures."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.records.findings import CellFinding, Comparison, Judged, Metric, Missing, Payback, Scaling
from paceline.records.grid import Grid
from paceline.records.headline import Headline
from paceline.records.origin import Fingerprint


@dataclass(frozen=True, slots=True)
class RunCounts:
    """What a reader must know of the completed runs together."""

    evaluated: frozenset[tuple[float | None, float | None]] = frozenset()  # test samples scored, of so many
    unsteady: int = 0  # runs whose throughput includes warm-up
    stopped: int = 0  # runs that stop_at ended before their planned length
    to_make: int = 0  # planned runs that are not refused and have no record


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFindings:
    name: str
    about: str
    task: str
    conclusion: Headline
    baseline: str
    quick: bool
    cells: tuple[CellFinding, ...]
    comparisons: tuple[Comparison, ...]
    scaling: tuple[Scaling, ...]
    judged: tuple[Judged, ...]
    counts: RunCounts
    fingerprints: tuple[Fingerprint, ...]  # of every run that left one
    score: Metric | None = None  # the task's own
    author_notes: tuple[str, ...] = ()
    warnings: tuple[tuple[str, str], ...] = ()  # kind and text, of any completed run
    loose: bool = False  # runs in a folder, that no study planned
    source: str = ""
    swept: tuple[str, ...] = ()
    metrics: tuple[Metric, ...] = ()
    target: float | None = None
    missing: tuple[Missing, ...] = ()  # studies that sweep `on` only
    payback: tuple[Payback, ...] = ()  # studies that sweep `graph` only
    tested: int = 0  # comparisons that a p-value was made for: one family
    changed: tuple[str, ...] = ()  # what the command line changed of the study's file
    scaled_down: bool = False
    grid: Grid | None = None  # full grids of two swept settings only

    def metric(self, name: str) -> Metric | None:
        return next((metric for metric in self.metrics if metric.name == name), None)
