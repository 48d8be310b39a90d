"""Memory of one step, read from malloc, against arithmetic: 4 bytes a number, and what each optimizer keeps of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch._dynamo  # the first optimizer would: it sets an environment variable, and a test must not

from made_step import WORLD, step_parts
from paceline.spec.run import Spec
from paceline.worker.measure.allocator import Malloc, host_memory
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.memory import Memory
from paceline.worker.measure.sizes import resident
from paceline.worker.measure.tally import Tally
from paceline.worker.optim import build as optim
from paceline.worker.step.description import StepDescription
from paceline.worker.step.eager import EagerStep
from paceline.worker.step.input import StepInput
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.transform.precision import Arithmetic

WIDE, DEEP, BATCH = 512, 1024, 64


def model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(WIDE, DEEP), torch.nn.ReLU(), torch.nn.Linear(DEEP, 10))


NUMBERS = WIDE * DEEP + DEEP + DEEP * 10 + 10


def eager_step(
    net: torch.nn.Module, task: Task, optimizer: torch.optim.Optimizer, watch: Stopwatch, *, accumulate: int
) -> EagerStep:
    spec = Spec(task="features", batch=BATCH, accumulate=accumulate)
    parts = step_parts(net, spec, task=task, optimizer=optimizer)
    arithmetic = Arithmetic(spec, WORLD.device, None)
    description = StepDescription(task, arithmetic, in_one_piece=accumulate == 1)
    return EagerStep(replace(parts, description=description, watch=watch))


def looked_at(
    make: Callable[[], torch.nn.Module], *, optimizer: str, accumulate: int = 1, look: bool = True, steps: int = 2, data_held: int = 0,
    **more: Any,
) -> dict[str, Any]:  # fmt: skip
    host, why = host_memory()
    net = make()
    spec = Spec(
        task="features", threads=1, device="cpu", optimizer=optimizer, update="single", **{"weight_decay": 0.0, **more}
    )
    task = Task("made up", lambda: net, list, list, usual_forward, usual_loss, usual_score)
    update = optim.build(net.parameters(), spec)
    watch = Stopwatch("data")
    memory = Memory(net, update, host, why, watch)
    step = eager_step(net, task, update, watch, accumulate=accumulate)
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(BATCH, WIDE, generator=generator), torch.randint(0, 10, (BATCH,), generator=generator)
    for _ in range(steps):
        parts = list(zip(x.chunk(accumulate), y.chunk(accumulate), strict=True))

        def step_input() -> Any:
            for part in parts:  # noqa: B023
                watch.switch("data")
                yield part, len(part[0]), part is parts[-1]  # noqa: B023

        if look:
            with memory:
                step(StepInput(step_input(), None, BATCH), Tally())
        else:
            step(StepInput(step_input(), None, BATCH), Tally())
        watch.switch("data")
    return memory.close(data_bytes=None, data_held=data_held)


STATE = {"sgd": 0, "adam": 2, "adamw": 2, "rmsprop": 1}


@pytest.mark.parametrize("name", STATE)
def test_optimizer_state_is_what_arithmetic_says(name: str) -> None:
    found = looked_at(model, optimizer=name)
    sizes = found["sizes"]
    assert sizes["parameters"] == sizes["gradients"] == 4 * NUMBERS
    assert sizes["optimizer"] == pytest.approx(4 * NUMBERS * STATE[name], rel=0.02)
    assert sum(found["parts"].values()) == found["peak_bytes"]
    assert all(part >= 0 for part in found["parts"].values()), found["parts"]


def test_sgd_with_momentum_keeps_one_number_more() -> None:
    assert looked_at(model, optimizer="sgd", momentum=0.9)["sizes"]["optimizer"] == 4 * NUMBERS


def test_the_allocator_saw_the_same_tensors() -> None:
    """Malloc's own figure grows by what the first step makes and keeps: gradients and state. Arithmetic within 2 %."""
    allocator = Malloc()

    def first_step(net: torch.nn.Module) -> int:
        before = allocator.in_use()
        update = torch.optim.Adam(net.parameters())
        net(torch.randn(BATCH, WIDE)).sum().backward()
        update.step()
        return allocator.in_use() - before

    first_step(model())  # the libraries' own buffers are made once, and are not the model's
    grown = first_step(model())
    assert grown == pytest.approx(3 * 4 * NUMBERS, rel=0.02)


