"""What is compared with accelerate's answers, what was computed with what was asked, and which batches DDP can train on."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from made_step import step_parts, task_of
from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.applied import check
from paceline.worker.measure.tally import Tally
from paceline.worker.sharding.equal_steps import check_equal_steps
from paceline.worker.step.accelerated import AcceleratedStep, Guarded
from paceline.worker.step.input import StepInput
from paceline.worker.transform.accelerated import Prepared, RankSetup, differences
from paceline.worker.transform.flow import Flow
from paceline.worker.transform.precision import disagreement, word
from paceline.worker.world.join import World

ASKED = RankSetup(2, 1, "MULTI_CPU", "cpu", "bf16", 1)


def world(size: int) -> World:
    return World(rank=0, size=size, local_rank=0, host="here", device=torch.device("cpu"), backend="gloo")


@pytest.mark.parametrize(
    ("got", "sentence"),
    [
        ({"num_processes": 1}, "accelerate sees a world of 1, not 2: it would train another model"),
        ({"process_index": 0}, "accelerate takes this process for rank 0, not 1"),
        ({"kind": "FSDP"}, "accelerate trains as FSDP, not as MULTI_CPU"),
        ({"device": "cuda:0"}, "accelerate trains on cuda:0, not on cpu"),
        ({"mixed_precision": "no"}, "accelerate has mixed precision no, not bf16"),
        ({"accumulation": 4}, "accelerate accumulates the gradients of 4 batches, not of 1"),
    ],
)
def test_each_difference_is_a_sentence(got: dict[str, Any], sentence: str) -> None:
    assert differences(ASKED, ASKED) == []
    found = differences(ASKED, replace(ASKED, **got))
    assert len(found) == 1 and found[0].startswith(sentence)


@pytest.mark.parametrize(
    ("asked", "computed", "agrees"),
    [
        ("fp32", ["float32"], True),
        ("fp32", [], True),
        ("fp32", ["bfloat16", "float32"], False),
        ("fp64", ["float64"], True),
        ("fp64", ["float32"], False),
        ("bf16", ["bfloat16", "float32"], True),
        ("bf16", ["float32"], False),
        ("bf16", [], False),
        ("bf16", ["bfloat16", "float16"], False),
        ("fp16", ["float16"], True),
        ("fp32", ["float32", "float8_e4m3fn"], False),
    ],
)
def test_what_was_computed_is_compared(asked: str, computed: list[str], agrees: bool) -> None:
    why = disagreement(asked, computed)
    assert (why is None) == agrees
    assert why is None or why.startswith(f"asked for precision {asked}, but the model's layers gave ")


def test_precision_is_read_from_what_flowed() -> None:
    assert word(["float32"], ["bfloat16", "float32"]) == "bf16"
    assert word(["float32"], ["float16"]) == "fp16"
    assert word(["float32"], []) == "fp32" and word(["float64"], ["float64"]) == "fp64"
    assert word(["float32", "float64"], []) == "fp32+fp64", "nothing we have a word for, so it agrees with nothing"


WHOLE = {"sharding": "none", "remat": "none", "kernel": "torch"}


def test_before_the_first_step_mixed_precision_has_weights_in_fp32() -> None:
    spec = Spec(task="features", threads=1, device="cpu", weight_decay=0.0, precision="bf16", wrap="accelerate")
    got = {
        "world_size": 1,
        "backend": "gloo",
        "device": "cpu",
        "threads": 1,
        "buffers": "mean",
        "optimizer": {"class": "Adam"},
        **WHOLE,
    }
    check(spec, {**got, "precision": "fp32"})
    with pytest.raises(RunFailed, match="got fp64"):
        check(spec, {**got, "precision": "fp64"})


def test_flow_sees_layers_and_leaves_no_hook() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    flow = Flow(model)
    with torch.autocast("cpu", torch.bfloat16):
        model(torch.ones(2, 3))
    flow.see({"more": [torch.ones(1, dtype=torch.float64), torch.ones(1, dtype=torch.int64)], "text": "no tensor"})
    assert flow.open and flow.close() == ("bfloat16", "float64")
    assert not flow.open and not any(module._forward_hooks for module in model.modules())


@pytest.mark.parametrize(
    ("num", "batch", "size", "steps", "fits"),
    [
        (64, 32, 2, None, True),  # no short batch
        (65, 32, 2, None, False),  # one sample for two ranks
        (66, 32, 2, None, True),  # one for each
        (66, 32, 3, None, False),
        (65, 32, 2, 2, True),  # ends before the short batch
        (65, 32, 2, 3, False),
        (65, 32, 1, None, True),
        (1, 32, 2, None, False),  # fewer samples than ranks
        (2, 32, 2, None, True),
    ],
)
def test_only_batches_that_are_trained_on_are_refused(
    num: int, batch: int, size: int, steps: int | None, fits: bool
) -> None:
    spec = Spec(task="features", wrap="accelerate", batch=batch, steps=steps, epochs=None if steps else 3)
    if fits:
        check_equal_steps(num, spec, world(size))
    else:
        with pytest.raises(RunFailed, match=f"{num % batch} of the {num} samples, too few for {size} ranks") as caught:
            check_equal_steps(num, spec, world(size))
        assert caught.value.kind == "mismatch"


class _Optimizer:
    """SGD at lr 0.1. Not torch's: stepping that imports its compiler, which writes into this process's environment."""

    step_was_skipped = False

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model

    def zero_grad(self, *, set_to_none: bool) -> None:
        self.model.zero_grad(set_to_none=set_to_none)

    def step(self) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter -= 0.1 * parameter.grad


def _step(model: torch.nn.Module, precision: str) -> AcceleratedStep:
    """The step with stand-ins for what accelerate gives: no Accelerator, which is one per process and lives in the environment."""
    task, flow = task_of(model), Flow(model)
    accelerator: Any = SimpleNamespace(backward=lambda loss: loss.backward())
    prepared = Prepared(accelerator, Guarded(model, task, flow), _Optimizer(model))
    plain = step_parts(model, Spec(task="features"), task=task, optimizer=torch.optim.SGD(model.parameters()))
    update: Any = SimpleNamespace(begin=lambda: None, clip=None)
    return AcceleratedStep(replace(plain, update=update), prepared, flow, precision=precision)


def test_a_step_is_the_mean_losss_update() -> None:
    model, twin = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    twin.load_state_dict(model.state_dict())
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 1, -100, 0])
    step, tally = _step(model, "fp32"), Tally()
    step(StepInput(iter([((x, y), 5, True)])), tally)
    torch.nn.functional.cross_entropy(twin(x), y).backward()
    _Optimizer(twin).step()
    assert torch.allclose(model.weight, twin.weight, rtol=0, atol=1e-7)
    assert step.computed == ("float32",) and tally.num == 5
    assert step.phases == ("forward", "communication", "backward", "optimizer")
    assert step.watch.parts.keys() == {"data", "optimizer", "forward", "backward"}, "nothing was sent"


def test_another_format_stops_the_run_before_the_first_update() -> None:
    model = torch.nn.Linear(3, 2)
    before = model.weight.detach().clone()
    with pytest.raises(RunFailed, match="asked for precision bf16, but the model's layers gave float32"):
        _step(model, "bf16")(iter([((torch.randn(4, 3), torch.tensor([0, 1, 1, 0])), 4, True)]), Tally())
    assert model.weight.equal(before)


def test_a_scaler_that_keeps_skipping_ends_the_run() -> None:
    model = torch.nn.Linear(3, 2)
    step = _step(model, "fp32")
    step.prepared.optimizer.step_was_skipped = True
    batch = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
    for _ in range(19):
        step(StepInput(iter([(batch, 4, True)])), Tally())
    with pytest.raises(RunFailed, match="20 updates in a row were left out") as caught:
        step(StepInput(iter([(batch, 4, True)])), Tally())
    assert caught.value.kind == "nonfinite"
