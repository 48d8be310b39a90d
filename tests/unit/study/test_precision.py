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
    one, two = "on=1x1 batch=32", "on=1x2 batch_per_rank=32"
    refused = {
        f"wrap=none {one} precision=fp8": "fp8-on-a-gpu)",
        f"wrap=accelerate {one} precision=fp16": "accelerate-drops-fp16)",
        f"wrap=accelerate {one} precision=fp8": "accelerate-leaves-layers-out)",
        f"wrap=accelerate {two} precision=fp16": "accelerate-drops-fp16)",
    }
    reasons = {cell.label: cell.skipped for cell in plan.cells if cell.skipped}
    assert reasons.keys() == refused.keys() & {cell.label for cell in plan.cells}
    assert all(why.endswith(refused[label]) and why.count("(rule: ") == 1 for label, why in reasons.items())
    runnable = {(c.settings["wrap"], c.settings["precision"]) for c in plan.cells if not c.skipped}
    full = {("none", "fp32"), ("none", "fp16"), ("none", "bf16"), ("accelerate", "fp32"), ("accelerate", "bf16")}
    assert runnable == (full - {("accelerate", "bf16")} if quick else full)
    assert sum(bool(cell.reference) for cell in plan.cells) == (2 if quick else 6)
