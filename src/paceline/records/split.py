"""The wall time of a run in named parts, rank by rank, and the memory and cost beside it. Sums only, no opinion.

Each rank's parts add up to the wall time: its own clock from its first line to its last, the launch before it and the
leaving after it as the parent saw them; what is then left over is `other`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paceline.records.events import Finished, Started

if TYPE_CHECKING:  # every rank reads the names of the parts, and no record
    from paceline.records.measured import Memory

PARTS = (
    "startup", "compile", "data", "forward", "backward", "waiting", "transfer", "optimizer", "step", "evaluation", "checkpoint",
    "logging", "shutdown", "other",
)  # fmt: skip
# Those that lie inside training_s, so that they explain it.
TRAINING = (
    "compile",
    "data",
    "forward",
    "backward",
    "waiting",
    "transfer",
    "optimizer",
    "step",
    "evaluation",
    "logging",
)
COMPUTE = ("forward", "backward", "optimizer", "step")
# A part of the worker's own clock that ends as `waiting` and `transfer`, once all ranks have said when they arrived.
COMMUNICATION = "communication"
STARTUP = "startup:"  # the prefix of its sub-parts on the worker's clock


@dataclass(frozen=True, slots=True)
class Span:
    """The run as seen from outside: when its first process started, and how long until the last had ended."""

    started_t: float
    wall_s: float
    before: Mapping[str, float] = field(
        default_factory=dict[str, float]
    )  # of it, before the ranks: `plan`, `describe`, `probe`


def worked(clock: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """(parts, startup): a rank's clock with its start-up in one part, and that part's own parts.

    >>> worked({"startup:import": 2.0, "startup:data": 1.0, "forward": 3.0})
    ({'forward': 3.0, 'startup': 3.0}, {'import': 2.0, 'data': 1.0})
    """
    startup = {name.removeprefix(STARTUP): s for name, s in clock.items() if name.startswith(STARTUP)}
    parts = {name: s for name, s in clock.items() if not name.startswith(STARTUP)}
    return {**parts, "startup": sum(startup.values())}, startup


def rank_parts(started: Started, finished: Finished, span: Span) -> dict[str, float]:
    """One rank's share of the wall time in all its parts; they sum to `wall_s` with `other`."""
    parts = {name: value for name, value in finished.parts.items() if value is not None}
    # The process exists a moment before its first line, and ends a moment after its last.
    parts["startup"] = parts.get("startup", 0.0) + max(0.0, started.t - finished.ahead_s - span.started_t)
    parts["shutdown"] = max(0.0, span.started_t + span.wall_s - (finished.t - finished.ahead_s))
    parts["other"] = span.wall_s - sum(parts.values())
    return parts


def startup_parts(started: Started, finished: Finished, span: Span) -> dict[str, float]:
    """Where the start-up went. `launch` is what lies before a rank's first line: launcher, interpreter; `plan`, `describe` and
    `probe` come before it."""
    before = max(0.0, started.t - finished.ahead_s - span.started_t)
    return {**span.before, "launch": max(0.0, before - sum(span.before.values())), **finished.startup}


def all_parts(parts: Mapping[str, float]) -> dict[str, float | None]:
    """All names of the contract; a part the run could not tell apart, or did not have, is null."""
    return {name: parts.get(name) for name in PARTS}


def most_memory(rows: Sequence[Memory]) -> Memory | None:
    """Of the rank that needs most, with its own parts: they must go on adding up. That rank decides whether a machine is big enough."""
    return max(rows, key=lambda row: (row.peak_bytes or 0, row.rss_bytes or 0), default=None)
