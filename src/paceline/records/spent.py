"""What a run took, typed: joules and money. How they come about is in `cost.py`."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.records.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy(Section):
    """`why` says what was not measured: a reason of the measurement, so it is kept in the record."""

    joules: float | None = None
    joules_per_sample: float | None = None
    sources: tuple[str, ...] = ()
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost(Section):
    device_hours: float = 0.0
    price: float = 0.0
    total: float | None = None
