"""What each number format means for weights, batches, arithmetic and products, and how it is read back from what flowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.applied import check
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.transform import precision
from paceline.worker.transform.flow import Flow
from paceline.worker.transform.precision import Arithmetic, disagreement, word
from paceline.worker.world.seed import kept

CPU = torch.device("cpu")


def spec(precision: str, **more: Any) -> Spec:
    return Spec(task="features", precision=precision, **more)


@pytest.fixture
def switches() -> Iterator[None]:
    """torch's own, put back: they are the process's."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.backends.fp32_precision = "none"
    torch.set_float32_matmul_precision(before[0])
    torch.backends.cudnn.allow_tf32 = before[1]


@pytest.mark.parametrize(
    ("asked", "weights", "batches", "arithmetic"),
    [
        ("fp64", torch.float64, torch.float64, None),
        ("fp32", torch.float32, torch.float32, None),
        ("tf32", torch.float32, torch.float32, None),
        ("fp16", torch.float32, torch.float32, torch.float16),
        ("bf16", torch.float32, torch.float32, torch.bfloat16),
        ("bf16-pure", torch.bfloat16, torch.float32, None),
        ("fp8", torch.float32, torch.float32, torch.bfloat16),
    ],
)
def test_formats(asked: str, weights: torch.dtype, batches: torch.dtype, arithmetic: torch.dtype | None) -> None:
    assert precision.dtype(spec(asked)) == weights and precision.data_dtype(spec(asked)) == batches
    assert (precision.entrance(spec(asked), CPU) is None) == (weights == batches)
    numbers = Arithmetic(spec(asked), CPU, None)
    assert numbers.half_dtype == arithmetic
    assert numbers.half == (asked in ("fp16", "bf16", "bf16-pure", "fp8"))
    linear = torch.nn.Linear(4, 2).to(weights)
    with numbers.autocast():
        outputs = linear(torch.ones(3, 4, dtype=weights))
    assert outputs.dtype == (arithmetic or weights)
    assert numbers.full_precision({"a": [outputs]})["a"][0].dtype == (
        torch.float64 if asked == "fp64" else torch.float32
    )


def test_fsdps_policy_casts_so_autocast_does_not() -> None:
    numbers = Arithmetic(spec("bf16", sharding="fsdp"), CPU, None, by_policy=True)
    with numbers.autocast():
        assert torch.nn.Linear(4, 2)(torch.ones(3, 4)).dtype == torch.float32
    assert numbers.half_dtype == torch.bfloat16 and numbers.half


@pytest.mark.parametrize(
    ("parameters", "computed", "more", "said"),
    [
        (["bfloat16"], [], {}, "bf16-pure"),
        (["bfloat16"], ["bfloat16", "float32"], {}, "bf16-pure"),
        (["bfloat16"], ["bfloat16", "float16"], {}, "fp16"),
        (["float16"], ["float16"], {}, "fp16-pure"),  # a word that no setting has, so it agrees with none
        (["float32"], ["float32"], {"tf32": True}, "tf32"),
        (["float64"], ["float64"], {"tf32": True}, "fp64"),
        (["float32"], ["bfloat16"], {"tf32": True}, "bf16"),
        (["float32"], ["bfloat16"], {"fp8": True}, "fp8"),
        (["float32"], [], {"fp8": True}, "fp32"),
    ],
)
def test_the_word_for_what_was_found(
    parameters: list[str], computed: list[str], more: dict[str, bool], said: str
) -> None:
    assert word(parameters, computed, **more) == said


@pytest.mark.parametrize(
    ("asked", "computed", "agrees"),
    [
        ("tf32", ["float32"], True),
        ("tf32", ["bfloat16", "float32"], False),
        ("bf16-pure", ["bfloat16"], True),
        ("bf16-pure", ["bfloat16", "float32"], True),  # a softmax in fp32 by the model's own wish
        ("bf16-pure", ["float32"], False),
        ("bf16-pure", [], True),  # the weights were checked
        ("fp8", ["bfloat16", "float32"], True),
        ("fp8", ["float32"], False),
        ("fp8", [], False),
    ],
)
def test_what_flowed_is_compared(asked: str, computed: list[str], agrees: bool) -> None:
    assert (disagreement(asked, computed) is None) == agrees


def test_pure_weights_are_compared_before_the_first_step() -> None:
    got = {
        "world_size": 1, "backend": "gloo", "device": "cpu", "threads": 1, "buffers": "mean", "optimizer": {"class": "Adam"},
        "sharding": "none", "remat": "none", "kernel": "torch", "tf32": {"matmul": False, "convolution": False},
    }  # fmt: skip
    asked = spec("bf16-pure", threads=1, device="cpu", weight_decay=0.0)
    check(asked, {**got, "precision": "bf16-pure"})
    with pytest.raises(RunFailed, match="asked for precision bf16-pure, got fp32"):
        check(asked, {**got, "precision": "fp32"})
    with pytest.raises(RunFailed, match="asked for tf32=False for a convolution, got True"):
        check(asked, {**got, "precision": "bf16-pure", "tf32": {"matmul": False, "convolution": True}})


