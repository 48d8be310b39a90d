"""Vega itself, through vl-convert: the JavaScript a page needs and static drawings for readers without it. No chart is made here."""

from __future__ import annotations

import importlib
import json
import re
from typing import Any

from paceline.base.cache import cache_folder
from paceline.base.errors import RunFailed
from paceline.base.files import write_text
from paceline.report.canvas import Chart, altair
from paceline.report.charts import Gallery

STATIC_WIDTH = 620
LARGE_BYTES = 60_000  # a chart of more data than this takes seconds to draw, and its drawing is larger still

# `currentColor` lets the page's own colours through, so light, dark and print need no second drawing.
CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "aria": False,  # the page describes its charts and has the figures in tables; a label for every mark is noise
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor", "titleColor": "currentColor", "gridColor": "currentColor", "gridOpacity": 0.12,
        "domainColor": "currentColor", "domainOpacity": 0.4, "tickColor": "currentColor", "tickOpacity": 0.4,
        "labelFontSize": 11.5, "titleFontSize": 12, "titleFontWeight": 500, "titlePadding": 10, "labelPadding": 6,
    },
    "legend": {
        "labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 11.5, "symbolSize": 70,
        "symbolLimit": 0,
    },
}  # fmt: skip

# Vega writes coordinates with 15 digits, which is most of a drawing; a tenth of a pixel cannot be seen.
_COORDINATES = re.compile(r' (?:d|transform)="[^"]*"')
_LONG_NUMBER = re.compile(r"(\d+\.\d)\d+")


def _vl_convert() -> Any:
    """Imported when a page is made: it is 40 MB of compiled JavaScript engine, without type stubs."""
    return importlib.import_module("vl_convert")


def _version() -> str:
    """The Vega-Lite that Altair wrote the specs for; the bundle and the static drawings must be of the same."""
    major, minor, *_ = str(altair().SCHEMA_VERSION).lstrip("v").split(".")
    return f"{major}.{minor}"


def bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one module that sets `window.vegaEmbed`. Put together once a version: it takes seconds."""
    try:
        kept = cache_folder("pages") / f"vega-{_version()}-{_vl_convert().__version__}.js"
        if not kept.exists():
            write_text(kept, _vl_convert().javascript_bundle(vl_version=_version()))
        return kept.read_text(encoding="utf-8")
    except RunFailed:  # nowhere to keep it: a report must not need that
        return _vl_convert().javascript_bundle(vl_version=_version())


def get_ready() -> None:
    """What the first drawing of a process takes beside the drawing: imports, and a JavaScript engine that reads Vega."""
    nothing: dict[str, Any] = {"data": {"values": []}, "mark": "point", "encoding": {}}
    _vl_convert().vegalite_to_svg(nothing, vl_version=_version())


def _draw(chart: Chart, shown: Gallery) -> str | None:
    """The chart as SVG; `vl_convert` escapes the text in it."""
    data = {chart.reads: shown.datasets[chart.reads]} if chart.reads else {}
    if len(json.dumps([chart.spec, data])) > LARGE_BYTES:
        return None
    spec = {**chart.spec, "datasets": data, "width": STATIC_WIDTH, "config": CONFIG}
    svg: str = _vl_convert().vegalite_to_svg(spec, vl_version=_version())
    return _COORDINATES.sub(lambda match: _LONG_NUMBER.sub(r"\1", match[0]), svg)


def drawings(shown: Gallery, *, budget: int) -> dict[str, str]:
    """Static drawings by chart name, the first charts first, as far as `budget` bytes go."""
    made: dict[str, str] = {}
    for chart in shown.charts:
        drawing = _draw(chart, shown)
        if drawing is not None and len(drawing) <= budget:
            made[chart.name] = drawing
            budget -= len(drawing)
    return made
