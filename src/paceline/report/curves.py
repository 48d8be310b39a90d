"""Figures over time: loss and score by epoch and by the clock, and each rank's own loss. Vega draws the means over runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.records.findings import Metric
from paceline.records.study import StudyRecord
from paceline.report import series
from paceline.report.canvas import EPOCHS, NUMBER, PALETTE, Chart, altair, axis_format, colour

HEIGHT = 280


@dataclass(frozen=True, slots=True)
class Curve:
    """`field` (loss or score) against epochs, or against the clock: the mean over runs strong, each run faint."""

    name: str
    title: str
    field: str
    label: str
    format: str
    by_time: bool = False

    def draw(self, labels: Sequence[str]) -> Chart:
        alt = altair()
        chosen = alt.selection_point(fields=["cell"], bind="legend", name="chosen")
        split = alt.param(name="split", value="test", bind=alt.binding_radio(options=["test", "train"], name="Data"))
        base = alt.Chart(alt.NamedData(name=EPOCHS)).transform_filter("datum.split === split")
        base = base.transform_flatten(["epoch", "t", self.field])
        chart = alt.layer(self._runs(base, labels, chosen), self._mean(base, labels, chosen))
        chart = chart.properties(width="container", height=HEIGHT).add_params(chosen, split)
        caption = "Strong: mean over runs. Faint: each run. Click a name in the legend to bring it forward."
        return Chart(self.name, self.title, caption, chart.to_dict(), reads=EPOCHS)

    def _x(self, field: str) -> Any:
        alt = altair()
        title = "seconds since the first process started" if self.by_time else "epoch"
        return alt.X(field, title=title, axis=alt.Axis(tickMinStep=0 if self.by_time else 1))

    def _y(self, field: str) -> Any:
        alt = altair()
        return alt.Y(field, title=self.label, scale=alt.Scale(zero=False), axis=alt.Axis(format=self.format))

    def _runs(self, base: Any, labels: Sequence[str], chosen: Any) -> Any:
        alt = altair()
        return base.mark_line(strokeWidth=1).encode(
            x=self._x("t:Q" if self.by_time else "epoch:Q"),
            y=self._y(f"{self.field}:Q"),
            detail="repeat:N",
            color=colour(labels),
            opacity=alt.condition(chosen, alt.value(0.28), alt.value(0.03)),
        )

    def _mean(self, base: Any, labels: Sequence[str], chosen: Any) -> Any:
        alt = altair()
        tips = [
            alt.Tooltip("cell:N", title="setting"),
            alt.Tooltip("epoch:Q"),
            alt.Tooltip("at:Q", title="seconds", format=NUMBER),
            alt.Tooltip("mean:Q", title=f"mean {self.label}", format=self.format),
            alt.Tooltip("runs:Q"),
        ]
        figure = f"mean({self.field})"
        mean = base.transform_aggregate(mean=figure, at="mean(t)", runs="count()", groupby=["cell", "epoch"])
        return mean.mark_line(strokeWidth=2.4, point=alt.OverlayMarkDef(size=36, filled=True)).encode(
            x=self._x("at:Q" if self.by_time else "epoch:Q"),
            y=self._y("mean:Q"),
            color=colour(labels),
            opacity=alt.condition(chosen, alt.value(1), alt.value(0.1)),
            tooltip=tips,
        )


def curves(score: Metric | None, labels: Sequence[str]) -> list[Chart]:
    made = [Curve("loss", "Loss by epoch", "loss", "loss", NUMBER)]
    if score is not None:
        name, shape = score.name.partition(".")[2], axis_format(score)
        first = Curve("score", f"{name.capitalize()} by epoch", "score", name, shape)
        made = [first, *made, Curve("score-time", f"{name.capitalize()} by time", "score", name, shape, by_time=True)]
    return [curve.draw(labels) for curve in made]


def ranks(study: StudyRecord, done: Sequence[str]) -> Chart | None:
    """Each rank's own training loss; the reader picks the cell."""
    drawn = series.ranks(study)
    cells = list(dict.fromkeys(row["cell"] for row in drawn.rows))
    if not cells:
        return None
    alt = altair()
    first = next((cell for cell in reversed(cells) if cell in done), cells[-1])
    pick = alt.param(name="shown", value=first, bind=alt.binding_select(options=cells, name="Setting"))
    chart = (
        alt.Chart(alt.Data(values=drawn.rows))
        .transform_filter("datum.cell === shown")
        .transform_flatten(["x", "y"])
        .mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(size=18, filled=True))
        .encode(
            x=alt.X("x:Q", title="iteration"),
            y=alt.Y("y:Q", title="training loss of the rank", scale=alt.Scale(zero=False)),
            color=alt.Color(
                "rank:N", scale=alt.Scale(range=list(PALETTE)), legend=alt.Legend(orient="bottom", columns=8)
            ),
            tooltip=[
                alt.Tooltip("rank:N"),
                alt.Tooltip("x:Q", title="iteration"),
                alt.Tooltip("y:Q", title="loss", format=NUMBER),
            ],
        )
        .properties(width="container", height=HEIGHT)
        .add_params(pick)
    )
    return Chart("ranks", "Training loss of each rank", drawn.note, chart.to_dict())
