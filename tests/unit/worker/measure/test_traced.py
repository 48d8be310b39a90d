"""torch's own trace of real modules, in this process: what the accounts rest on, whatever torch's version."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.worker.measure.accounts import Accounts
from paceline.worker.measure.ranges import Phases, around_modules
from paceline.worker.measure.traced import Trace
from paceline.worker.tasks.features import Features

CPU = torch.device("cpu")


def traced(model: nn.Module, work: Callable[[Phases], None]) -> Accounts:
    trace, phases = Trace(CPU), Phases()
    with around_modules(model), trace.recording():
        work(phases)
        phases.close()
    return Accounts(trace.roots(), name="test")


class Refuses(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError("not today")


class Odd(nn.Module):
    """What models do: one layer under two names, a recurrent net, a list, a layer that raises, keywords in and a dict out."""

    def __init__(self) -> None:
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.tied = self.shared
        self.rnn = nn.GRU(4, 4, batch_first=True)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))
        self.refuses = Refuses()
        self.never = nn.Linear(1, 1)

    def forward(self, x: torch.Tensor, *, scale: float) -> dict[str, Any]:
        x = self.tied(nn.functional.relu(self.shared(x)))
        x = self.rnn(x[:, None])[0][:, 0]
        for block in self.blocks:
            x = block(x)
        with pytest.raises(ValueError, match="not today"):
            self.refuses(x)
        return {"out": x * scale, "all": [x]}


def test_models_of_every_kind() -> None:
    model, x = Odd(), torch.ones(8, 4)

    def work(phases: Phases) -> None:
        for _ in range(3):
            phases.switch("forward")
            out = model(x, scale=2.0)["out"]
            phases.switch("backward")
            out.sum().backward()

    found = traced(model, work)
    assert {name: account.calls for name, account in found.modules.items()} == {
        "(model)": 3, "shared": 6, "rnn": 3, "blocks.0": 3, "blocks.0.0": 3, "blocks.0.1": 3, "blocks.1": 3, "blocks.1.0": 3,
        "blocks.1.1": 3, "refuses": 3,
    }  # fmt: skip
    own = sum(account.own_forward_s for account in found.modules.values())
    assert own == pytest.approx(found.modules["(model)"].forward_s, rel=1e-6)
    assert own == pytest.approx(found.in_modules_s, rel=1e-6)
    computing = {name for name, account in found.modules.items() if account.own_backward_s > 0}
    assert computing == {"(model)", "shared", "rnn", "blocks.0.0", "blocks.0.1", "blocks.1.0", "blocks.1.1"}
    assert found.modules["blocks.0"].backward_s > found.modules["blocks.0.0"].backward_s
    hooks = [getattr(part, name) for part in model.modules() for name in ("_forward_hooks", "_forward_pre_hooks")]
    assert not any(hooks), "the model is as it was"
    assert not any(part._forward_hooks_always_called for part in model.modules())


def test_the_memory_of_report_a_s_model() -> None:
    """100 batches of 32: 650.00 KB and 400.00 KB in the report. (Its BatchNorm has 425: older kernels kept two vectors more.)"""
    model, x = Features().model().eval(), torch.ones(32, 512)

    def work(phases: Phases) -> None:
        with torch.no_grad():
            for _ in range(100):
                phases.switch("forward")
                model(x)

    found = traced(model, work).modules
    assert found["linear1"].bytes + found["linear2"].bytes == 665_600
    assert found["activation"].bytes == 409_600
    assert 409_600 <= found["norm"].bytes <= 435_200
    assert found["(model)"].bytes == 0, "it computes nothing itself"


def test_a_scripted_part_counts_as_its_caller_s_own() -> None:
    scripted: Any = torch.jit.script(nn.Linear(4, 4))
    model = nn.Sequential(scripted, nn.ReLU())
    found = traced(model, lambda phases: (phases.switch("forward"), model(torch.ones(2, 4)))[0])
    assert list(found.modules) == ["(model)", "1"]


def test_the_trace_is_a_file_for_perfetto(tmp_path: Path) -> None:
    trace, model = Trace(CPU), nn.Linear(2, 2)
    with around_modules(model), trace.recording():
        model(torch.ones(1, 2))
    trace.save(tmp_path / "traces" / "rank.json.gz")
    events = json.loads(gzip.decompress((tmp_path / "traces" / "rank.json.gz").read_bytes()))["traceEvents"]
    assert {"module::(model)|Linear", "aten::linear"} <= {event.get("name") for event in events}
