"""What cannot be spread over ranks, or not in that way. A part of the table in `rules.py`, as flat as that."""

from __future__ import annotations

from paceline.spec.rule import Rule

SHARDING: tuple[Rule, ...] = ()
