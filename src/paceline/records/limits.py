"""What held one run back, by stated rules: the largest group of its training time, and the ranks that the others waited for.

Arithmetic over one record; what holds over several runs is said in `analysis/attribution.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from paceline.records.record import Record
from paceline.records.split import COMPUTE, TRAINING

Group = Literal["data", "compute", "waiting", "transfer"]
# The parts of a training step by what would have to change for them to shrink. Evaluation and logging are no part of a step.
GROUPS: Mapping[Group, tuple[str, ...]] = {
    "data": ("data",),
    "compute": (*COMPUTE, "compile"),
    "waiting": ("waiting",),
    "transfer": ("transfer",),
}
_BETWEEN_STEPS = ("evaluation", "logging")
# A rank as quick as the others comes after their mean in half of the collectives, and its early arrivals make up for the late ones.
# A straggler comes after it in most of them (one hiccup makes none). Not in nearly all: where a step has two collectives, a rank
# that is slow before one of them comes late to the other only by chance, which makes three of four.
BEHIND_SHARE = 2 / 3
# A rank may always be late by a hair. Below 5 % of the training time there is little to win by mending it.
LAG_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Lateness:
    """One rank of a run: in which share of the collectives it came last, and how long after the others it came, in a step."""

    rank: int
    host: str
    last: float
    of: Literal["steps", "collectives"]  # what it came last in: collectives where a step has several
    step_s: float
    share: float  # the same, of the training time
    straggler: bool


@dataclass(frozen=True, slots=True)
class Bound:
    """The largest group of a training step, and its share of the steps' time."""

    group: Group
    share: float


def mean_parts(record: Record) -> dict[str, float]:
    """Seconds of the parts of training, the mean over all ranks; empty where not every rank has told its own.

    In a synchronous run all ranks take the same time; one rank's slowness is its own compute and the others' waiting. The mean
    says what the ranks together spent their time on.
    """
    rows = [rank.time or {} for rank in record.ranks]
    if record.training_s is None or not rows or not all(rows):
        return {}
    told = [name for name in TRAINING if any(row.get(name) is not None for row in rows)]
    return {name: statistics.fmean(row.get(name) or 0.0 for row in rows) for name in told}


def mean_hidden(record: Record) -> float | None:
    """Seconds of communication that ran while ranks computed, the mean over ranks; None where no rank has told. In no part."""
    told = [rank.hidden_s for rank in record.ranks if rank.hidden_s is not None]
    return statistics.fmean(told) if told and record.time else None


def training_parts(record: Record) -> dict[str, float]:
    """The same with `other`, what the parts leave of the training time, so that they add up to it."""
    parts = mean_parts(record)
    return {**parts, "other": (record.training_s or 0.0) - sum(parts.values())} if parts else {}


def step_shares(record: Record) -> dict[Group, float]:
    """Each group's share of the training time without evaluation and logging; empty where a group was not told apart."""
    parts = mean_parts(record)
    alone = len(record.ranks) == 1  # nobody to wait for: absent is zero
    told = {group for group, names in GROUPS.items() if any(name in parts for name in names)}
    if not told.issuperset({"data", "compute"} if alone else GROUPS):
        return {}
    steps_s = (record.training_s or 0.0) - sum(parts.get(name, 0.0) for name in _BETWEEN_STEPS)
    if steps_s <= 0:
        return {}
    return {group: sum(parts.get(name, 0.0) for name in names) / steps_s for group, names in GROUPS.items()}


def bound(record: Record) -> Bound | None:
    """None where parts are missing, and where no group is larger than every other."""
    ranked = sorted(step_shares(record).items(), key=lambda item: -item[1])
    return Bound(*ranked[0]) if ranked and ranked[0][1] > ranked[1][1] else None


def lateness(record: Record) -> tuple[Lateness, ...]:
    """Of every rank that has told when it came to collectives; none in a world of one."""
    rows: list[Lateness] = []
    for rank in record.ranks:
        late, training_s = rank.late, record.training_s
        if late is None or not late.of or not training_s:
            continue
        steps, share = record.steps or late.of, late.lag_s / training_s
        straggler = late.behind > BEHIND_SHARE * late.of and share >= LAG_SHARE
        of = "steps" if late.of < 1.5 * steps else "collectives"  # an epoch's end has one of its own
        rows.append(Lateness(rank.rank, str(rank.host), late.last / late.of, of, late.lag_s / steps, share, straggler))
    return tuple(rows)


def stragglers(record: Record) -> tuple[Lateness, ...]:
    """Ranks that came after the mean of the others in 2/3 of the collectives, by at least 5 % of the training time in all."""
    return tuple(rank for rank in lateness(record) if rank.straggler)
