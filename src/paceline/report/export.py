"""Rows of samples into a CSV or Parquet file. It writes what it is given, and knows nothing of what the columns mean."""

from __future__ import annotations

import csv
import importlib
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from paceline.base.errors import BadInput
from paceline.base.files import write_bytes, write_text

Row = dict[str, Any]


def _csv(rows: list[Row], path: Path) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def _parquet(rows: list[Row], path: Path) -> None:
    try:
        arrow: Any = importlib.import_module("pyarrow")
        parquet: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise BadInput(
            f"{path}: Parquet needs pyarrow, which is not installed; pip install 'paceline[parquet]', or write .csv"
        ) from None
    sink = io.BytesIO()
    parquet.write_table(arrow.Table.from_pylist(rows), sink, compression="zstd")
    write_bytes(path, sink.getvalue())


_WRITERS = {".csv": _csv, ".parquet": _parquet}


def write(rows: Iterable[Row], path: Path) -> int:
    """The number of rows written; the suffix of the path says the format."""
    writer = _WRITERS.get(path.suffix.lower())
    if writer is None:
        raise BadInput(
            f"{path}: cannot export as {path.suffix or 'a file without suffix'!r}; use {' or '.join(_WRITERS)}"
        )
    kept = list(rows)
    writer(kept, path)
    return len(kept)
