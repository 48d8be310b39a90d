"""Every sample of every rank, flat."""

from __future__ import annotations

from pathlib import Path

from paceline.analysis.export import COLUMNS, samples
from unit.analysis.made import cell, study
from unit.report import synthetic


def test_every_event_of_every_rank_of_every_run(tmp_path: Path) -> None:
    made = synthetic.Study([synthetic.Cell("1x2", {"on": "1x2"}, 10.0)], repeats=2, epochs=3, marks=4)
    rows = list(samples(synthetic.write(made, tmp_path / "s")))
    assert all(tuple(row) == COLUMNS for row in rows)
    losses = [row for row in rows if row["event"] == "mark" and row["metric"] == "loss"]
    assert len(losses) == 2 * 2 * 3 * 4  # repeats x ranks x epochs x marks
    assert {(row["repeat"], row["rank"], row["seed"]) for row in losses} == {
        (0, 0, 100),
        (0, 1, 100),
        (1, 0, 101),
        (1, 1, 101),
    }
    totals = [
        r
        for r in rows
        if r["event"] == "epoch" and r["scope"] == "all" and r["metric"] == "accuracy" and r["split"] == "test"
    ]
    assert len(totals) == 2 * 2 * 3 and {row["n"] for row in totals} == {2000}
    assert {row["host"] for row in rows} == {"bench-1"}


def test_failed_runs_are_exported_with_their_reason(tmp_path: Path) -> None:
    made = synthetic.Study([synthetic.Cell("1x1", {"on": "1x1"}, 10.0, broken={0: "no memory"})], repeats=1)
    rows = list(samples(synthetic.write(made, tmp_path / "s")))
    assert [row["text"] for row in rows if row["event"] == "broke"] == ["no memory"]
    assert {row["outcome"] for row in rows} == {"failed"}


def test_refused_cells_have_no_samples() -> None:
    assert list(samples(study(cell("a", [], skipped="no GPU")))) == []
