"""A report's own figures: how large its effect was, and how far its figures for one and the same configuration lie apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.records.findings import Metric, Past
from paceline.records.study import Conclusion, StudyPlan
from paceline.spec.conclusion import Repeated, matches


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
    both = [cell.settings for cell in plan.cells if cell.label in (conclusion.baseline, conclusion.candidate)]
    of_metric = [row for row in plan.repeated if row.metric == found.metric]
    return _beside_spread(found, [row for row in of_metric if any(matches(cell, row.cell) for cell in both)])


def _beside_spread(found: Past, rows: Sequence[Repeated]) -> Past:
    """The widest of what the report measured several times; without any, its effect stands alone."""
    if not rows:
        return found
    ratio = found.kind == "ratio"
    spreads = [(max(row.values) / min(row.values) if ratio else max(row.values) - min(row.values), row) for row in rows]
    spread, row = max(spreads, key=lambda pair: pair[0])
    size = max(found.effect, 1 / found.effect) if ratio else abs(found.effect)
    return replace(found, what=row.what, values=tuple(row.values), spread=spread, smaller=size <= spread)
