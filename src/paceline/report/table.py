"""A table as plain text in rows and columns: what every format draws in its own way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Align = Literal["left", "right"]


@dataclass(frozen=True, slots=True)
class Column:
    title: str
    align: Align = "left"
    wide: bool = False  # sentences: to be broken into lines


@dataclass(frozen=True, slots=True)
class Table:
    name: str  # a short key: used for anchors and labels
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
