"""The page as text: whole, small, closed to user text. What it looks like in a browser is in `e2e/test_report_browser.py`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paceline.commands.report import findings
from paceline.records.findings import FailedLog, FailedRuns
from paceline.records.study import StudyRecord, loose_study
from paceline.report import charts, html
from paceline.report.words.spoken import SpokenStudy
from unit.report import synthetic


@pytest.fixture(scope="module")
def page(found: SpokenStudy, scaling: StudyRecord) -> str:
    return html.render(found, scaling)


def _json(page: str, name: str) -> Any:
    match = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.S)
    assert match is not None
    return json.loads(match[1])


def test_everything_is_on_the_page(page: str) -> None:
    for text in (
        "Use 2x2", "The report&#39;s conclusions", "Runs that did not complete", "Comparisons", "Scaling", "no difference shown",
        "Why not 2 or 4 times as fast?", "of its time is missing", "The missing time by part", "Where the training time goes",
        "compute-bound", "Rank 3 on bench-2 came",
        "186 s", "97.77 %", "4 machines were asked for", "Example CPU 3.0 GHz", "torch 2.11.0", "commit 0123456789ab",
    ):  # fmt: skip
        assert text in page
    assert "<b>4 GiB</b>" not in page and "&lt;b&gt;4 GiB&lt;/b&gt;" in page


def test_the_charts(page: str) -> None:
    assert list(_json(page, "chart-specs")) == [
        "interval-time-to_target_s", "interval-time-training_s", "interval-throughput", "interval-test-accuracy",
        "score", "loss", "score-time", "speedup", "ranks", "training", "parts",
    ]  # fmt: skip
    assert page.count("<noscript><svg") == 11


def test_failed_runs_link_their_logs(found: SpokenStudy, scaling: StudyRecord) -> None:
    """Relative to where the page lies; no name of a file can be a scheme, end the attribute or run anything."""
    evil = 'javascript:alert(1)"><script>x</script>.err'
    logs = FailedLog(0, str(scaling.path / "cells" / "a b" / "rank_00001.err")), FailedLog(4, str(scaling.path / evil))
    cell = replace(found.cells[4], failures=(FailedRuns("task", "x", 2, logs),))
    told = replace(found, cells=(*found.cells[:4], cell, *found.cells[5:]))
    page = html.render(told, scaling)
    assert '<a href="cells/a%20b/rank_00001.err" type="text/plain" rel="noreferrer">2x4 repeat 1</a>' in page
    assert "javascript:alert" not in page.partition("<script")[0] and '"><script>x' not in page
    assert 'href="javascript%3Aalert%281%29%22%3E%3Cscript%3Ex%3C/script%3E.err"' in page
    assert 'href="../cells/a%20b/rank_00001.err"' in html.render(told, scaling, folder=scaling.path / "pages")


def test_what_two_settings_are_worth_is_on_the_page(tmp_path: Path) -> None:
    grid = {("1x1", "adam"): 40.0, ("1x1", "sgd"): 20.0, ("1x2", "adam"): 20.0, ("1x2", "sgd"): 20.0}
    cells = [
        synthetic.Cell(f"on={on} optimizer={rule}", {"on": on, "optimizer": rule}, seconds)
        for (on, rule), seconds in grid.items()
    ]
    study = synthetic.write(synthetic.Study(cells, swept=("on", "optimizer")), tmp_path)
    page = html.render(findings(study), study)
    section = page.partition('<section id="grid">')[2].partition("</section>")[0]
    assert "optimizer=sgd is faster than optimizer=adam: 1.4" in section and "the two settings interact" in section


def test_nothing_is_loaded_from_outside(page: str) -> None:
    head, _, rest = page.partition('<script type="module">')
    tail = rest.partition("</script>")[2]  # without Vega's own code, which names its home pages
    assert "default-src 'none'" in head
    assert re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', head + tail) == []
    assert len(page.encode()) < 1_500_000


def test_curves_hold_every_run_and_every_rank(found: SpokenStudy, scaling: StudyRecord) -> None:
    shown = charts.gallery(found, scaling)
    epochs = shown.datasets["epochs"]
    assert len([row for row in epochs if row["split"] == "test"]) == 19  # completed runs
    assert all(row["epoch"] == [1, 2, 3, 4] for row in epochs)
    ranks = next(chart for chart in shown.charts if chart.name == "ranks").spec
    (values,) = ranks["datasets"].values() if "datasets" in ranks else (ranks["data"]["values"],)
    assert {(row["cell"], row["rank"]) for row in values if row["cell"] == "2x2"} == {("2x2", r) for r in range(4)}
    assert any(row["cell"] == "2x4" for row in values), "a failed cell still shows how far it came"


def _rows(chart: charts.Chart, field: str) -> list[dict[str, Any]]:
    """The rows of a chart that have this field, wherever Altair has put them."""
    spec = chart.spec
    blocks = [layer["data"] for layer in (spec, *spec.get("layer", [])) if "data" in layer]
    told = [spec["datasets"][block["name"]] if "name" in block else block["values"] for block in blocks]
    return [row for rows in told for row in rows if field in row]


def _chart(found: SpokenStudy, study: StudyRecord, name: str) -> charts.Chart:
    return next(chart for chart in charts.gallery(found, study).charts if chart.name == name)


def test_the_bars_of_the_training_time_end_where_it_ends(found: SpokenStudy, scaling: StudyRecord) -> None:
    rows = _rows(_chart(found, scaling, "training"), "seconds")
    for cell in found.cells[:4]:
        drawn = sum(row["seconds"] for row in rows if row["cell"] == cell.label)
        assert drawn == pytest.approx(cell.metrics["time.training_s"].mean, rel=1e-3)


def test_the_ideal_is_marked_where_it_would_be(found: SpokenStudy, scaling: StudyRecord) -> None:
    marks = {row["cell"]: row["ideal"] for row in _rows(_chart(found, scaling, "training"), "ideal")}
    alone = found.cells[0].metrics["time.training_s"].mean
    assert marks["1x2"] == pytest.approx(alone / 2, rel=1e-3) and marks["2x2"] == pytest.approx(alone / 4, rel=1e-3)
    assert "1x1" not in marks


def test_a_study_of_something_else_has_the_bars_without_the_question(tmp_path: Path) -> None:
    study = synthetic.write(synthetic.wide_study(3), tmp_path)
    found = findings(study)
    page = html.render(found, study)
    assert "Why not" not in page and "missing time" not in page and "Where the training time goes" in page
    assert "compute-bound" in page and _rows(_chart(found, study, "training"), "ideal") == []


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}"


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    cells = [
        synthetic.Cell(f"a {EVIL}", {"on": "1x1"}, 4.0),
        synthetic.Cell(f"b {EVIL}", {"on": "1x2"}, 3.0, broken={0: EVIL}),
    ]
    study = synthetic.write(
        synthetic.Study(cells, name=EVIL, about=EVIL, source=EVIL, repeats=3, epochs=2, marks=2), tmp_path
    )
    page = html.render(replace(findings(study), notes=(EVIL,)), study)
    assert (
        "<script>alert" not in page and "<img src=x" not in page and "49" not in re.findall(r"<h1>(.*?)</h1>", page)[0]
    )
    labels = {row["cell"] for row in _json(page, "chart-data")["epochs"]}
    assert labels == {f"a {EVIL}", f"b {EVIL}"}


def test_json_in_a_script_cannot_end_it() -> None:
    text = html.safe_json({"x": "</script><!--\u2028"})
    assert "<" not in text and json.loads(text) == {"x": "</script><!--\u2028"}


def test_many_cells_and_another_score(tmp_path: Path) -> None:
    study = synthetic.write(synthetic.wide_study(), tmp_path)
    page = html.render(findings(study), study)
    assert "Mae by epoch" in page and len(page.encode()) < 1_500_000


def test_one_loose_run(scaling: StudyRecord) -> None:
    study = loose_study(scaling.cells[1].records[0][1].run_dir)
    page = html.render(findings(study), study)
    assert "Nothing to compare" in page and "interval-" not in page and "Training loss of each rank" in page


@pytest.mark.parametrize("cell", [{"skipped": "no GPU"}, {"repeats": 0}, {"broken": {0: "x", 1: "x"}}])
def test_a_study_without_a_completed_run(tmp_path: Path, cell: dict[str, Any]) -> None:
    made = synthetic.Study([synthetic.Cell("1x1", {"on": "1x1"}, 4.0, **cell)], repeats=2)
    study = synthetic.write(made, tmp_path)
    assert "Nothing is shown: no run completed" in html.render(findings(study), study)


def test_profiles_make_a_page_without_times(tmp_path: Path) -> None:
    cells = [synthetic.Cell(f"loader={name}", {"workers": i}, 4.0) for i, name in enumerate(("tensors", "dataset"))]
    made = synthetic.Study(
        cells, swept=("workers",), repeats=3, source="", settings={"profile": "inference", "steps": 5}
    )
    study = synthetic.write(made, tmp_path)
    found = findings(study)
    page = html.render(found, study)
    assert found.headline.startswith("Batch assembly: ") and "profiles" in found.headline
    assert list(_json(page, "chart-specs")) == [
        "interval-profile-clean-data_share",
        "interval-profile-types-Linear-forward_s",
    ]
    for word in ("training time", "Where the time goes", "Why not", "Throughput of"):
        assert word not in page.partition("<script")[0], word
