"""Which of two scores is better, and whether one has reached a target: said once, for the ranks and for the record."""

from __future__ import annotations


def is_better(value: float, than: float, better: str | None) -> bool:
    """`better`: higher or lower. Equal is not better."""
    return value > than if better == "higher" else value < than


def reaches(value: float, target: float, better: str | None) -> bool:
    return value == target or is_better(value, target, better)
