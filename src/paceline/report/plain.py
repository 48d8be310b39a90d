"""Findings as the JSON that scripts read (`paceline study --json`). The keys are a contract: add to them, never rename one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from paceline.records.findings import CellFinding, Comparison, StudyFindings


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
    }


def _comparison(found: Comparison) -> dict[str, Any]:
    """The figure stands under the name of what it is: `ratio` or `difference`."""
    row = asdict(found)
    row[row.pop("kind")] = row.pop("value")
    return row


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
        "conclusions": [asdict(judged) for judged in found.judged],
        "metrics": [asdict(metric) for metric in found.metrics],
        "notes": list(found.notes),
        "source": found.source,
        "hardware": found.hardware,
        "versions": found.versions,
        "code": found.code,
        "method": found.method,
    }
