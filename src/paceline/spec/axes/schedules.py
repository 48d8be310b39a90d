"""How the learning rate moves, and which other settings have a say in it. Data only: the worker computes the rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paceline.spec.axes.optimizers import OWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleTraits:
    name: str
    moves: bool = True  # by itself: a warm-up or a decay may still move the rate of one that does not
    uses_factor: bool = False  # schedule_factor
    uses_every: bool = False  # schedule_every
    warms_itself: bool = False  # so it takes no warmup
    moves_beta: bool = False  # Adam's first, too
    is_tasks: bool = False  # the task computes it: schedule(step, steps), or a scheduler of torch


SCHEDULES: Mapping[str, ScheduleTraits] = MappingProxyType(
    {
        row.name: row
        for row in (
            ScheduleTraits(name="constant", moves=False),
            ScheduleTraits(name="step", uses_factor=True, uses_every=True),
            ScheduleTraits(name="exponential", uses_factor=True),
            ScheduleTraits(name="cosine"),
            ScheduleTraits(name="onecycle", warms_itself=True, moves_beta=True),
            ScheduleTraits(name=OWN, warms_itself=True, is_tasks=True),
        )
    }
)
