"""One HTML file that opens anywhere, offline: tables, charts, and what draws them. It formats; it computes nothing."""

from __future__ import annotations

import importlib
import json
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from paceline.records.findings import StudyFindings
from paceline.records.study import StudyRecord
from paceline.report import charts, drawing, payback, series, tables

PAGE_BYTES = 1_400_000  # what a mail server lets through, with room to spare; the bundle alone takes 0.9 MB

_TONES = {
    "faster": "good", "better": "good", "confirmed": "good", "completed": "good",
    "slower": "bad", "worse": "bad", "refuted": "bad", "failed": "bad",
    "higher": "plain", "lower": "plain", "no difference shown": "plain", "not tested": "plain", "pending": "plain",
    "too few runs": "weak", "skipped": "weak", "partial": "weak",
}  # fmt: skip


def safe_json(value: Any) -> Markup:
    """JSON that may stand inside a script element: no `<` is left, so no text in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028"))


def _file(name: str) -> Markup:
    return Markup(files("paceline.report").joinpath(name).read_text())


def _fixed(found: StudyFindings, study: StudyRecord) -> list[tuple[str, str]]:
    """The settings that no cell changes."""
    spec = study.plan.cells[0].spec if study.plan.cells else {}
    return [(name, json.dumps(value)) for name, value in spec.items() if name not in (*found.swept, "schema", "seed")]


def _summary(found: StudyFindings) -> list[tuple[str, str]]:
    runs, planned = sum(cell.n for cell in found.cells), sum(cell.planned for cell in found.cells)
    rows = [
        ("task", found.task),
        ("cells", str(len(found.cells))),
        ("runs", str(runs) if runs == planned else f"{runs} of {planned}"),
        ("baseline", found.baseline if len(found.cells) > 1 else ""),
        ("target", "" if found.target is None else f"{found.target:g}"),
    ]
    return [(name, value) for name, value in rows if value]


def render(found: StudyFindings, study: StudyRecord) -> str:
    """The whole page. Text from users passes through autoescape; only our own files and drawings are marked as safe."""
    jinja: Any = importlib.import_module("jinja2")
    environment = jinja.Environment(
        loader=jinja.PackageLoader("paceline", "report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    shown = charts.gallery(found, study)
    template = environment.get_template("template.html.j2")
    values: dict[str, Any] = {
        "found": found,
        "summary": _summary(found),
        "cells": tables.cells(found),
        "conclusions": tables.conclusions(found),
        "comparisons": tables.comparisons(found),
        "scaling": tables.scaling(found),
        "missing": tables.missing(found),
        "missing_parts": tables.missing_parts(found),
        "training": tables.training(found),
        "payback": payback.payback(found),
        "graphs": payback.graphs(found),
        "failures": tables.failures(found),
        "figures": tables.figures(found),
        "ranks": tables.study_ranks(study, at_most=series.ranks_shown(study)),
        "fixed": _fixed(found, study),
        "provenance": tables.provenance(found),
        "charts": shown.charts,
        "tones": _TONES,
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
