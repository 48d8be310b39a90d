"""The page of a profile: one HTML file that opens anywhere, offline, like the report of a study. It formats; it computes nothing."""

from __future__ import annotations

import importlib
import json
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from paceline.records.record import Record
from paceline.report import drawing, flame
from paceline.report.charts import Gallery
from paceline.report.html import PAGE_BYTES, safe_json
from paceline.report.profile import ProfileTables
from paceline.report.words.provenance import packages


def _file(name: str) -> Markup:
    return Markup(files("paceline.report").joinpath(name).read_text())


def _settings(record: Record) -> list[tuple[str, str]]:
    return [(name, json.dumps(value)) for name, value in record.asked.items() if name != "schema"]


def _where(record: Record) -> str:
    mark = record.fingerprint
    parts = (mark.cpu, f"{mark.cores} cores", *packages(mark)) if mark else ()
    return ", ".join(part for part in parts if part)


def render(record: Record) -> str:
    """The whole page. Text from users passes through autoescape; only our own files and drawings are marked as safe."""
    jinja: Any = importlib.import_module("jinja2")
    environment = jinja.Environment(
        loader=jinja.PackageLoader("paceline", "report"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    profile = ProfileTables(record)
    assert profile.profile.tree is not None, "a profile has its flame chart"
    shown = Gallery([flame.chart(profile.profile.tree)], {})
    values: dict[str, Any] = {
        "title": profile.title,
        "headline": profile.sentences()[0],
        "notes": profile.sentences()[1:],
        "tables": profile.tables(),
        "settings": _settings(record),
        "files": [(name, value) for name, value in profile.files() if name != "page"],
        "where": _where(record),
        "chart": shown.charts[0],
        "css": _file("report.css"),
        "script": _file("report.js"),
        "bundle": Markup(drawing.bundle()),
        "specs": safe_json({chart.name: chart.spec for chart in shown.charts}),
        "datasets": safe_json({}),
        "config": safe_json(drawing.CONFIG),
    }
    template = environment.get_template("profile.html.j2")
    left = PAGE_BYTES - len(template.render(**values, drawn="").encode())
    page: str = template.render(**values, drawn=Markup("".join(drawing.drawings(shown, budget=left).values())))
    return page