def test_activations_are_what_the_forward_pass_leaves() -> None:
    """The hidden layer once (ReLU keeps its result and not what went in), the outputs and their softmax; 4 bytes each."""
    found = looked_at(model, optimizer="sgd")
    assert found["sizes"]["activations"] == pytest.approx(4 * BATCH * (DEEP + 10 + 10), rel=0.05)


def test_accumulation_adds_no_gradient_memory() -> None:
    """Report C: "accumulation needs more memory because the gradients of each micro-batch are kept". They are summed in place."""
    whole, cut = looked_at(model, optimizer="adam"), looked_at(model, optimizer="adam", accumulate=8)
    assert cut["sizes"]["gradients"] == whole["sizes"]["gradients"] == 4 * NUMBERS
    assert cut["sizes"]["optimizer"] == whole["sizes"]["optimizer"]
    assert cut["sizes"]["activations"] < whole["sizes"]["activations"] / 4, "an eighth of the batch at a time"
    assert cut["peak_bytes"] <= whole["peak_bytes"] * 1.02


def test_accumulated_gradients_are_the_batchs() -> None:
    nets = [model().double(), model().double()]
    for net, accumulate in zip(nets, (1, 5), strict=True):
        x = torch.randn(BATCH, WIDE, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        y = torch.arange(BATCH) % 10
        task = Task("made up", lambda: net, list, list, usual_forward, usual_loss, usual_score)  # noqa: B023
        update = torch.optim.SGD(net.parameters(), lr=0.1)
        step = eager_step(net, task, update, Stopwatch("data"), accumulate=accumulate)
        cuts = zip(x.tensor_split(accumulate), y.tensor_split(accumulate), strict=True)
        step(StepInput(iter([(cut, len(cut[0]), True) for cut in cuts])), Tally())
    for left, right in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert float((left - right).detach().norm() / left.detach().norm()) < 1e-14


def test_looking_changes_nothing() -> None:
    nets = [model(), model()]
    for net, look in zip(nets, (True, False), strict=True):
        looked_at(lambda: net, optimizer="adam", look=look, steps=3)  # noqa: B023
    for left, right in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert left.equal(right)


def test_a_compiled_model_is_not_run_under_the_mode() -> None:
    """It would be run eagerly, and so be another model: only the ends of its phases are read."""

    class Compiled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self._orig_mod = model()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

            assert not _get_current_dispatch_mode_stack()
            return self._orig_mod(x)

    found = looked_at(Compiled, optimizer="adam")
    assert found["peak_bytes"] > 4 * 4 * NUMBERS and found["sizes"]["activations"] > 0


def test_another_malloc_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Malloc, "in_use", lambda self: 1000)
    found, why = host_memory()
    assert found is None and "do not come from glibc's malloc" in str(why)
    row = looked_at(model, optimizer="sgd", look=False)
    assert row["peak_bytes"] is None and row["why"] == why and row["sizes"]["parameters"] == 4 * NUMBERS


def test_resident_memory_is_the_processs_own() -> None:
    peak, now = resident()
    assert now is not None and 50e6 < now <= peak < 50e9


def test_the_data_set_is_a_part_and_not_in_what_the_step_needs() -> None:
    """What loading left counts, whoever holds it: here nobody does, so it is memory that something else took."""
    found = looked_at(model, optimizer="adam", data_held=100_000)
    assert found["parts"]["data"] == 100_000 and found["step_bytes"] == found["peak_bytes"] - 100_000
    assert sum(found["parts"].values()) == found["peak_bytes"]


