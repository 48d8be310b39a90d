"""A study's findings with all their sentences: the order in which this room is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from paceline.records.findings import CellFinding, Comparison, Metric
from paceline.records.grid import Grid
from paceline.records.study_findings import StudyFindings
from paceline.report.words import comparisons, grid, missing, notes, payback, provenance
from paceline.report.words.cells import reasons
from paceline.report.words.headline import headline
from paceline.report.words.held_back import bound_name, straggler
from paceline.report.words.spoken import (
    SpokenCell,
    SpokenComparison,
    SpokenEffect,
    SpokenGrid,
    SpokenInteraction,
    SpokenJudged,
    SpokenMissing,
    SpokenPayback,
    SpokenStraggler,
    SpokenStudy,
)  # fmt: skip


def _values(finding: Any, **said: Any) -> dict[str, Any]:
    return {one.name: getattr(finding, one.name) for one in fields(finding)} | said


def spoken_cell(cell: CellFinding) -> SpokenCell:
    late = tuple(SpokenStraggler(**_values(rank), words=straggler(rank)) for rank in cell.stragglers)
    bound = bound_name(cell.bound_by) if cell.bound_by else None
    return SpokenCell(**_values(cell, stragglers=late), bound=bound, reasons=reasons(cell))


def spoken_comparison(compared: Comparison, metric: Metric) -> SpokenComparison:
    return SpokenComparison(**_values(compared), why=comparisons.why(compared, metric))


def spoken_grid(found: Grid | None, metrics: Mapping[str, Metric]) -> SpokenGrid | None:
    if found is None:
        return None
    effects = [SpokenEffect(**_values(one), words=grid.effect(one, metrics[one.metric])) for one in found.effects]
    both = [SpokenInteraction(**_values(i), words=grid.interaction(i, metrics[i.metric])) for i in found.interactions]
    return SpokenGrid(**_values(found, effects=tuple(effects), interactions=tuple(both)), gap=grid.gap(found))


def spoken(study: StudyFindings) -> SpokenStudy:
    metrics: Mapping[str, Metric] = {metric.name: metric for metric in study.metrics}
    cells = {cell.label: cell for cell in study.cells}
    judged = [SpokenJudged(**_values(j), why=comparisons.judged_why(j, metrics, cells)) for j in study.judged]
    said: dict[str, Any] = {
        "cells": tuple(spoken_cell(cell) for cell in study.cells),
        "comparisons": tuple(spoken_comparison(c, metrics[c.metric]) for c in study.comparisons),
        "judged": tuple(judged),
        "missing": tuple(SpokenMissing(**_values(row), words=missing.sentences(row)) for row in study.missing),
        "grid": spoken_grid(study.grid, metrics),
        "payback": tuple(SpokenPayback(**_values(row), words=payback.sentences(row)) for row in study.payback),
    }
    return SpokenStudy(
        **_values(study, **said),
        headline=headline(study),
        notes=notes.notes(study),
        hardware=provenance.hardware(study.fingerprints),
        versions=provenance.versions(study.fingerprints),
        code=provenance.code(study.fingerprints),
        method=notes.method(study),
    )
