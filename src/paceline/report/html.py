"""One HTML file that opens anywhere, offline: tables, charts, and what draws them. It formats; it computes nothing."""

from __future__ import annotations

import importlib
import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from paceline.records.study import StudyRecord
from paceline.report import charts, drawing, grid, payback, series, tables
from paceline.report.words.spoken import SpokenStudy

PAGE_BYTES = 1_400_000  # what a mail server lets through, with room to spare; the bundle alone takes 0.9 MB

TONES = {
    "faster": "good", "better": "good", "confirmed": "good", "completed": "good",
    "slower": "bad", "worse": "bad", "refuted": "bad", "failed": "bad",
    "higher": "plain", "lower": "plain", "no difference shown": "plain", "not tested": "plain", "pending": "plain",
    "too few runs": "weak", "not decided": "plain", "not tested here": "weak", "skipped": "weak", "partial": "weak",
}  # fmt: skip


def safe_json(value: Any) -> Markup:
    """JSON that may stand inside a script element: no `<` is left, so no text in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028"))


def _file(name: str) -> Markup:
    return Markup(files("paceline.report").joinpath(name).read_text())


def _fixed(findings: SpokenStudy, study: StudyRecord) -> list[tuple[str, str]]:
    """The settings that no cell changes."""
    spec = study.plan.cells[0].spec if study.plan.cells else {}
    return [
        (name, json.dumps(value)) for name, value in spec.items() if name not in (*findings.swept, "schema", "seed")
    ]


def _summary(findings: SpokenStudy) -> list[tuple[str, str]]:
    runs, planned = sum(cell.n for cell in findings.cells), sum(cell.planned for cell in findings.cells)
    rows = [
        ("task", findings.task),
        ("cells", str(len(findings.cells))),
        ("runs", str(runs) if runs == planned else f"{runs} of {planned}"),
        ("baseline", findings.baseline if len(findings.cells) > 1 else ""),
        ("target", "" if findings.target is None else f"{findings.target:g}"),
    ]
    return [(name, value) for name, value in rows if value]


def _logs(findings: SpokenStudy, folder: Path) -> list[tuple[str, str]]:
    """(which run, a link to its log from a page in this folder). Quoted and relative, so no name of a file is read as a scheme."""
    return [
        (f"{cell.label} repeat {log.repeat + 1}", quote(os.fsencode(os.path.relpath(log.path, folder))))
        for cell in findings.cells
        for failed in cell.failures
        for log in failed.logs
    ]


def render(findings: SpokenStudy, study: StudyRecord, *, folder: Path | None = None) -> str:
    """The whole page. Text from users passes through autoescape; only our own files and drawings are marked as safe.

    `folder`: where the page will lie, for its links to logs; the study's own unless said.
    """
    jinja: Any = importlib.import_module("jinja2")
    environment = jinja.Environment(
        loader=jinja.PackageLoader("paceline", "report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    shown = charts.gallery(findings, study)
    template = environment.get_template("template.html.j2")
    values: dict[str, Any] = {
        "findings": findings,
        "summary": _summary(findings),
        "cells": tables.cells(findings),
        "conclusions": tables.conclusions(findings),
        "comparisons": tables.comparisons(findings),
        "scaling": tables.scaling(findings),
        "missing": tables.missing(findings),
        "missing_parts": tables.missing_parts(findings),
        "training": tables.training(findings),
        "grid": grid.grid(findings),
        "payback": payback.payback(findings),
        "graphs": payback.graphs(findings),
        "failures": tables.failures(findings),
        "logs": _logs(findings, folder or study.path),
        "figures": tables.figures(findings),
        "ranks": tables.study_ranks(study, at_most=series.ranks_shown(study)),
        "fixed": _fixed(findings, study),
        "provenance": tables.provenance(findings),
        "charts": shown.charts,
        "tones": TONES,
        "css": _file("report.css"),
        "script": _file("report.js"),
        "bundle": Markup(drawing.bundle()) if shown.charts else "",
        "specs": safe_json({chart.name: chart.spec for chart in shown.charts}),
        "datasets": safe_json(shown.datasets),
        "config": safe_json(drawing.CONFIG),
    }
    # The page without drawings says how many bytes are left for them.
    left = PAGE_BYTES - len(template.render(**values, drawings={}).encode())
    drawn = {name: Markup(svg) for name, svg in drawing.drawings(shown, budget=left).items()}
    page: str = template.render(**values, drawings=drawn)
    return page