@pytest.mark.usefixtures("switches")
@pytest.mark.parametrize("asked", ["fp32", "fp64", "bf16"])
def test_products_are_exact_unless_tf32_is_asked_for(asked: str) -> None:
    """Whatever a task's file did when it was imported; cuDNN's convolutions round by torch's own default."""
    torch.set_float32_matmul_precision("medium")
    torch.backends.cudnn.allow_tf32 = True
    assert precision.products() == {"matmul": True, "convolution": True}
    precision.set_products(spec(asked), CPU)
    assert precision.products() == {"matmul": False, "convolution": False}


@pytest.mark.usefixtures("switches")
def test_tf32_is_never_believed_of_a_cpu() -> None:
    with pytest.raises(RunFailed, match=r"precision tf32, which needs a GPU of capability 8\.0") as caught:
        precision.set_products(spec("tf32"), CPU)
    assert caught.value.kind == "mismatch"


@pytest.mark.usefixtures("switches")
def test_switches_that_torch_itself_cannot_read_are_a_sentence() -> None:
    torch.backends.fp32_precision = "tf32"
    precision.set_products(spec("fp32"), CPU)
    with pytest.raises(RunFailed, match="the task has moved its fp32_precision switches") as caught:
        precision.products()
    assert caught.value.kind == "mismatch"


def _task(model: torch.nn.Module) -> Task:
    return Task("t", lambda: model, list, list, usual_forward, usual_loss, usual_score)


def test_a_pure_model_gets_its_inputs_in_its_format_and_the_loss_its_targets_as_they_are() -> None:
    """1234.5 is 1232 in bf16: a score against that would be a score of something else."""
    model = torch.nn.Linear(2, 1).to(torch.bfloat16)
    task, asked = _task(model), spec("bf16-pure")
    batch = torch.ones(3, 2), torch.full((3,), 1234.5)
    whole = TaskModule(model, task, precision.entrance(asked, CPU))
    outputs = Arithmetic(asked, CPU, None).full_precision(whole(batch))
    total, count, _ = task.loss_of(outputs, batch, 3)
    assert outputs.dtype == total.dtype == torch.float32
    assert float(total.detach()) / count == pytest.approx(float((outputs[0].detach() - 1234.5) ** 2))
    total.backward()
    assert model.weight.grad is not None and model.weight.grad.dtype == torch.bfloat16


class Noisy(torch.nn.Module):
    """Everything a look could leave a trace in: dropout, running statistics, and numbers drawn whatever the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.drop = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)
        self.frozen = torch.nn.BatchNorm1d(4).eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(self.frozen(self.norm(self.linear(x)))) + torch.rand(1)


def looking(asked: str) -> tuple[TaskModule, Arithmetic]:
    torch.manual_seed(0)
    model = Noisy()
    model.train()
    model.frozen.eval()
    return TaskModule(model, _task(model)), Arithmetic(spec(asked), CPU, Flow(model), aside=lambda: kept(CPU))


def test_a_look_leaves_no_trace() -> None:
    whole, numbers = looking("bf16")
    state = {name: values.clone() for name, values in whole.model.state_dict().items()}
    random = torch.get_rng_state()
    assert numbers.looking
    numbers.look_at(whole, (torch.randn(5, 4, generator=torch.Generator().manual_seed(1)), torch.zeros(5)))
    assert numbers.computed == ("bfloat16", "float32"), "the norm keeps fp32 in a sum with what was drawn in fp32"
    assert not numbers.looking and not any(module._forward_hooks for module in whole.modules())
    assert all(values.equal(state[name]) for name, values in whole.model.state_dict().items())
    assert torch.get_rng_state().equal(random)
    assert whole.training and whole.model.norm.training and not whole.model.frozen.training  # pyright: ignore
    assert all(parameter.grad is None for parameter in whole.parameters())


def test_a_look_that_sees_something_else_fails_and_restores() -> None:
    whole, numbers = looking("fp16")
    numbers.autocast = lambda: torch.autocast("cpu", torch.bfloat16)  # somebody else's doing
    with pytest.raises(RunFailed, match=r"asked for precision fp16, but the model's layers gave bfloat16") as caught:
        numbers.look_at(whole, (torch.randn(5, 4), torch.zeros(5)))
    assert caught.value.kind == "mismatch" and whole.model.training


def test_only_the_first_look_looks() -> None:
    whole, numbers = looking("fp32")
    numbers.look_at(whole, (torch.randn(5, 4), torch.zeros(5)))
    numbers.look_at(lambda _: pytest.fail("looked twice"), None)
    assert numbers.computed == ("float32",)
