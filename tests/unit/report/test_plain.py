"""The contract of `paceline study --json`."""

from __future__ import annotations

import json

from paceline.records.findings import StudyFindings
from paceline.report import plain


def test_the_keys_scripts_rely_on(found: StudyFindings) -> None:
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


def test_a_comparison_is_named_after_what_it_is(found: StudyFindings) -> None:
    rows = plain.render(found)["comparisons"]
    time = next(row for row in rows if row["metric"] == "time.training_s" and row["candidate"] == "2x2")
    score = next(row for row in rows if row["metric"] == "test.accuracy" and row["candidate"] == "2x2")
    assert 0.3 < time["ratio"] < 0.45 and "difference" not in time and time["verdict"] == "faster"
    assert abs(score["difference"]) < 0.01 and "ratio" not in score and score["verdict"] == "no difference shown"
    assert {"metric", "baseline", "candidate", "low", "high", "n", "verdict", "why"} <= time.keys()