def test_no_part_is_negative_when_the_data_is_gone_by_the_peak() -> None:
    """A Dataset may have let go of what it loaded."""
    found = looked_at(model, optimizer="adam", data_held=1 << 40)
    assert found["parts"]["other"] == 0 and found["parts"]["activations"] > 0
    assert sum(found["parts"].values()) == found["peak_bytes"] and found["step_bytes"] > 0


def test_gradients_at_the_peak_are_booked_where_they_belong() -> None:
    """They are computed some operators before autograd hands them over; the peak may lie between."""
    found = looked_at(model, optimizer="sgd")
    parts, largest = found["parts"], 4 * WIDE * DEEP
    assert found["peak_in"] == "backward" and parts["gradients"] >= largest
    assert parts["activations"] > 0 and sum(parts.values()) == found["peak_bytes"]


def test_the_larger_step_counts() -> None:
    """The second step of a small data set may hold one sample."""
    host, why = host_memory()
    net = model()
    update, watch = torch.optim.SGD(net.parameters(), lr=0.1), Stopwatch("data")
    memory = Memory(net, update, host, why, watch)
    for num in (BATCH * 16, 1):
        with memory:
            watch.switch("forward")
            loss = net(torch.randn(num, WIDE)).sum()
            watch.switch("backward")
            loss.backward()
            watch.switch("optimizer")
            update.step()
    assert memory.close(data_bytes=None)["sizes"]["activations"] > 4 * BATCH * 16 * DEEP * 0.9


def test_of_a_sparse_gradient_only_what_is_there_counts() -> None:
    host, why = host_memory()
    table = torch.nn.Embedding(100_000, 32, sparse=True)
    update, watch = torch.optim.SGD(table.parameters(), lr=0.1), Stopwatch("data")
    memory = Memory(table, update, host, why, watch)
    with memory:
        watch.switch("forward")
        loss = table(torch.arange(50)).sum()
        watch.switch("backward")
        loss.backward()
        watch.switch("optimizer")
        update.step()
    found = memory.close(data_bytes=None)
    assert found["sizes"]["gradients"] == 50 * 32 * 4 + 50 * 8
    assert found["parts"]["other"] >= 0


def test_a_heap_full_of_holes_is_not_read_after_every_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """malloc walks all free blocks for a reading: 30 ms on a heap with 300,000 of them (seen). Phases are read all the same."""
    calls: list[int] = []
    true = Malloc.in_use

    def slow(self: Malloc) -> int:
        calls.append(1)
        time.sleep(0.0005)
        return true(self)

    monkeypatch.setattr(Malloc, "in_use", slow)
    found = looked_at(model, optimizer="adam")
    assert len(calls) < 60, "some 200 operators were run"
    assert "ends of phases" in found["why"] and found["peak_bytes"] > 3 * 4 * NUMBERS


def test_parameters_that_are_not_mallocs_are_not_subtracted_from_it() -> None:
    """A model loaded by mapping a file: malloc has never heard of it, and the split would be nonsense."""
    import mmap

    mapped = torch.frombuffer(mmap.mmap(-1, 64 << 20), dtype=torch.float32)

    def make() -> torch.nn.Module:
        net = torch.nn.Sequential(torch.nn.Linear(WIDE, 10))
        net.mapped = torch.nn.Parameter(mapped, requires_grad=False)
        return net

    found = looked_at(make, optimizer="sgd")
    assert found["peak_bytes"] is None and set(found["parts"].values()) == {None}
    assert "some are not its own" in found["why"]


class _Chooses(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(WIDE, 16), torch.nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        return self.last(torch.cond(hidden.sum() > 0, torch.sin, torch.cos, (hidden,)))


class _CompiledInside(_Chooses):
    @torch.compile(fullgraph=True, backend="eager")
    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.first(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's own, about torch.cond
@pytest.mark.parametrize("make", [_Chooses, _CompiledInside])
def test_what_ran_before_runs_while_it_is_looked_at(make: Callable[[], torch.nn.Module]) -> None:
    found = looked_at(make, optimizer="sgd")
    assert found["sizes"]["gradients"] == found["sizes"]["parameters"] > 0
    torch._dynamo.reset()
