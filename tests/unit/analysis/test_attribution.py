"""What holds over the runs of a cell: groups, bounds and stragglers in most of them, with intervals."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.analysis.attribution import causes, cell_bound, cell_stragglers, cost, training_means
from paceline.commands.report import findings
from paceline.records.record import Record, parse
from paceline.report.words.held_back import straggler
from unit.analysis.made import cell, parted, run, study

HUNGRY = {"data": 6.0, "forward": 2.0, "backward": 2.0}
BUSY = {"data": 1.0, "forward": 5.0, "backward": 4.0}


def _late(rank: int, *, last: int = 95, lag_s: float = 2.0, seed: int = 0) -> Record:
    each = {"data": 1.0, "forward": 5.0, "waiting": 2.0, "transfer": 2.0}
    rows: list[Any] = [{"last": 100 - last, "behind": 100 - last, "of": 100, "lag_s": -lag_s}] * 2
    rows[rank] = {"last": last, "behind": last, "of": 100, "lag_s": lag_s}
    return parted(each, each, late=rows, steps=100, seed=seed)


def test_means_over_ranks_and_runs_add_up_to_the_mean_training_time() -> None:
    means = training_means([parted(HUNGRY, training_s=10.5), parted(BUSY, training_s=10.5)])
    assert means == pytest.approx({"data": 3.5, "forward": 3.5, "backward": 3.0, "other": 0.5})
    assert training_means([parted(HUNGRY), run(1.0)]) == {} == training_means([])


def test_all_computing_is_one_cause() -> None:
    parts = {"compile": 1.0, "forward": 2.0, "optimizer": -0.5, "waiting": 1.0, "evaluation": 3.0, "other": 0.1}
    assert causes(parts) == {"compute": 2.5, "waiting": 1.0, "evaluation": 3.0, "other": 0.1}


def test_a_cell_is_bound_by_what_most_of_its_runs_are() -> None:
    found = cell_bound([parted(HUNGRY), parted(HUNGRY), parted(BUSY)])
    assert found is not None and found[0] == "data"
    assert found[1].mean == pytest.approx((0.6 + 0.6 + 0.1) / 3)  # of all runs, not only of those it holds in
    assert cell_bound([parted(HUNGRY), parted(BUSY)]) is None
    assert cell_bound([parted(HUNGRY), parted(HUNGRY), run(1.0)]) is None
    assert cell_bound([]) is None


def test_a_straggler_of_most_runs_is_named_with_its_delay() -> None:
    (found,) = cell_stragglers([_late(1, lag_s=s) for s in (1.9, 2.0, 2.1)])
    assert (found.rank, found.host, found.runs) == (1, "node1", 3)
    assert found.lag_s.mean == pytest.approx(0.02) and found.lag_s.low is not None and found.lag_s.low < 0.02
    assert straggler(found).startswith("rank 1 on node1 came 20 ms [")
    assert straggler(found).endswith("of the steps (n = 3)")


def test_the_figures_of_a_straggler_are_over_all_runs() -> None:
    (found,) = cell_stragglers([_late(1), _late(1), _late(1, last=50, lag_s=0.0)])
    assert found.lag_s.mean == pytest.approx((0.02 + 0.02 + 0) / 3) and "by the rule in 2 of 3 runs" in straggler(found)


def test_now_one_rank_and_now_the_other_is_no_straggler() -> None:
    assert cell_stragglers([_late(0), _late(1)]) == ()


def test_one_run_has_a_straggler_without_an_interval() -> None:
    (found,) = cell_stragglers([_late(1)])
    assert (
        "came 20 ms a step after the others, and last in 95 % of the steps (n = 1)" in straggler(found)
        and found.lag_s.low is None
    )


@pytest.mark.parametrize("samples", [0, None])
def test_no_samples_no_cost(samples: int | None) -> None:
    assert cost(parse({**parted(BUSY).plain, "samples": samples})) is None
    assert cost(parted(BUSY, samples=100)) == pytest.approx(
        {"data": 0.01, "forward": 0.05, "backward": 0.04, "other": 0}
    )


def test_a_study_says_which_cells_are_input_bound_and_who_is_late() -> None:
    cells = [cell("fed", [parted(BUSY)] * 3), cell("hungry", [parted(HUNGRY)] * 3), cell("two", [_late(1)] * 3)]
    found = findings(study(*cells))
    assert [c.bound for c in found.cells] == ["compute-bound", "input-bound", "compute-bound"]
    notes = [note for note in found.notes if note.startswith("Input-bound")]
    assert len(notes) == 1 and "hungry (60 % [60, 60])" in notes[0] and "fed" not in notes[0]
    assert any(note.startswith("two: rank 1 on node1 came 20 ms") for note in found.notes)
    assert found.missing == ()


def test_the_cell_has_its_shares_its_hidden_and_its_unexplained_time() -> None:
    told = ((1.0, 0.2), (2.0, 0.4))
    runs = [parted(BUSY, hidden_s=h, time={"wall_s": 20.0, "parts": {"other": other}}) for h, other in told]
    (found,) = findings(study(cell("a", runs))).cells
    assert found.training_shares == pytest.approx({"data": 0.1, "compute": 0.9, "other": 0.0})
    assert found.hidden_s == 1.5 and found.unexplained == pytest.approx(0.015)
