"""Whole runs of one rank in each format, in this process: what the record would say, and how fp16 ends where it cannot train."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # the first optimizer would: it sets an environment variable, and a test must not

from paceline.base.errors import RunFailed
from paceline.base.files import write_json
from paceline.records.events import EventLog
from paceline.records.gather import refusal
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.worker.applied import check, check_steps, read_back
from paceline.worker.assemble import Parts, assemble
from paceline.worker.load import load
from paceline.worker.loop import train
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.observer import Observer
from paceline.worker.progress import Progress
from paceline.worker.resilience.weights import save
from paceline.worker.shared_data import load_data
from paceline.worker.tasks.load import load_task
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.world.join import World

WORLD = World(rank=0, size=1, local_rank=0, host="here", device=torch.device("cpu"), backend="gloo")
NUM = 64


def trained(run: RunDir, task: Task, **asked: Any) -> tuple[Parts, dict[str, Any]]:
    """As `run_training` does it, less processes, files and clocks."""
    words = {"threads": 1, "device": "cpu", "update": "single", "weight_decay": 0.0, "batch": 16, **asked}
    spec = Spec(task=task.name, **words)
    watch = Stopwatch("startup")
    parts = assemble(spec, task, load_data(spec, task, rank=0), WORLD, watch, (None, "not asked"))
    check(spec, read_back(parts))
    log = EventLog(run.events(0))
    observe = Observer(run, WORLD, log)
    try:
        train(parts, Progress(parts, observe))
    finally:
        observe.close()
        log.close()
    seen = {**read_back(parts), "accumulate": parts.step.num_micro()}
    check_steps(spec, seen)
    return parts, seen


def task(model: torch.nn.Module | None = None, *, times: float = 1.0) -> Task:
    """`times` makes gradients too large for fp16 while the loss itself stays finite."""

    def data() -> tuple[torch.Tensor, torch.Tensor]:
        made = torch.Generator().manual_seed(0)
        return torch.randn(NUM, 8, generator=made), torch.randint(0, 4, (NUM,), generator=made)

    def loss(outputs: Any, batch: Any) -> Any:
        total, count = usual_loss(outputs, batch)
        return total * times, count

    torch.manual_seed(0)  # one model to begin with, for tasks that are compared
    net = model or torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.Linear(16, 4))
    return Task("made", lambda: net, data, data, usual_forward, loss, usual_score)


@pytest.mark.parametrize(
    ("precision", "parameters", "computed"),
    [
        ("fp64", "float64", {"float64"}),
        ("fp32", "float32", {"float32"}),
        ("fp16", "float32", {"float16"}),
        ("bf16", "float32", {"bfloat16"}),
        ("bf16-pure", "bfloat16", {"bfloat16"}),
    ],
)
def test_each_format_is_the_one_in_the_record(
    precision: str, parameters: str, computed: set[str], tmp_path: Path
) -> None:
    parts, seen = trained(RunDir(tmp_path), task(), precision=precision, epochs=2)
    assert seen["precision"] == precision
    assert seen["dtypes"]["parameters"] == [parameters] and computed <= {*seen["dtypes"]["compute"]}
    assert seen["tf32"] == {"matmul": False, "convolution": False}
    expected = {"scale": 65536.0, "skipped_steps": 0, "steps": 8} if precision == "fp16" else None
    assert seen["scaler"] == expected
    weights = next(parts.model.parameters())
    state = parts.optimizer.state[weights]
    assert str(state["exp_avg"].dtype).removeprefix("torch.") == parameters
    assert weights.grad is not None and str(weights.grad.dtype).removeprefix("torch.") == parameters


def test_formats_train_different_models(tmp_path: Path) -> None:
    """The report's fp16 rows equalled its fp32 rows in every digit: fp16 was never applied."""
    ends = {}
    for precision in ("fp32", "fp16", "bf16", "bf16-pure"):
        parts, _ = trained(RunDir(tmp_path / precision), task(), precision=precision, epochs=1)
        ends[precision] = torch.cat([p.detach().double().reshape(-1) for p in parts.model.parameters()])
    for one, other in (("fp32", "fp16"), ("fp32", "bf16"), ("fp16", "bf16"), ("bf16", "bf16-pure")):
        assert 0 < float((ends[one] - ends[other]).norm() / ends[one].norm()) < 0.2, (one, other)


@pytest.mark.parametrize(
    ("steps", "said"),
    [(30, "20 updates in a row were left out"), (7, "all 7 updates of the run were left out")],
    ids=["a-mark-finds-it", "it-ends-before"],
)
def test_a_model_that_overflows_ends_the_run(steps: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(
        RunFailed, match=rf"^fp16: {said} because their gradients were not finite.* use bf16 or fp32"
    ) as caught:
        trained(RunDir(tmp_path), task(times=1e30), precision="fp16", steps=steps, epochs=None, log_every=20)
    assert caught.value.kind == "nonfinite"


def test_an_update_now_and_then_is_left_out_and_counted(tmp_path: Path) -> None:
    """A scale of 65536 is too much for this loss; some halvings later it trains."""
    _, seen = trained(RunDir(tmp_path), task(times=100.0), precision="fp16", epochs=8)
    assert 0 < seen["scaler"]["skipped_steps"] < seen["scaler"]["steps"] == 32
    assert seen["scaler"]["scale"] == 65536.0 / 2 ** seen["scaler"]["skipped_steps"]


def test_a_loss_that_overflows_is_named_as_such(tmp_path: Path) -> None:
    class Hot(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input) * 1e6

    with pytest.raises(RunFailed, match="the loss became") as caught:
        trained(RunDir(tmp_path), task(Hot(8, 4)), precision="fp16", steps=4, epochs=None)
    assert caught.value.kind == "nonfinite"


def test_a_task_that_moves_the_switches_while_it_trains(tmp_path: Path) -> None:
    class Mover(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            torch.backends.cudnn.allow_tf32 = True
            return super().forward(input)

    with pytest.raises(RunFailed, match="tf32=False for a convolution, got True after the last step"):
        trained(RunDir(tmp_path), task(Mover(8, 4)), precision="fp32", epochs=1)
    torch.backends.cudnn.allow_tf32 = True


def test_a_half_that_nobody_asked_for_is_no_fp32_run(tmp_path: Path) -> None:
    class Casts(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return super().forward(input)

    with pytest.raises(RunFailed, match="asked for precision fp32, but the model's layers gave bfloat16"):
        trained(RunDir(tmp_path), task(Casts(8, 4)), precision="fp32", epochs=1)


def test_a_pure_model_comes_back_as_it_was_trained(tmp_path: Path) -> None:
    run, params = RunDir(tmp_path), {"num_train": 64, "num_test": 16}
    parts, _ = trained(run, load_task("features", params, None), precision="bf16-pure", epochs=1)
    spec = parts.spec.model_copy(update={"task": "features", "params": params})
    save(parts.model, run.weights)
    write_json(run.spec, spec.plain())
    write_json(run.result, {**refusal(spec.plain(), "").plain, "outcome": "completed", "key": spec.key()})
    again = load(tmp_path)
    assert {p.dtype for p in again.parameters()} == {torch.bfloat16}
    x = torch.randn(3, 512, dtype=torch.bfloat16)
    assert again(x).equal(parts.model.eval()(x))
