"""The shipped study of number formats on a CPU: what cannot be done there is a cell with a sentence, never a row of something else."""

from __future__ import annotations

import pytest

from paceline.commands.study import ready
from paceline.spec.host import Host

CPU = Host(2, 16 << 30, 0, "2.13.0+cpu", packages=frozenset({"accelerate"}))


@pytest.mark.parametrize("quick", [True, False])
def test_cells_on_a_cpu(quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.commands.prepare.here", lambda: CPU)
    plan = ready("precision", {}, quick=quick).expanded.plan
    skipped = {cell.label: cell.skipped for cell in plan.cells}
    assert [label for label, why in skipped.items() if why is None] == [
        "wrap=none precision=fp32", "wrap=none precision=fp16", "wrap=none precision=bf16",
        "wrap=accelerate precision=fp32", "wrap=accelerate precision=bf16",
    ]  # fmt: skip
    rules = {label: why.rpartition("(rule: ")[2] for label, why in skipped.items() if why}
    assert rules == {
        "wrap=none precision=fp8": "fp8-on-a-gpu)",
        "wrap=accelerate precision=fp16": "accelerate-drops-fp16)",
        "wrap=accelerate precision=fp8": "accelerate-leaves-layers-out)",
    }
    assert all(why is None or why.count("(rule: ") == 1 for why in skipped.values()), "one sentence each"
    assert len(plan.conclusions) == 5 and sum(bool(cell.reference) for cell in plan.cells) == 3
