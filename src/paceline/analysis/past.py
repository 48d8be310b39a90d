"""A report's own figures: how large its effect was, and how far its figures for one and the same configuration lie apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paceline.records.findings import Metric, Past
from paceline.records.study import Conclusion, StudyPlan
from paceline.spec.conclusion import Repeated


def past(conclusion: Conclusion, plan: StudyPlan, metric: Metric | None) -> Past | None:
    """None where the report gives no figures for the two cells."""
    quoted = {cell.label: cell.reference for cell in plan.cells}
    before = quoted.get(conclusion.baseline, {}).get(conclusion.against or conclusion.metric)
    after = quoted.get(conclusion.candidate, {}).get(conclusion.metric)
    if before is None or after is None or metric is None:
        return None
    ratio = metric.kind == "ratio" and min(before, after) > 0
    effect = after / (before * conclusion.factor) if ratio else after - before * conclusion.factor
    other = plan.rows_of if plan.rows_of and plan.rows_of[:1] != (conclusion.report or plan.rows_of)[:1] else ""
    found = Past(conclusion.metric, "ratio" if ratio else "difference", effect, other)
    settings = [cell.settings for cell in plan.cells if cell.label in (conclusion.baseline, conclusion.candidate)]
    return _beside_spread(
        found, [row for row in plan.repeated if row.metric == found.metric and _is_of(row.cell, settings)]
    )


def _is_of(cell: Mapping[str, Any], settings: Sequence[Mapping[str, Any]]) -> bool:
    return any(all(str(one.get(name)) == str(value) for name, value in cell.items()) for one in settings)


def _beside_spread(found: Past, rows: Sequence[Repeated]) -> Past:
    """The widest of what the report measured several times; without any, its effect stands alone."""
    if not rows:
        return found
    ratio = found.kind == "ratio"
    spreads = [(max(row.values) / min(row.values) if ratio else max(row.values) - min(row.values), row) for row in rows]
    spread, row = max(spreads, key=lambda pair: pair[0])
    size = max(found.effect, 1 / found.effect) if ratio else abs(found.effect)
    return replace(found, what=row.what, values=tuple(row.values), spread=spread, smaller=size <= spread)
