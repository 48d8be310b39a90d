"""CSV and Parquet hold the same rows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from paceline.base.errors import BadInput
from paceline.report import export

ROWS = [{"cell": "a,b", "value": 1.5, "text": None}, {"cell": 'c"d\ne', "value": None, "text": "x"}]


def test_csv(tmp_path: Path) -> None:
    assert export.write(iter(ROWS), tmp_path / "x.csv") == 2
    with (tmp_path / "x.csv").open(newline="") as file:
        back = list(csv.DictReader(file))
    assert back == [{"cell": "a,b", "value": "1.5", "text": ""}, {"cell": 'c"d\ne', "value": "", "text": "x"}]


def test_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert export.write(iter(ROWS), tmp_path / "x.parquet") == 2
    assert parquet.read_table(tmp_path / "x.parquet").to_pylist() == ROWS


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r"pip install 'paceline\[parquet\]'"):
        export.write(ROWS, tmp_path / "x.parquet")


@pytest.mark.parametrize("name", ["x.xlsx", "x"])
def test_other_suffixes_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match=r"use \.csv or \.parquet"):
        export.write(ROWS, tmp_path / name)
    assert not (tmp_path / name).exists()
