"""After how many steps is a graph paid back? With answers computed by hand, and what may be said of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from paceline.commands.report import findings
from paceline.records.study import CellRecord
from paceline.report import markdown, plain
from paceline.report.words.spoken import SpokenPayback, SpokenStudy
from unit.analysis.made import SHAKE, cell, run, study

BATCH, STEPS = 10, 1000


def _cell(
    graph: str,
    step_s: float,
    compile_s: float | None = None,
    *,
    n: int = 5,
    shake: Sequence[float] = SHAKE,
    **spec: Any,
) -> CellRecord:
    """Runs of 1,000 steps of 10 samples; a step takes `step_s`, shaken alike in every cell."""
    runs = []
    for i, by in enumerate(shake[:n]):
        counts = {"of": "model", "graphs": 2, "breaks": 2, "recompiles": 1, "eager_steps": 0}
        reasons = {
            "break_reasons": ["Data-dependent branching (task.py, line 7)"],
            "recompile_reasons": ["size mismatch"],
        }
        made = None if compile_s is None else {**counts, **reasons, "compile_s": compile_s * by}
        figures = {"throughput": BATCH / (step_s * by), "samples": BATCH * STEPS, "steps": STEPS, "graph": made}
        runs.append(run(step_s * STEPS, seed=i, spec={"graph": graph, "graph_of": "model", **spec}, **figures))
    return cell(f"graph={graph}", runs, settings={"graph": graph})


def _found(*cells: CellRecord) -> SpokenStudy:
    return findings(study(*cells, swept=["graph"]))


def _row(*cells: CellRecord) -> SpokenPayback:
    (row,) = _found(*cells).payback
    return row


def test_by_hand() -> None:
    """3 s for steps of 1 ms instead of 3 ms: after 1,500 steps, and these runs had 1,000."""
    row = _row(_cell("eager", 3e-3), _cell("compile", 1e-3, 3.0))
    assert row.steps is not None and row.verdict == "paid back"
    assert row.steps.mean == pytest.approx(1500, rel=1e-3)
    assert row.steps.low is not None and row.steps.high is not None and row.steps.low <= 1500 <= row.steps.high
    assert "instead of 3 ms" in row.words and "paid back after 1,500" in row.words
    assert "these runs had 1,000, too few." in row.words
    assert "broke in 2 places: Data-dependent branching (task.py, line 7). It was compiled again 1 time." in row.words
    assert row.counts == {"graphs": 2, "breaks": 2, "recompiles": 1, "eager_steps": 0}


def test_enough_steps() -> None:
    assert "these runs had 1,000, enough." in _row(_cell("eager", 3e-3), _cell("compile", 1e-3, 1.0)).words


def test_never_where_it_is_slower() -> None:
    row = _row(_cell("eager", 1e-3), _cell("compile", 1.2e-3, 3.0))
    assert (row.verdict, row.steps) == ("never", None)
    assert "never paid back (n = 5)" in row.words


def test_no_number_where_no_difference_is_shown() -> None:
    """The same mean, shaken otherwise: a number of steps would be the noise's own."""
    row = _row(_cell("eager", 1e-3), _cell("compile", 1e-3, 3.0, shake=(0.99, 1.005, 1.01, 0.995, 1.0)))
    assert (row.verdict, row.steps) == ("not shown", None)
    assert "no number of steps can be named" in row.words


def test_too_few_runs_claim_nothing() -> None:
    found = _found(_cell("eager", 3e-3, n=1), _cell("compile", 1e-3, 3.0, n=1))
    (row,) = found.payback
    assert row.verdict == "too few runs" and row.steps is not None and row.steps.low is None
    assert "by these runs paid back after 1,500 steps, but it takes 3 paired runs to say so (n = 1)" in row.words
    assert "No graph is shown to be paid back." in found.headline


def test_only_the_eager_cell_that_differs_in_nothing_else() -> None:
    """Another batch is another step; the way of the update may differ, because a graph may need another."""
    found = _found(_cell("eager", 3e-3, batch=64), _cell("compile", 1e-3, 3.0, batch=32))
    assert found.payback == () and "paid back" not in found.headline
    assert _row(_cell("eager", 3e-3, update="single"), _cell("compile", 1e-3, 3.0, update="foreach")).steps is not None


def test_the_same_way_of_the_update_where_the_study_has_it() -> None:
    """By the other eager cell it would be 1,500 steps."""
    eager = (_cell("eager", 3e-3, update="single"), _cell("eager", 2e-3, update="foreach"))
    row = _row(*eager, _cell("compile", 1e-3, 3.0, update="foreach"))
    assert row.steps is not None and row.steps.mean == pytest.approx(3000, rel=1e-3)


def test_a_study_without_graphs_has_none() -> None:
    assert _found(_cell("eager", 3e-3)).payback == ()


def test_the_headline_and_every_format_have_it() -> None:
    found = _found(_cell("eager", 3e-3), _cell("compile", 1e-3, 3.0), _cell("export", 2.9e-3, 0.3))
    assert "Soonest paid back: graph=compile, after 1,500 [1,500, 1,500] steps." in found.headline
    assert [row["label"] for row in plain.render(found)["payback"]] == ["graph=compile", "graph=export"]
    page = markdown.render(found)
    assert (
        "## After how many steps is a graph paid back?" in page
        and "| graph=compile | 3.00 s | 1.00 ms | 3.00 ms | 1,500 \\[1,500, 1,500\\] |" in page
    )
