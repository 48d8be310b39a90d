"""Findings as the JSON that scripts read (`paceline study --json`). The keys are a contract: add to them, never rename one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from paceline.records.findings import CellFinding, Comparison, Interval, Missing, Payback, StudyFindings


def _interval(figure: Interval) -> dict[str, Any]:
    return {"mean": figure.mean, "low": figure.low, "high": figure.high, "n": figure.n}


def _cell(cell: CellFinding) -> dict[str, Any]:
    return {
        "label": cell.label,
        "settings": cell.settings,
        "n": cell.n,
        "planned": cell.planned,
        "outcome": cell.outcome,
        "metrics": {name: {**asdict(figure), "values": list(figure.values)} for name, figure in cell.metrics.items()},
        "reasons": list(cell.reasons),
        "reference": cell.reference,
        "reached": cell.reached,
        "time_parts": cell.parts,
        "training_parts": cell.training_parts,
        "hidden_s": cell.hidden_s,
        "unexplained": cell.unexplained,
        "bound": cell.bound,
        "bound_share": _interval(cell.bound_share) if cell.bound_share else None,
        "stragglers": [
            {**asdict(rank), "last": _interval(rank.last), "lag_s": _interval(rank.lag_s)} for rank in cell.stragglers
        ],
    }


def _comparison(found: Comparison) -> dict[str, Any]:
    """The figure stands under the name of what it is: `ratio` or `difference`."""
    row = asdict(found)
    row[row.pop("kind")] = row.pop("value")
    return row


def _missing(row: Missing) -> dict[str, Any]:
    return {
        "label": row.label,
        "baseline": row.baseline,
        "ideal": row.ideal,
        "speedup": row.speedup,
        "missing": _interval(row.missing),
        "parts": {name: _interval(share) for name, share in row.parts.items()},
        "cause": row.cause,
        "ideal_s": row.ideal_s,
        "words": row.words,
    }


def _payback(row: Payback) -> dict[str, Any]:
    figures = {name: _interval(getattr(row, name)) for name in ("compile_s", "step_s", "eager_step_s", "saved_s")}
    return {
        "label": row.label,
        "baseline": row.baseline,
        **figures,
        "verdict": row.verdict,
        "steps": _interval(row.steps) if row.steps else None,
        "counts": row.counts,
        "reasons": list(row.reasons),
        "words": row.words,
    }


def render(found: StudyFindings) -> dict[str, Any]:
    return {
        "schema": 1,
        "study": found.name,
        "about": found.about,
        "task": found.task,
        "quick": found.quick,
        "headline": found.headline,
        "baseline": found.baseline,
        "swept": list(found.swept),
        "target": found.target,
        "cells": [_cell(cell) for cell in found.cells],
        "comparisons": [_comparison(comparison) for comparison in found.comparisons],
        "scaling": [asdict(row) for row in found.scaling],
        "missing": [_missing(row) for row in found.missing],
        "payback": [_payback(row) for row in found.payback],
        "conclusions": [asdict(judged) for judged in found.judged],
        "metrics": [asdict(metric) for metric in found.metrics],
        "notes": list(found.notes),
        "source": found.source,
        "hardware": found.hardware,
        "versions": found.versions,
        "code": found.code,
        "method": found.method,
    }
