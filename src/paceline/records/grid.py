"""What a study of two swept settings concludes of each by itself and of both together. Plain data; `analysis/grid.py` fills it."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.records.findings import Reason, Verdict


@dataclass(frozen=True, slots=True)
class Worth:
    """How much: of times and rates so many times as fast, of a score how far it moves. No interval below three repeats."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MainEffect:
    """One value of a setting against the baseline's, the mean over every value of the other setting."""

    metric: str
    of: str  # `name=value`
    against: str
    over: tuple[str, ...]
    worth: Worth
    n: int  # repeats
    p: float | None  # after false-discovery control over all effects and interactions
    verdict: Verdict
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """Whether what one setting is worth depends on the other: at two values of that other one, and the second over (or less) the first."""

    metric: str
    of: str
    against: str
    at: tuple[str, str]  # the baseline's value of the other setting first
    worth: tuple[Worth, Worth]
    apart: Worth
    n: int
    p: float | None
    shown: bool
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """`lacking`: cells without a figure in a repeat that all others have; where they leave nothing, nothing is computed."""

    settings: tuple[str, str]
    lacking: tuple[str, ...] = ()
    effects: tuple[MainEffect, ...] = ()
    interactions: tuple[Interaction, ...] = ()
