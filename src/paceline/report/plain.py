"""Findings as the JSON that scripts read (`paceline study --json`). The keys are a contract: add to them, never rename one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from paceline.records.findings import Interval
from paceline.report.words.spoken import (
    SpokenCell,
    SpokenComparison,
    SpokenJudged,
    SpokenMissing,
    SpokenPayback,
    SpokenStraggler,
    SpokenStudy,
)  # fmt: skip


def _interval(figure: Interval) -> dict[str, Any]:
    return {"mean": figure.mean, "low": figure.low, "high": figure.high, "n": figure.n}


def _figure(figure: Interval) -> dict[str, Any]:
    return {**_interval(figure), "values": list(figure.values), "spread": figure.std}


def _straggler(rank: SpokenStraggler) -> dict[str, Any]:
    return {
        "rank": rank.rank,
        "host": rank.host,
        "last": _interval(rank.last),
        "lag_s": _interval(rank.lag_s),
        "runs": rank.runs,
        "words": rank.words,
    }


def _cell(cell: SpokenCell) -> dict[str, Any]:
    return {
        "label": cell.label,
        "settings": cell.settings,
        "n": cell.n,
        "planned": cell.planned,
        "outcome": cell.outcome,
        "metrics": {name: _figure(figure) for name, figure in cell.metrics.items()},
        "reasons": list(cell.reasons),
        "failures": [asdict(failure) for failure in cell.failures],
        "reference": cell.reference,
        "reached": cell.reached,
        "time_parts": cell.parts,
        "training_parts": cell.training_parts,
        "hidden_s": cell.hidden_s,
        "unexplained": cell.unexplained,
        "bound": cell.bound,
        "bound_share": _interval(cell.bound_share) if cell.bound_share else None,
        "stragglers": [_straggler(rank) for rank in cell.stragglers],
    }


def _comparison(compared: SpokenComparison) -> dict[str, Any]:
    """The figure stands under the name of what it is: `ratio` or `difference`."""
    return {
        "metric": compared.metric,
        "baseline": compared.baseline,
        "candidate": compared.candidate,
        "low": compared.low,
        "high": compared.high,
        "n": compared.n,
        "p": compared.p,
        "paired": compared.paired,
        "verdict": compared.verdict,
        "why": compared.why,
        compared.kind: compared.value,
    }


def _missing(row: SpokenMissing) -> dict[str, Any]:
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


def _payback(row: SpokenPayback) -> dict[str, Any]:
    return {
        "label": row.label,
        "baseline": row.baseline,
        "compile_s": _interval(row.compile_s),
        "step_s": _interval(row.step_s),
        "eager_step_s": _interval(row.eager_step_s),
        "saved_s": _interval(row.saved_s),
        "verdict": row.verdict,
        "steps": _interval(row.steps) if row.steps else None,
        "counts": row.counts,
        "reasons": list(row.reasons),
        "words": row.words,
    }


def _judged(judged: SpokenJudged) -> dict[str, Any]:
    return {
        "report": judged.report, "claim": judged.claim, "metric": judged.metric, "verdict": judged.verdict, "why": judged.why,
        "note": judged.note,
    }  # fmt: skip


def render(study: SpokenStudy) -> dict[str, Any]:
    return {
        "schema": 1,
        "study": study.name,
        "about": study.about,
        "task": study.task,
        "quick": study.quick,
        "headline": study.headline,
        "baseline": study.baseline,
        "swept": list(study.swept),
        "target": study.target,
        "cells": [_cell(cell) for cell in study.cells],
        "comparisons": [_comparison(comparison) for comparison in study.comparisons],
        "scaling": [asdict(row) for row in study.scaling],
        "missing": [_missing(row) for row in study.missing],
        "payback": [_payback(row) for row in study.payback],
        "grid": None if study.grid is None else asdict(study.grid),
        "conclusions": [_judged(judged) for judged in study.judged],
        "metrics": [asdict(metric) for metric in study.metrics],
        "changed": list(study.changed),
        "scaled_down": study.scaled_down,
        "notes": list(study.notes),
        "source": study.source,
        "hardware": study.hardware,
        "versions": study.versions,
        "code": study.code,
        "method": study.method,
    }
