"""Every shipped study: it reads, expands, has a reference for its cells, and its quick version is small."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from contract.claims import CLAIMS
from paceline.analysis.possible import why_never
from paceline.base.errors import BadInput
from paceline.commands.study import never_judged, ready, shipped
from paceline.records.study import StudyPlan
from paceline.spec.conclusion import matches
from paceline.spec.host import PACKAGES, PROGRAMS, here
from paceline.spec.rules.table import RULES
from paceline.study.reports import parts

STUDIES = shipped()
# Reports that conclude without a table.
NO_FIGURES = {"accumulation", "graphs", "graphs-lengths", "sharding", "sharding-tables"}


def plan(name: str, *, quick: bool) -> StudyPlan:
    return ready(name, {}, quick=quick).expanded.plan


def test_the_issue_s_studies_ship() -> None:
    first = {"mnist-scaling", "optimizers", "batch-size", "launch-modes", "torchrun-scaling"}
    fifth = {"precision", "accumulation", "graphs", "sharding", "sharding-tables", "cifar-ddp", "gloo-vs-nccl"}
    assert set(STUDIES) >= first | fifth | {"accelerate-scaling", "gloo-vs-mpi", "graphs-lengths"}


@pytest.mark.parametrize("name", STUDIES)
def test_it_expands_and_stands_beside_its_report(name: str) -> None:
    full = plan(name, quick=False)
    assert full.repeats >= 5
    assert full.source
    assert any(cell.reference for cell in full.cells) or name in NO_FIGURES
    assert full.conclusions, "a report's conclusion that no cell can confirm or refute"
    cells = {cell.label for cell in full.cells}
    for said in full.conclusions:
        assert {said.baseline, said.candidate, *(said.equal_work or ())} <= cells, (
            f"{said.claim}: no such cell, or several"
        )
    assert never_judged(full) == []


@pytest.mark.parametrize("name", STUDIES)
def test_every_figure_of_a_report_stands_in_a_cell(name: str) -> None:
    """A row that fits no cell, or an earlier row's, would never be printed."""
    reference, full = STUDIES[name].reference, plan(name, quick=False)
    assert reference is not None
    for row in reference.rows:
        cells = [cell for cell in full.cells if matches(cell.settings, row.cell)]
        assert len(cells) == 1 and cells[0].reference == row.values, row.cell
        assert [why_never(metric, full.task, cells[0].spec) for metric in row.values] == [None] * len(row.values)
    for several in reference.repeated:
        assert several.metric in {said.metric for said in reference.conclusions}


def test_every_claim_of_the_reports_is_judged_or_says_what_it_waits_for() -> None:
    """The five reports claim by claim. A claim that is dropped from a study file, or made up for a report, is found here."""
    shipped_claims = {part.id: [*(fact.claim for fact in part.facts), *part.claims] for part in parts()}
    for file in STUDIES.values():
        for said in file.reference.conclusions if file.reference else []:
            if said.report is not None:
                shipped_claims[said.report].append(said.claim)
    assert {part: sorted(claims) for part, claims in shipped_claims.items()} == {
        part: sorted(claims) for part, claims in CLAIMS.items()
    }
    assert all(part.waits_for for part in parts() if part.claims)


def test_our_own_claims_are_ours() -> None:
    """What no report has said must not be printed as a report's conclusion."""
    ours = {
        said.claim
        for file in STUDIES.values()
        if file.reference
        for said in file.reference.conclusions
        if not said.report
    }
    assert ours == {
        "Fetching samples one by one is a larger share of the time than one indexed copy", "Sharding costs no accuracy",
        "Where the model decides by its own numbers, the dynamic graph is at home", "The same accuracy",
        "Cut by columns a table sends more than cut by rows", "FSDP sends more than plain data parallelism",
        "MPI is faster than gloo between two processes of one machine",
        "SGD without momentum keeps no state, and Adam two numbers a parameter",
        "There is one gradient for each parameter, however many micro-batches it is the sum of",
        "FSDP needs less memory than tensor parallelism", "Tensor parallelism communicates more than a sharded table",
        "Tensor parallelism is the more complex - more messages a step than FSDP",
        "A sharded table is the less complex - fewer messages a step than FSDP",
        "A sharded table has to fetch the rows it does not hold, so more is sent",
    }  # fmt: skip


def test_facts_that_can_be_computed() -> None:
    """What no study decides, and arithmetic does; a fact that stands on a rule names one that is there."""
    number = 6.342e-5
    assert struct.pack("<f", number) == bytes.fromhex("5A008538") and struct.pack(">f", number) == bytes.fromhex(
        "3885005A"
    )
    told = [fact.why for part in parts() for fact in part.facts]
    named = {rule for why in told for rule in re.findall(r"rule ([a-z0-9-]+)", why)}
    assert named and named <= {rule.name for rule in RULES}


@pytest.mark.parametrize(
    ("metric", "settings", "why"),
    [
        ("memory.sizs.optimizer", {}, "did you mean 'memory.sizes.optimizer'"),
        ("time.parts.data", {}, "unknown metric"),
        ("time.to_target_s", {}, "no target is set"),
        ("traffic.sent_bytes_per_step", {}, "one process sends nothing"),
        ("profile.types.Linear.forward_s", {}, "only runs with profile="),
        ("test.accuracy", {"profile": "inference"}, "no figures of training"),
        ("graph.compile_s", {}, "an eager step makes no graph"),
        ("cost.total", {}, "no price is set"),
        ("test.f1", {}, "no f1"),
    ],
)
def test_a_claim_that_can_never_be_judged_is_refused(
    metric: str, settings: dict[str, str], why: str, tmp_path: Path
) -> None:
    said = {"claim": "so", "metric": metric, "baseline": {"batch": 32}, "candidate": {"batch": 64}, "says": "lower"}
    file = {
        "study": "s", "task": "mnist-convnet", "settings": settings, "sweep": {"batch": [32, 64]},
        "reference": {"source": "nowhere", "conclusions": [said]},
    }  # fmt: skip
    (tmp_path / "s.yaml").write_text(json.dumps(file))
    with pytest.raises(BadInput, match=re.escape(why)):
        ready(str(tmp_path / "s.yaml"), {})


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
    assert [cell.settings["on"] for cell in skipped] == ["2x1", "2x2"] * 2
    assert all("use launcher=slurm+torchrun" in str(cell.skipped) for cell in skipped)


@pytest.mark.parametrize("name", ["torchrun-scaling", "accelerate-scaling", "gloo-vs-mpi"])
def test_with_slurm_they_run_on_two_machines(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same study with the launcher that reaches them: no cell is left out."""
    full = replace(here(), programs=frozenset(PROGRAMS), packages=frozenset(PACKAGES), mpi="openmpi")
    monkeypatch.setattr("paceline.commands.prepare.here", lambda: full)
    launcher = name.removesuffix("-scaling").replace("gloo-vs-mpi", "mpirun")
    cells = ready(name, {"launcher": f"slurm+{launcher}"}).expanded.plan.cells
    assert {cell.settings["on"] for cell in cells} == {"1x1", "1x2", "2x1", "2x2"}
    assert [cell.skipped for cell in cells if cell.skipped] == []
