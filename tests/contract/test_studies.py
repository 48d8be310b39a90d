"""Every shipped study: it reads, expands, has a reference for its cells, and its quick version is small."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.commands.study import ready, shipped
from paceline.records.study import StudyPlan
from paceline.spec.host import PACKAGES, PROGRAMS, here

STUDIES = shipped()
# Reports that conclude without a table.
NO_FIGURES = {"accumulation", "graphs", "sharding", "sharding-tables"}


def plan(name: str, *, quick: bool) -> StudyPlan:
    return ready(name, {}, quick=quick).expanded.plan


def test_the_issue_s_studies_ship() -> None:
    first = {"mnist-scaling", "optimizers", "batch-size", "launch-modes", "torchrun-scaling"}
    fifth = {"precision", "accumulation", "graphs", "sharding", "sharding-tables", "cifar-ddp", "gloo-vs-nccl"}
    assert set(STUDIES) >= first | fifth | {"accelerate-scaling", "gloo-vs-mpi"}


@pytest.mark.parametrize("name", STUDIES)
def test_it_expands_and_stands_beside_its_report(name: str) -> None:
    full = plan(name, quick=False)
    assert full.repeats >= 5
    assert full.source
    assert any(cell.reference for cell in full.cells) or name in NO_FIGURES
    assert full.conclusions, "a report's conclusion that no cell can confirm or refute"


@pytest.mark.parametrize("name", STUDIES)
def test_quick_is_small(name: str) -> None:
    """Under two minutes on two cores is measured in benchmarks/quick.py; here, that it cannot be far from it."""
    quick = plan(name, quick=True)
    assert quick.quick and quick.name == f"{name}-quick"
    runnable = [cell for cell in quick.cells if cell.skipped is None]
    assert len(runnable) * quick.repeats <= 12
    assert all((cell.spec["epochs"] or 0) <= 2 for cell in runnable)


def test_two_machines_are_kept_as_skipped_cells() -> None:
    skipped = [cell for cell in plan("torchrun-scaling", quick=False).cells if cell.skipped]
    assert [cell.settings["on"] for cell in skipped] == ["2x1", "2x2"]
    assert all("use launcher=slurm+torchrun" in str(cell.skipped) for cell in skipped)


@pytest.mark.parametrize("name", ["torchrun-scaling", "accelerate-scaling", "gloo-vs-mpi"])
def test_with_slurm_they_run_on_two_machines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same study with the launcher that reaches them: no cell is left out."""
    full = replace(here(), programs=frozenset(PROGRAMS), packages=frozenset(PACKAGES), mpi="openmpi")
    monkeypatch.setattr("paceline.commands.prepare.here", lambda: full)
    launcher = STUDIES[name].settings["launcher"]
    cells = ready(name, {"launcher": f"slurm+{launcher}"}).expanded.plan.cells
    assert {cell.settings["on"] for cell in cells} == {"1x1", "1x2", "2x1", "2x2"}
    assert [cell.skipped for cell in cells if cell.skipped] == []
