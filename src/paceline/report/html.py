"""One HTML file that opens anywhere, offline: tables, charts, and the bundle that draws them. It formats; it computes nothing."""

from __future__ import annotations

import importlib
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from paceline.records.findings import StudyFindings
from paceline.records.study import StudyRecord
from paceline.report import charts, tables

STATIC_WIDTH = 620
_TONES = {
    "faster": "good", "better": "good", "confirmed": "good", "completed": "good",
    "slower": "bad", "worse": "bad", "refuted": "bad", "failed": "bad",
    "higher": "plain", "lower": "plain", "no difference shown": "plain", "not tested": "plain", "pending": "plain",
    "too few runs": "weak", "skipped": "weak", "partial": "weak",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Drawn:
    chart: charts.Chart
    svg: Markup


def _vl_convert() -> Any:
    """Imported when a page is made: it is 40 MB of compiled JavaScript engine, without type stubs."""
    return importlib.import_module("vl_convert")


def _vega_lite_version() -> str:
    """The version Altair wrote the specs for; the bundle and the static drawings must be of the same."""
    major, minor, *_ = str(charts.altair().SCHEMA_VERSION).lstrip("v").split(".")
    return f"{major}.{minor}"


def _static(chart: charts.Chart, version: str) -> Markup:
    """The drawing for readers without JavaScript; `vl_convert` escapes the text in it."""
    spec = {**chart.spec, "width": STATIC_WIDTH, "config": _CONFIG}
    return Markup(_vl_convert().vegalite_to_svg(spec, vl_version=version))  # noqa: S704


# `currentColor` lets the page's own colours through, so light, dark and print need no second drawing.
_CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor", "titleColor": "currentColor", "gridColor": "currentColor", "gridOpacity": 0.12,
        "domainColor": "currentColor", "domainOpacity": 0.4, "tickColor": "currentColor", "tickOpacity": 0.4,
        "labelFontSize": 11.5, "titleFontSize": 12, "titleFontWeight": 500, "titlePadding": 10, "labelPadding": 6,
    },
    "legend": {"labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 11.5, "symbolSize": 70},
}  # fmt: skip


def safe_json(value: Any) -> Markup:
    """JSON that may stand inside a script element: no `<` is left, so no text in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028"))  # noqa: S704


def _file(name: str) -> Markup:
    return Markup(files("paceline.report").joinpath(name).read_text())  # noqa: S704


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
    version = _vega_lite_version()
    drawn = [Drawn(chart, _static(chart, version)) for chart in charts.charts(found, study)]
    page: str = environment.get_template("template.html.j2").render(
        found=found,
        summary=_summary(found),
        cells=tables.cells(found),
        conclusions=tables.conclusions(found),
        comparisons=tables.comparisons(found),
        scaling=tables.scaling(found),
        failures=tables.failures(found),
        figures=tables.figures(found),
        ranks=tables.study_ranks(study),
        fixed=_fixed(found, study),
        provenance=tables.provenance(found),
        drawn=drawn,
        tones=_TONES,
        css=_file("report.css"),
        script=_file("report.js"),
        bundle=Markup(_vl_convert().javascript_bundle(vl_version=version)) if drawn else "",  # noqa: S704
        specs=safe_json({item.chart.name: item.chart.spec for item in drawn}),
        config=safe_json(_CONFIG),
    )
    return page
