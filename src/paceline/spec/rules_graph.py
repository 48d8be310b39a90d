"""What cannot be made a graph, or recomputed. A part of the table in `rules.py`, as flat as that."""

from __future__ import annotations

from paceline.spec.rule import Rule

GRAPH: tuple[Rule, ...] = ()
