"""The charts of the HTML report as Vega-Lite, made with Altair. Every mean and interval in them comes from the findings.

No user text becomes a field name or an expression: labels are values in the data, so nothing in them can be run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.records.findings import CellFinding, Metric, Scaling
from paceline.records.split import PARTS
from paceline.records.study import StudyRecord
from paceline.records.study_findings import StudyFindings
from paceline.report import series
from paceline.report.canvas import (
    EPOCHS,
    Chart,
    altair,
    axis_format,
    cell_axis,
    cell_axis_below,
    cells_height,
    colour,
)  # fmt: skip
from paceline.report.curves import HEIGHT, curves, ranks

# Arithmetic in blue, talk between ranks in red, what is neither in green and grey.
_PART_COLOURS = {
    "startup": "#9aa5b1", "compile": "#c9b458", "data": "#2a9d74", "forward": "#7fb2e5", "backward": "#3b82c4",
    "waiting": "#e58a94", "transfer": "#d1495b", "communication": "#a83244", "optimizer": "#1f5f99", "step": "#3b82c4",
    "evaluation": "#9b6fd0", "checkpoint": "#e08a1e", "logging": "#b59b00", "shutdown": "#7f8c9b", "other": "#c4cad2",
}  # fmt: skip
_GREY = "#8b95a1"
_NO_BAR = 1e-6  # a rest of some microseconds, above or below zero (two clocks), is in the tables


@dataclass(frozen=True, slots=True)
class Gallery:
    """The charts, and the data that more than one of them reads."""

    charts: list[Chart]
    datasets: dict[str, list[series.Row]]


def _interval(metric: Metric, cells: Sequence[CellFinding], labels: Sequence[str]) -> Chart:
    """Mean, interval and the single runs of each cell, one cell a line."""
    rows = [
        {
            "cell": cell.label, "n": figure.n, "mean": series.short(figure.mean), "low": series.short(figure.low),
            "high": series.short(figure.high), "run": [series.short(value) for value in figure.values],
        }
        for cell in cells
        if (figure := cell.metrics.get(metric.name)) is not None
    ]  # fmt: skip
    alt = altair()
    title = f"{metric.title} ({metric.unit})" if metric.unit in ("s", "samples/s", "bytes") else metric.title
    shape = axis_format(metric)

    def x(field: str) -> Any:
        scale = alt.Scale(zero=metric.kind == "ratio")
        return alt.X(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(format=shape, tickCount=6))

    tips = [
        alt.Tooltip("cell:N", title="setting"),
        *(alt.Tooltip(f"{name}:Q", format=shape) for name in ("mean", "low", "high")),
        alt.Tooltip("n:Q", title="runs"),
    ]
    base = alt.Chart().encode(y=cell_axis([cell.label for cell in cells]), color=colour(labels, legend=False))
    single = base.transform_flatten(["run"]).mark_circle(size=34, opacity=0.35).encode(x=x("run"))
    bar = base.mark_rule(strokeWidth=3).encode(x=x("low"), x2="high:Q", tooltip=tips)
    dot = base.mark_point(filled=True, size=95, opacity=1).encode(x=x("mean"), tooltip=tips)
    layers = [single, bar, dot] if any(row["low"] is not None for row in rows) else [single, dot]
    chart = alt.layer(*layers, data=alt.Data(values=rows))
    chart = chart.properties(width="container", height=cells_height([cell.label for cell in cells]))
    caption = "Dot: mean. Bar: 95 % interval. Faint dots: the single runs."
    return Chart(f"interval-{metric.name.replace('.', '-')}", metric.title.capitalize(), caption, chart.to_dict())


def _speedup_row(row: Scaling) -> series.Row:
    return {
        "cell": row.label, "size": row.world_size, "kind": row.kind, "speedup": row.speedup, "low": row.low,
        "high": row.high, "ideal": row.ideal,
    }  # fmt: skip


def _speedup(findings: StudyFindings, labels: Sequence[str]) -> Chart | None:
    rows = [_speedup_row(row) for row in sorted(findings.scaling, key=lambda row: (row.world_size, row.label))]
    if len(rows) < 2:
        return None
    alt = altair()
    tips = [
        alt.Tooltip("cell:N", title="setting"),
        alt.Tooltip("size:Q", title="processes"),
        alt.Tooltip("kind:N", title="scaling"),
        *(alt.Tooltip(f"{name}:Q", format=".2f") for name in ("speedup", "low", "high", "ideal")),
    ]
    base = alt.Chart().encode(x=cell_axis_below([row.label for row in findings.scaling]), tooltip=tips)

    def y(field: str) -> Any:
        return alt.Y(f"{field}:Q", title="speed-up", scale=alt.Scale(zero=True))

    points = alt.OverlayMarkDef(size=24, color=_GREY)
    ideal = base.mark_line(strokeDash=[5, 4], strokeWidth=1.6, color=_GREY, point=points).encode(y=y("ideal"))
    bar = base.mark_rule(strokeWidth=3).encode(y=y("low"), y2="high:Q", color=colour(labels, legend=False))
    dot = base.mark_point(filled=True, size=110, opacity=1).encode(y=y("speedup"), color=colour(labels, legend=False))
    layers = [ideal, bar, dot] if any(row["low"] is not None for row in rows) else [ideal, dot]
    chart = alt.layer(*layers, data=alt.Data(values=rows)).properties(width="container", height=HEIGHT)
    kinds = " and ".join(dict.fromkeys(row.kind for row in findings.scaling))
    caption = f"Dashed: ideal. Bar: 95 % interval. {kinds.capitalize()} scaling, against {findings.baseline}."
    return Chart("speedup", "Speed-up", caption, chart.to_dict())


def _stacked(told: Sequence[tuple[str, dict[str, float]]], title: str) -> tuple[Any, int]:
    """(bars of seconds by part in the order in which things happen, how many of them there are)."""
    names = {part for _, parts in told for part, seconds in parts.items() if seconds > _NO_BAR}
    order = sorted(names, key=lambda part: PARTS.index(part) if part in PARTS else len(PARTS))
    rows = [
        {"cell": label, "part": part, "place": order.index(part), "seconds": series.short(seconds)}
        for label, parts in told
        for part, seconds in parts.items()
        if seconds > _NO_BAR
    ]
    alt = altair()
    shades = alt.Scale(domain=order, range=[_PART_COLOURS.get(part, _GREY) for part in order])
    bars = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(height=17)
        .encode(
            x=alt.X("seconds:Q", title=title),
            y=cell_axis([label for label, _ in told]),
            color=alt.Color("part:N", scale=shades, legend=alt.Legend(title=None, orient="bottom", columns=5)),
            order=alt.Order("place:Q"),
            tooltip=[alt.Tooltip("cell:N", title="setting"), "part:N", alt.Tooltip("seconds:Q", format=".4~r")],
        )
    )
    return bars, len(rows)


def _parts(cells: Sequence[CellFinding]) -> Chart | None:
    """Where the wall time of each cell went."""
    bars, num = _stacked([(cell.label, cell.parts) for cell in cells], "seconds of wall time, mean over runs")
    if not num:
        return None
    chart = bars.properties(width="container", height=cells_height([cell.label for cell in cells]))
    caption = "The slowest rank of each run. The parts add up to the wall time; 'other' is the unexplained rest."
    return Chart("parts", "Where the time goes", caption, chart.to_dict(), wide=True)


def _training(findings: StudyFindings, cells: Sequence[CellFinding]) -> Chart | None:
    """Where the training time of each cell went, over all its ranks, and how short an ideal one would be."""
    told = [cell for cell in cells if cell.training_parts]
    bars, num = _stacked(
        [(cell.label, cell.training_parts) for cell in told], "seconds of training time, mean over ranks and runs"
    )
    if not num:
        return None
    alt = altair()
    caption = "The mean over ranks: what one rank waits, another computes."
    ideal = [{"cell": row.label, "ideal": series.short(row.ideal_s)} for row in findings.missing]
    if ideal:
        tips = [alt.Tooltip("cell:N", title="setting"), alt.Tooltip("ideal:Q", title="ideal, seconds", format=".4~r")]
        base = alt.Chart(alt.Data(values=ideal)).encode(
            x="ideal:Q", y=cell_axis([cell.label for cell in told]), tooltip=tips
        )
        bars = alt.layer(bars, base.mark_tick(thickness=3, size=25, color="currentColor"))
        caption += " The line across a bar: the training time it would have if every process counted fully."
    chart = bars.properties(width="container", height=cells_height([cell.label for cell in told]))
    return Chart("training", "Where the training time goes", caption, chart.to_dict(), wide=True)


def gallery(findings: StudyFindings, study: StudyRecord) -> Gallery:
    """Every chart there is data for, the deciding ones first."""
    done = [cell for cell in findings.cells if cell.n]
    labels = [cell.label for cell in done]
    score = next((m for m in findings.metrics if m.main and m.name.startswith("test.")), None)
    rows = series.epochs(study, score.name.partition(".")[2] if score else None)
    shown = [metric for metric in findings.metrics if metric.main and len(done) > 1]  # one dot is no chart
    made = [_interval(metric, done, labels) for metric in shown]
    made += curves(score, labels) if rows else []
    others = [_speedup(findings, labels), ranks(study, labels), _training(findings, done), _parts(done)]
    return Gallery([*made, *(chart for chart in others if chart is not None)], {EPOCHS: rows} if rows else {})
