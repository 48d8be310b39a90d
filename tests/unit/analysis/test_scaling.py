"""Speed-up and efficiency, strong and weak."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.commands.report import findings
from paceline.records.study import CellRecord
from unit.analysis.made import study, timed


def _on(on: str, seconds: float, *, label: str | None = None, n: int = 5, **spec: Any) -> CellRecord:
    settings = {"on": on, **{k: v for k, v in spec.items() if k == "precision"}}
    return timed(label or on, seconds, n=n, settings=settings, spec={"on": on, **spec})


def test_strong_scaling_divides_training_times() -> None:
    rows = findings(study(_on("1x1", 40.0), _on("1x2", 25.0), _on("2x2", 16.0), swept=["on"])).scaling
    assert [row.kind for row in rows] == ["strong"] * 3 and {row.metric for row in rows} == {"time.training_s"}
    assert [row.speedup for row in rows] == pytest.approx([1.0, 1.6, 2.5])
    assert [row.efficiency for row in rows] == pytest.approx([1.0, 0.8, 0.625])
    low, high = rows[1].low, rows[1].high
    assert low is not None and high is not None and low <= 1.6 <= high


def test_weak_scaling_multiplies_throughput() -> None:
    found = findings(study(_on("1x1", 40.0, batch_per_rank=32), _on("1x2", 25.0, batch_per_rank=32), swept=["on"]))
    assert found.scaling[1].kind == "weak" and found.scaling[1].metric == "throughput"
    assert found.scaling[1].speedup == pytest.approx(1.6)
    assert any("weak scaling" in note for note in found.notes)


def test_another_global_batch_is_neither() -> None:
    assert findings(study(_on("1x1", 40.0), _on("1x2", 25.0, batch=48), swept=["on"])).scaling[1].kind == "mixed"
    assert findings(study(_on("1x1", 40.0), _on("1x2", 25.0, batch=64), swept=["on"])).scaling[1].kind == "weak"


def test_two_runs_give_a_speedup_without_interval() -> None:
    row = findings(study(_on("1x1", 40.0, n=2), _on("1x2", 25.0, n=2), swept=["on"])).scaling[1]
    assert row.speedup == pytest.approx(1.6) and row.low is None and row.n == 2


def test_each_group_has_its_own_baseline() -> None:
    cells = [
        _on("1x1", 40.0, label="fp32 1x1", precision="fp32"),
        _on("1x2", 20.0, label="fp32 1x2", precision="fp32"),
        _on("1x1", 80.0, label="fp64 1x1", precision="fp64"),
        _on("1x2", 50.0, label="fp64 1x2", precision="fp64"),
    ]
    rows = findings(study(*cells, swept=["on", "precision"])).scaling
    assert rows[3].baseline == "fp64 1x1" and rows[3].speedup == pytest.approx(1.6)


def test_no_sweep_over_topologies_no_scaling() -> None:
    assert findings(study(timed("a", 20.0), timed("b", 10.0))).scaling == ()


def test_two_forms_of_the_batch_share_one_process() -> None:
    """32 samples each and 32 in all are the same on one process: each scales from it, in its own kind."""
    one = _on("1x1", 40.0, batch=32)
    each, all_ = _on("1x2", 25.0, batch_per_rank=32, batch=64), _on("1x2", 30.0, batch=32)
    rows = findings(study(one, each, all_, swept=["on", "batch", "batch_per_rank"])).scaling
    assert [row.kind for row in rows[1:]] == ["weak", "strong"]
