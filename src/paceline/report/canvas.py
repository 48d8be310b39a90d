"""What all charts share: their colours, their number formats, and Altair itself. It draws nothing."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from paceline.records.findings import Metric

NUMBER = ",.4~r"  # four digits, never as a power of ten
EPOCHS = "epochs"  # the data set that several charts read: it stands in the page once

# Characters in a line of a cell's name, by where it stands, and about how many pixels a letter and a line take.
_LEGEND, _BESIDE, _BELOW, _LETTER, _LINE = 44, 30, 22, 6, 14
_WIDTH, _SYMBOL = 540, 36  # of the narrowest drawing, less its axis; of what stands beside a name in a legend

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


def lines(label: str, most: int) -> list[str]:
    """A name in lines of at most so many characters, broken at spaces where it has them: nothing of it is left out.

    >>> lines("optimizer=adamw precision=bf16", 18), lines("abcdefgh", 3)
    (['optimizer=adamw', 'precision=bf16'], ['abc', 'def', 'gh'])
    """
    return [whole or part for whole, part in re.findall(_broken(most), label)]


def _broken(most: int) -> str:
    """The same pattern in Python and in Vega."""
    return rf"(.{{1,{most}}})(?:\s+|$)|(.{{{most}}})"


def _split(most: int) -> str:
    """`lines` as an expression of Vega: the label is looked at as a value, so nothing in it is run."""
    return f"split(replace(replace(datum.label, /{_broken(most)}/g, '$1$2\\n'), /\\n$/, ''), '\\n')"


def colour(labels: Sequence[str], *, legend: bool = True) -> Any:
    """One colour a cell, the same in every chart."""
    alt = altair()
    shades = [PALETTE[i % len(PALETTE)] for i in range(len(labels))]
    longest = max(len(line) for label in labels for line in lines(label, _LEGEND))
    columns = max(1, min(4, _WIDTH // (longest * _LETTER + _SYMBOL)))
    key = None
    if legend:
        key = alt.Legend(
            title=None, orient="bottom", columns=columns, labelLimit=0, labelExpr=_split(_LEGEND), symbolOpacity=1
        )
    return alt.Color("cell:N", scale=alt.Scale(domain=list(labels), range=shades), legend=key)


def _named(labels: Sequence[str], most: int, **more: Any) -> Any:
    """An axis whose names stand in the middle of their places, whole: Vega begins there with their first line."""
    down = (_most_lines(labels, most) - 1) * _LINE / 2
    return altair().Axis(labelLimit=0, labelExpr=_split(most), labelOffset=-down, **more)


def _most_lines(labels: Sequence[str], most: int) -> int:
    return max((len(lines(label, most)) for label in labels), default=1)


def cell_axis(labels: Sequence[str]) -> Any:
    """Cells one below the other, in the order of the data."""
    return altair().Y("cell:N", sort=None, title=None, axis=_named(labels, _BESIDE, domain=False, ticks=False))


def cells_height(labels: Sequence[str]) -> int:
    """Of a chart with a line a cell: as high as the longest name needs."""
    return max(27, _LINE * _most_lines(labels, _BESIDE) + 6) * max(2, len(labels))


def cell_axis_below(labels: Sequence[str]) -> Any:
    """Cells side by side. Many are turned, long ones wholly: else one would lie on the next."""
    angle = 0 if len(labels) <= 4 else -30 if _most_lines(labels, _BELOW) == 1 else -90
    axis = _named(labels, _LEGEND if angle == -90 else _BELOW, labelAngle=angle)
    return altair().X("cell:N", sort=None, title=None, axis=axis)


def axis_format(metric: Metric) -> str:
    return {"fraction": ".1%", "bytes": ".3~s"}.get(metric.unit, NUMBER)
