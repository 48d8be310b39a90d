"""The charts of the HTML report as Vega-Lite, made with Altair. Means over repeats are drawn by Vega; intervals come from findings.

No user text becomes a field name or an expression: labels are values in the data, so nothing in them can be run.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.records.findings import CellFinding, Metric, StudyFindings
from paceline.records.study import StudyRecord
from paceline.report import series

# Told apart by colour-blind readers, and visible on white and on near-black.
PALETTE = (
    "#3b82c4", "#e08a1e", "#2a9d74", "#d1495b", "#9b6fd0", "#56b4e9", "#b59b00", "#c86fa8", "#7f8c8d", "#a0622d",
)  # fmt: skip
_PARTS = (
    "#9aa5b1", "#c9b458", "#7fb7be", "#3b82c4", "#1f5f99", "#d1495b", "#e08a1e", "#b5651d", "#2a9d74", "#4c9f70",
    "#9b6fd0", "#c86fa8", "#6b7280", "#b0b7c3", "#d9dde3",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chart:
    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    wide: bool = False


def altair() -> Any:
    """Imported when a page is made: a third of a second, and its own types are too loose for strict checking."""
    return importlib.import_module("altair")


def _colour(labels: Sequence[str], *, legend: bool = True) -> Any:
    """One colour a cell, the same in every chart."""
    alt = altair()
    shades = [PALETTE[i % len(PALETTE)] for i in range(len(labels))]
    key = alt.Legend(title=None, orient="bottom", columns=4, labelLimit=170) if legend else None
    return alt.Color("cell:N", scale=alt.Scale(domain=list(labels), range=shades), legend=key)


def _axis_format(metric: Metric) -> str:
    return {"fraction": ".1%", "bytes": ".3~s", "samples/s": ",.4~g"}.get(metric.unit, "~g")


def _title(metric: Metric) -> str:
    return f"{metric.title} ({metric.unit})" if metric.unit in ("s", "samples/s", "bytes") else metric.title


def _intervals(metric: Metric, cells: Sequence[CellFinding], labels: Sequence[str]) -> Chart:
    """Mean, interval and the single runs of each cell, one cell a line."""
    alt = altair()
    means: list[series.Row] = []
    runs: list[series.Row] = []
    for cell in cells:
        if (figure := cell.metrics.get(metric.name)) is not None:
            means.append({"cell": cell.label, "mean": figure.mean, "low": figure.low, "high": figure.high, "n": figure.n})
            runs += [{"cell": cell.label, "value": value} for value in figure.values]
    shown = [label for label in labels if any(row["cell"] == label for row in means)]
    y = alt.Y("cell:N", sort=shown, title=None, axis=alt.Axis(labelLimit=190, domain=False, ticks=False))
    zero = alt.Scale(zero=metric.kind == "ratio")
    axis = alt.Axis(format=_axis_format(metric), grid=True)
    figure_tip = [
        alt.Tooltip("cell:N", title="setting"),
        *(alt.Tooltip(f"{name}:Q", title=name, format=_axis_format(metric)) for name in ("mean", "low", "high")),
        alt.Tooltip("n:Q", title="runs"),
    ]
    base = alt.Chart(alt.Data(values=means)).encode(y=y, color=_colour(labels, legend=False), tooltip=figure_tip)
    x = alt.X("mean:Q", title=_title(metric), scale=zero, axis=axis)
    single = (
        alt.Chart(alt.Data(values=runs))
        .mark_circle(size=34, opacity=0.35)
        .encode(x=alt.X("value:Q", title=_title(metric), scale=zero, axis=axis), y=y, color=_colour(labels, legend=False))
    )
    bar = base.mark_rule(strokeWidth=3).encode(x=alt.X("low:Q", title=_title(metric)), x2="high:Q")
    dot = base.mark_point(filled=True, size=95, opacity=1).encode(x=x)
    chart = alt.layer(single, bar, dot).properties(width="container", height=alt.Step(26))
    caption = "Dot: mean. Bar: 95 % interval. Faint dots: the single runs."
    return Chart(f"interval-{metric.name.replace('.', '-')}", metric.title.capitalize(), caption, chart.to_dict())


def _curve(
    name: str, title: str, caption: str, rows: list[series.Row], labels: Sequence[str], *, y: Any, by_time: bool = False
) -> Chart:
    """Mean over repeats as a strong line, each repeat as a faint one; a click in the legend brings a cell forward."""
    alt = altair()
    split = alt.param(name="split", value="test", bind=alt.binding_radio(options=["test", "train"], name="Data: "))
    chosen = alt.selection_point(fields=["cell"], bind="legend", name="chosen")
    x = "t" if by_time else "epoch"
    x_title = "seconds since the first process started" if by_time else "epoch"
    base = alt.Chart(alt.Data(values=rows)).transform_filter("datum.split === split")
    if by_time:
        base = alt.Chart(alt.Data(values=[row for row in rows if row["split"] == "test"]))
    faint = base.mark_line(strokeWidth=1).encode(
        x=alt.X(f"{x}:Q", title=x_title),
        y=y(f"{y.field}:Q"),
        detail="repeat:N",
        color=_colour(labels),
        opacity=alt.condition(chosen, alt.value(0.28), alt.value(0.03)),
    )
    mean = base.transform_aggregate(mean=f"mean({y.field})", at=f"mean({x})", runs="count()", groupby=["cell", "epoch"])
    tips = [
        alt.Tooltip("cell:N", title="setting"),
        alt.Tooltip("epoch:Q"),
        *([alt.Tooltip("at:Q", title="seconds", format=".3~f")] if by_time else []),
        alt.Tooltip("mean:Q", title="mean", format=y.format),
        alt.Tooltip("runs:Q"),
    ]
    strong = mean.mark_line(strokeWidth=2.4, point=alt.OverlayMarkDef(size=36, filled=True)).encode(
        x=alt.X("at:Q", title=x_title),
        y=y("mean:Q"),
        color=_colour(labels),
        opacity=alt.condition(chosen, alt.value(1), alt.value(0.1)),
        tooltip=tips,
    )
    params = [chosen] if by_time else [chosen, split]
    chart = alt.layer(faint, strong).properties(width="container", height=280).add_params(*params)
    return Chart(name, title, caption, chart.to_dict())


@dataclass(frozen=True, slots=True)
class _Height:
    """The y channel of a curve: which field of the rows, under which title."""

    field: str
    title: str
    format: str

    def __call__(self, source: str) -> Any:
        alt = altair()
        return alt.Y(source, title=self.title, scale=alt.Scale(zero=False), axis=alt.Axis(format=self.format))


def _curves(found: StudyFindings, study: StudyRecord, labels: Sequence[str], score: Metric | None) -> list[Chart]:
    rows = series.epochs(study, score.name.partition(".")[2] if score else None)
    if not rows:
        return []
    caption = "Strong: mean over runs. Faint: each run. Click a name in the legend to bring it forward."
    made: list[Chart] = []
    if score:
        name = score.name.partition(".")[2]
        height = _Height("score", name, _axis_format(score))
        made.append(_curve("score", f"{name.capitalize()} by epoch", caption, rows, labels, y=height))
    made.append(_curve("loss", "Loss by epoch", caption, rows, labels, y=_Height("loss", "loss", "~g")))
    if score:
        height = _Height("score", score.title, _axis_format(score))
        title = f"{score.title.capitalize()} by time"
        made.append(_curve("score-time", title, caption, rows, labels, y=height, by_time=True))
    return made


def _ranks(study: StudyRecord) -> Chart | None:
    curves = series.ranks(study)
    cells = list(dict.fromkeys(row["cell"] for row in curves.rows))
    if not cells:
        return None
    alt = altair()
    pick = alt.param(name="shown", value=cells[-1], bind=alt.binding_select(options=cells, name="Setting: "))
    chart = (
        alt.Chart(alt.Data(values=curves.rows))
        .transform_filter("datum.cell === shown")
        .transform_flatten(["x", "y"])
        .mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(size=18, filled=True))
        .encode(
            x=alt.X("x:Q", title="iteration"),
            y=alt.Y("y:Q", title="training loss of the rank", scale=alt.Scale(zero=False)),
            color=alt.Color("rank:N", scale=alt.Scale(range=list(PALETTE)), legend=alt.Legend(title="rank", orient="bottom")),
            tooltip=[alt.Tooltip("rank:N"), alt.Tooltip("x:Q", title="iteration"), alt.Tooltip("y:Q", title="loss", format=".4~g")],
        )
        .properties(width="container", height=280)
        .add_params(pick)
    )
    return Chart("ranks", "Training loss of each rank", curves.note, chart.to_dict())


def _speedup(found: StudyFindings, labels: Sequence[str]) -> Chart | None:
    rows = [
        {"cell": r.label, "size": r.world_size, "speedup": r.speedup, "low": r.low, "high": r.high, "ideal": r.ideal, "kind": r.kind}
        for r in sorted(found.scaling, key=lambda r: (r.world_size, r.label))
    ]
    if len(rows) < 2:
        return None
    alt = altair()
    x = alt.X("cell:N", sort=[row["cell"] for row in rows], title=None, axis=alt.Axis(labelAngle=-25 if len(rows) > 6 else 0, labelLimit=140))
    base = alt.Chart(alt.Data(values=rows)).encode(x=x)
    tips = [
        alt.Tooltip("cell:N", title="setting"), alt.Tooltip("size:Q", title="processes"), alt.Tooltip("kind:N", title="scaling"),
        *(alt.Tooltip(f"{name}:Q", format=".2f") for name in ("speedup", "low", "high", "ideal")),
    ]  # fmt: skip
    y = alt.Y("speedup:Q", title="speed-up", scale=alt.Scale(zero=True))
    ideal = base.mark_line(strokeDash=[5, 4], strokeWidth=1.6, color="#8b95a1", point=alt.OverlayMarkDef(size=24, color="#8b95a1"))
    bar = base.mark_rule(strokeWidth=3).encode(y=alt.Y("low:Q", title="speed-up"), y2="high:Q", color=_colour(labels, legend=False))
    dot = base.mark_point(filled=True, size=110, opacity=1).encode(y=y, color=_colour(labels, legend=False), tooltip=tips)
    ideal = ideal.encode(y=alt.Y("ideal:Q", title="speed-up"), tooltip=tips)
    chart = alt.layer(ideal, bar, dot).properties(width="container", height=280)
    caption = f"Dashed: ideal. Bar: 95 % interval. Against {found.baseline}."
    return Chart("speedup", "Speed-up", caption, chart.to_dict())


def _parts(cells: Sequence[CellFinding], labels: Sequence[str]) -> Chart | None:
    order = list(dict.fromkeys(part for cell in cells for part, seconds in cell.parts.items() if seconds))
    rows = [
        {"cell": cell.label, "part": part, "place": order.index(part), "seconds": series.short(seconds)}
        for cell in cells
        for part, seconds in cell.parts.items()
        if seconds
    ]
    if not rows:
        return None
    alt = altair()
    shades = alt.Scale(domain=order, range=[_PARTS[i % len(_PARTS)] for i in range(len(order))])
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(height=17)
        .encode(
            x=alt.X("seconds:Q", title="seconds of wall time, mean over runs"),
            y=alt.Y("cell:N", sort=list(labels), title=None, axis=alt.Axis(labelLimit=190, domain=False, ticks=False)),
            color=alt.Color("part:N", scale=shades, legend=alt.Legend(title=None, orient="bottom", columns=5)),
            order=alt.Order("place:Q"),
            tooltip=[alt.Tooltip("cell:N", title="setting"), "part:N", alt.Tooltip("seconds:Q", format=".4~g")],
        )
        .properties(width="container", height=alt.Step(28))
    )
    caption = "The slowest rank of each run. The parts add up to the wall time; `other` is the unexplained rest."
    return Chart("parts", "Where the time goes", caption, chart.to_dict(), wide=True)


def charts(found: StudyFindings, study: StudyRecord) -> list[Chart]:
    """Every chart there is data for, the deciding ones first."""
    labels = [cell.label for cell in found.cells]
    done = [cell for cell in found.cells if cell.n]
    score = next((m for m in found.metrics if m.main and m.name.startswith("test.")), None)
    intervals = [_intervals(metric, done, labels) for metric in found.metrics if metric.main and done]
    extra = [_speedup(found, labels), _ranks(study), _parts(done, labels)]
    return [*intervals, *_curves(found, study, labels, score), *(chart for chart in extra if chart is not None)]
