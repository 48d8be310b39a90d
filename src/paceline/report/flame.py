"""The flame chart of a profile as Vega-Lite: a frame's width is its time, what it calls lies below it. It draws; the tree comes made.

Names are values in the data and never expressions, so nothing in a module's name can be run.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paceline.records.profile import Frame
from paceline.report.canvas import Chart, altair

_COLOURS = {"phase": "#9aa5b1", "module": "#3b82c4", "operator": "#e0a458"}
_LINE = 21  # pixels a row
_CHARACTERS = 150  # that fit the whole width: a label is cut to its frame's share of them
_DEEPEST = 40


def frames(tree: Frame, *, start: float = 0.0, depth: int = 0, root_s: float = 0.0) -> Iterator[dict[str, Any]]:
    """Every frame with its place: seconds from the left, rows from the top."""
    total, root_s = float(tree.total_s), root_s or float(tree.total_s)
    fits = int(_CHARACTERS * total / root_s) if root_s else 0
    name = tree.name
    label = name if len(name) <= fits else f"{name[: fits - 1]}…" if fits >= 4 else ""
    yield {
        "name": name, "kind": tree.kind, "calls": tree.calls or None, "seconds": total, "label": label,
        "share": total / root_s if root_s else 0.0, "left": start, "right": start + total, "depth": depth, "below": depth + 0.94,
    }  # fmt: skip
    for child in tree.children if depth < _DEEPEST else ():
        yield from frames(child, start=start, depth=depth + 1, root_s=root_s)
        start += float(child.total_s)


def chart(tree: Frame) -> Chart:
    alt = altair()
    rows = list(frames(tree))
    labelled = [row for row in rows if row["label"]]
    span = alt.Scale(domain=[0, rows[0]["right"]], nice=False)
    deep = alt.Scale(domain=[0, max(row["below"] for row in rows)], reverse=True, nice=False)
    zoom = alt.selection_interval(bind="scales", encodings=["x"])
    tips = [
        alt.Tooltip("name:N"),
        alt.Tooltip("kind:N"),
        alt.Tooltip("seconds:Q", format=".4~s"),
        alt.Tooltip("share:Q", format=".1%"),
        alt.Tooltip("calls:Q", format=","),
    ]
    shades = alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values()))
    x = alt.X("left:Q", scale=span, title="seconds under the profiler; drag to move, turn the wheel to zoom")
    y = alt.Y("depth:Q", scale=deep, axis=None)
    bars = (
        alt.Chart(alt.Data(values=rows))
        .mark_rect(stroke="white", strokeWidth=0.5, clip=True)
        .encode(
            x=x, x2="right:Q", y=y, y2="below:Q", tooltip=tips,
            color=alt.Color("kind:N", scale=shades, legend=alt.Legend(title=None, orient="bottom")),
        )
        .add_params(zoom)
    )  # fmt: skip
    words = (
        alt.Chart(alt.Data(values=labelled))
        .mark_text(align="left", baseline="top", dx=4, dy=4, fontSize=11, color="#10141a", clip=True)
        .encode(x=x, y=y, text="label:N", tooltip=tips)
    )
    drawn = alt.layer(bars, words).properties(width="container", height=_LINE * (1 + max(row["depth"] for row in rows)))
    caption = (
        "Frames of all batches that came the same way, added up; widest first, not in the order of time. Backward frames lie under "
        "the module whose forward operator they answer. The empty space below a frame is its own time and that of frames below 0.1 %."
    )
    return Chart("flame", "Where the time goes", caption, drawn.to_dict(), wide=True)
