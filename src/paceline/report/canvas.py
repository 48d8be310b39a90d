"""What all charts share: their colours, their number formats, and Altair itself. It draws nothing."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.records.findings import Metric

NUMBER = ",.4~r"  # four digits, never as a power of ten
EPOCHS = "epochs"  # the data set that several charts read: it stands in the page once

# Told apart by colour-blind readers, and visible on white and on near-black; the second ten are shades of the first.
PALETTE = (
    "#3b82c4", "#e08a1e", "#2a9d74", "#d1495b", "#9b6fd0", "#56b4e9", "#b59b00", "#c86fa8", "#7f8c8d", "#a0622d",
    "#1f5f99", "#f0b45c", "#5cc4a0", "#e58a94", "#6a3fb0", "#8fd0f5", "#d9c24a", "#8f3f72", "#b0b9c2", "#c99063",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chart:
    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    wide: bool = False
    reads: str | None = None  # the shared data set it needs beside its own data


def altair() -> Any:
    """Imported when a page is made: a third of a second, and its own types are too loose for strict checking."""
    return importlib.import_module("altair")


def colour(labels: Sequence[str], *, legend: bool = True) -> Any:
    """One colour a cell, the same in every chart."""
    alt = altair()
    shades = [PALETTE[i % len(PALETTE)] for i in range(len(labels))]
    columns = 4 if max(map(len, labels)) <= 14 else 2
    key = alt.Legend(title=None, orient="bottom", columns=columns, labelLimit=230, symbolOpacity=1) if legend else None
    return alt.Color("cell:N", scale=alt.Scale(domain=list(labels), range=shades), legend=key)


def cell_axis() -> Any:
    """Cells one below the other, in the order of the data."""
    alt = altair()
    return alt.Y("cell:N", sort=None, title=None, axis=alt.Axis(labelLimit=190, domain=False, ticks=False))


def axis_format(metric: Metric) -> str:
    return {"fraction": ".1%", "bytes": ".3~s"}.get(metric.unit, NUMBER)
