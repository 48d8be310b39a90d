"""The contract of `paceline study --json`."""

from __future__ import annotations

import json

import pytest

from paceline.report import plain
from paceline.report.words.spoken import SpokenStudy


def test_the_keys_scripts_rely_on(found: SpokenStudy) -> None:
    value = json.loads(json.dumps(plain.render(found), allow_nan=False))
    assert value["schema"] == 1 and value["study"] == "mnist-scaling" and value["headline"].startswith("Use 2x2")
    cell = value["cells"][1]
    assert (
        cell["label"] == "1x2"
        and cell["settings"] == {"on": "1x2"}
        and cell["n"] == 5
        and cell["outcome"] == "completed"
    )
    figure = cell["metrics"]["time.training_s"]
    assert {"mean", "low", "high", "n", "values"} <= figure.keys() and len(figure["values"]) == figure["n"] == 5
    assert cell["reference"] == {"time.training_s": 120, "test.accuracy": 0.9346}
    assert value["cells"][4]["outcome"] == "failed" and "out of memory" in value["cells"][4]["reasons"][0]


def test_why_it_is_not_as_fast_as_its_processes(found: SpokenStudy) -> None:
    value = json.loads(json.dumps(plain.render(found), allow_nan=False))
    row = value["missing"][2]
    assert row.keys() >= {"label", "baseline", "ideal", "speedup", "missing", "parts", "words"}
    assert (row["label"], row["baseline"], row["ideal"]) == ("2x2", "1x1", 4)
    assert row["missing"].keys() == {"mean", "low", "high", "n"} == row["parts"]["transfer"].keys()
    assert sum(part["mean"] for part in row["parts"].values()) == pytest.approx(row["missing"]["mean"])
    assert row["missing"]["mean"] == pytest.approx(1 - row["speedup"] / 4, rel=0.01)


def test_what_a_cell_is_held_back_by(found: SpokenStudy) -> None:
    cells = json.loads(json.dumps(plain.render(found), allow_nan=False))["cells"]
    assert cells[0]["bound"] == "compute-bound" and cells[0]["bound_share"]["n"] == 5 and cells[0]["stragglers"] == []
    (late,) = cells[3]["stragglers"]
    assert (late["rank"], late["host"]) == (3, "bench-2") and late["last"]["mean"] > 0.75 and late["lag_s"]["mean"] > 0
    assert sum(cells[3]["training_parts"].values()) == pytest.approx(cells[3]["metrics"]["time.training_s"]["mean"])
    assert cells[5]["bound"] is None and cells[5]["training_parts"] == {}  # it never ran


def test_a_comparison_is_named_after_what_it_is(found: SpokenStudy) -> None:
    rows = plain.render(found)["comparisons"]
    time = next(row for row in rows if row["metric"] == "time.training_s" and row["candidate"] == "2x2")
    score = next(row for row in rows if row["metric"] == "test.accuracy" and row["candidate"] == "2x2")
    assert 0.3 < time["ratio"] < 0.45 and "difference" not in time and time["verdict"] == "faster"
    assert abs(score["difference"]) < 0.01 and "ratio" not in score and score["verdict"] == "no difference shown"
    assert {"metric", "baseline", "candidate", "low", "high", "n", "verdict", "why"} <= time.keys()
