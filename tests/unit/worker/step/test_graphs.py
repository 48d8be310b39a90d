"""A step through a graph makes the same model as a step without one: fp64, to 1e-10, with BatchNorm and a short last batch.

One model and one step go through torch's C++ compiler; the other cases through its backend that makes the same graph and runs it
operator by operator, which is quick.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch._dynamo
from torch._dynamo.exc import BackendCompilerFailed
from torch._inductor.exc import CppCompileError, InductorError

from made_step import WORLD, step_parts, task_of
from paceline.base.errors import RunFailed
from paceline.spec.run import Spec
from paceline.worker.measure.allocator import host_memory
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.measure.compiles import Compiles
from paceline.worker.measure.memory import Memory
from paceline.worker.measure.tally import Tally
from paceline.worker.optim.schedule import Length, rate
from paceline.worker.samples import Samples
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.step.batches import GraphBatches, HostBatches
from paceline.worker.step.compiled import CompiledStep
from paceline.worker.step.eager import EagerStep
from paceline.worker.step.executor import Step
from paceline.worker.step.input import StepInput
from paceline.worker.step.model_graph import ModelGraphStep
from paceline.worker.step.proof import alike
from paceline.worker.step.single_graph import SingleGraphStep
from paceline.worker.step.update import Update
from paceline.worker.tasks.feed import TensorFeed
from paceline.worker.tasks.order import epoch_order, training_pieces
from paceline.worker.tasks.task import Task
from paceline.worker.tasks.usual import usual_forward, usual_loss, usual_score
from paceline.worker.transform.graph import Compiler, Exported, signature
from unit_step import OnHost

SIZES = (16, 16, 16, 6, 16, 16, 16, 6)  # two epochs of 54 samples, each with a short last batch
TOLERANCE = 1e-10
_DRAWN = torch.Generator().manual_seed(5)
DATA = (
    torch.randn(54, 8, dtype=torch.float64, generator=_DRAWN),
    torch.randint(0, 5, (54,), generator=_DRAWN),
)
RATE = 1e-6  # where torch reads the learning rate as float32 (its fused SGD)

# torch's compiler and its export warn of their own use of old names
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module", autouse=True)
def compiler() -> Iterator[None]:
    """Where torch keeps what it compiled, said out loud: left to itself it writes that into the environment. One thread, no processes."""
    import torch._inductor.config as inductor

    # torch's own patch of its settings: pytest's would take the setting away when it puts it back
    with pytest.MonkeyPatch.context() as patch, inductor.patch(compile_threads=1):
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"))
        patch.setattr(torch._dynamo.config, "fail_on_recompile_limit_hit", True)
        yield


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    os.environ.pop(
        "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR", None
    )  # how torch hands an address to what it has compiled


class Warm(Compiler):
    """The same compiler with the cache that is there: a cold one is shown by the run in tests/e2e/test_graphs.py."""

    def __init__(self, backend: str) -> None:
        super().__init__(WORLD.device, threads=1, kept=True, backend=backend)
        self._ready = True


class Exits(torch.nn.Module):
    """Decides by a number it has just computed."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        if y.mean() > 0:
            return y
        return y * 2


def network() -> torch.nn.Module:
    # No bias before BatchNorm: its gradient is rounding noise, which Adam would blow up to full size.
    layers = (torch.nn.Linear(8, 12, bias=False), torch.nn.BatchNorm1d(12), torch.nn.ReLU(), torch.nn.Linear(12, 5))
    return torch.nn.Sequential(*layers)


@dataclass
class Made:
    """A step of some kind, and all it works on."""

    model: torch.nn.Module
    step: Step
    update: Update
    watch: Stopwatch
    task: Task

    def train(self, sizes: tuple[int, ...] = SIZES) -> list[dict[str, Any]]:
        """The means of every epoch."""
        rows, tally = [], Tally()
        for index, size in enumerate(sizes):
            generator = torch.Generator().manual_seed(index)
            x = torch.randn(size, 8, dtype=torch.float64, generator=generator)
            y = torch.randint(0, 5, (size,), generator=generator)
            self.watch.switch("data")
            self.step(StepInput(iter([((x, y), size, True)])), tally)
            if size != sizes[0] or index + 1 == len(sizes):
                rows.append({**tally.means(), "num": tally.num})
                tally = Tally()
        return rows


def brighter(batch: Any, keys: torch.Tensor) -> Any:
    """An augmentation: each sample by a factor of its own."""
    return batch[0] * (1 + (keys % 7).double() / 10)[:, None], batch[1]


def by_place(made: Made, *, epochs: int = 3) -> list[dict[str, Any]]:
    """The same over a data set in memory, in another order every epoch: 54 samples, so the last batch is short."""
    feed, rows = TensorFeed(DATA), []
    for epoch in range(epochs):
        order = epoch_order(feed.num, seed=1, epoch=epoch, shuffle=True)
        pieces, tally = training_pieces(order, batch=16, rank=0, world_size=1), Tally()
        samples = Samples(feed, made.task, made.watch, WORLD.device, seed=1, accumulate=1)
        for step_input in samples.steps(pieces, epoch=epoch):
            made.step(step_input, tally)
        rows.append({**tally.means(), "num": tally.num})
    return rows


def made(
    kind: str, net: Callable[[], torch.nn.Module] = network, backend: str = "aot_eager", *, data: Any = None, augment: Any = None,
    loss: Any = usual_loss, score: Any = usual_score, forward: Any = usual_forward, **asked: Any,
) -> Made:  # fmt: skip
    torch.manual_seed(3)
    model = net().double()
    task = task_of(model, forward=forward, loss=loss, score=score, augment=augment)
    given: dict[str, Any] = {
        "task": "features", "threads": 1, "device": "cpu", "precision": "fp64", "lr": 0.01, "weight_decay": 0.0, "steps": len(SIZES),
        "batch": 16, "update": "foreach" if kind == "step" else "single", **asked,
    }  # fmt: skip
    spec = Spec(**given)
    moving = spec.schedule != "constant"
    schedule = (lambda i: rate(spec, Length(len(SIZES), 4), i)) if moving else None
    parts = step_parts(model, spec, task=task, schedule=schedule, data=data)
    compiles = Compiles(parts.watch)
    step: Step = EagerStep(parts)
    if kind == "step":
        step = CompiledStep(parts, compiles, Warm(backend))
    elif kind == "captured":
        step = OnHost(parts, compiles)
    elif kind != "eager":
        step = ModelGraphStep(parts, compiles, Warm(backend) if kind == "compile" else None)
    model.train()
    return Made(model, step, parts.update, parts.watch, task)


def same(one: Made, other: Made, tolerance: float = TOLERANCE) -> None:
    for (name, ours), theirs in zip(one.model.state_dict().items(), other.model.state_dict().values(), strict=True):
        far = (ours.double() - theirs.double()).norm() / theirs.double().norm()
        assert float(far) < tolerance, (name, float(far))


def same_epochs(one: Made, other: Made) -> None:
    for ours, theirs in zip(one.train(), other.train(), strict=True):
        assert ours.keys() == theirs.keys()
        assert all(abs(ours[name] - theirs[name]) < TOLERANCE for name in ours), (ours, theirs)


def test_a_compiled_model_trains_as_the_plain_one() -> None:
    """torch's own rule for shapes: the short batch is compiled once more, with that dimension free, and never again."""
    graph, plain = made("compile", backend="inductor"), made("eager")
    same_epochs(graph, plain)
    same(graph, plain)
    assert graph.step.read_back() == {"wrap": "none", "graph": "compile", "graph_of": "model"}
    assert graph.step.computed == ("float64",)
    found = graph.step.finish()
    assert found is not None and (found["graphs"], found["breaks"], found["recompiles"]) == (2, 0, 1)
    assert "size mismatch" in found["recompile_reasons"][0]
    assert found["compile_s"] == graph.watch.parts["compile"] > 0
    assert {"forward", "backward", "optimizer"} <= set(graph.watch.parts) and "step" not in graph.watch.parts
    assert plain.step.finish() is None and plain.step.read_back()["graph"] == "eager"


@pytest.mark.parametrize(
    ("backend", "asked"),
    [
        ("inductor", {"optimizer": "adam", "clip": 0.5}),
        ("aot_eager", {"optimizer": "adamw", "weight_decay": 0.1, "schedule": "onecycle"}),
        ("aot_eager", {"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "weight_decay": 0.1, "schedule": "cosine"}),
        ("aot_eager", {"optimizer": "rmsprop", "momentum": 0.5, "schedule": "exponential", "lr": 0.001}),
    ],
)  # fmt: skip
def test_a_step_that_is_one_graph_trains_as_the_plain_one(backend: str, asked: dict[str, Any]) -> None:
    graph, plain = made("step", backend=backend, **asked), made("eager", **asked)
    same_epochs(graph, plain)
    same(graph, plain)
    assert graph.step.read_back() == {"wrap": "none", "graph": "compile", "graph_of": "step"}
    if "clip" in asked:
        ours, theirs = graph.update.read_back()["clip"], plain.update.read_back()["clip"]
        assert 0 < ours["steps"] == theirs["steps"], "counted inside the graph, and in the steps outside of it"
        assert abs(ours["longest"] - theirs["longest"]) < TOLERANCE
    found = graph.step.finish()
    assert found is not None and (found["graphs"], found["breaks"], found["recompiles"]) == (1, 0, 0)
    assert found["eager_steps"] == 3, "the first, which makes the optimizer's state, and the two short batches"
    assert set(graph.watch.parts) == {"data", "step", "compile"}, "nothing inside a step is told apart"


def test_a_captured_step_trains_as_the_plain_one() -> None:
    """All of it but the recording itself, which tests/gpu/test_graphs.py makes: what is copied where, counted and given back."""
    asked: dict[str, Any] = {"optimizer": "sgd", "momentum": 0.9, "schedule": "cosine", "clip": 0.5}
    graph, plain = made("captured", update="fused", **asked), made("eager", **asked)
    for ours, theirs in zip(graph.train(), plain.train(), strict=True):
        assert all(abs(ours[name] - theirs[name]) < RATE for name in ours), (ours, theirs)
    same(graph, plain, RATE)
    graph.step.read_back()
    assert graph.update.read_back()["clip"]["steps"] == plain.update.read_back()["clip"]["steps"] > 0
    found = graph.step.finish()
    assert found is not None and (found["graphs"], found["eager_steps"]) == (1, 5), (
        "three first ones and two short ones"
    )
    assert set(graph.watch.parts) == {"data", "step", "compile"}


@pytest.mark.parametrize(
    ("kind", "backend", "augment", "batches"),
    [
        ("step", "aot_eager", None, HostBatches), ("step", "inductor", brighter, HostBatches),
        ("step", "aot_eager", brighter, GraphBatches),
        ("step", "inductor", None, GraphBatches), ("captured", "aot_eager", brighter, GraphBatches),
    ],
)  # fmt: skip
def test_a_graph_that_comes_by_its_own_samples_trains_as_the_plain_step(
    kind: str, backend: str, augment: Any, batches: Any
) -> None:
    """It knows its place in the epoch, through short batches, which are ordinary steps, and new orders. A compiled step fetches
    its samples itself on a GPU only, which is no other code than here."""
    asked: dict[str, Any] = {"optimizer": "adam"} if kind == "step" else {"optimizer": "sgd", "update": "fused"}
    graph = made(kind, backend=backend, data=DATA, augment=augment, **asked)
    assert isinstance(graph.step, SingleGraphStep) and graph.step.batches_of is (
        HostBatches if kind == "step" else GraphBatches
    )
    graph.step.batches_of = batches
    plain = made("eager", augment=augment, **{**asked, "update": "single"})
    for ours, theirs in zip(by_place(graph), by_place(plain), strict=True):
        assert ours.keys() == theirs.keys() and ours["num"] == theirs["num"] == 54
        assert all(abs(ours[name] - theirs[name]) < RATE for name in ours), (ours, theirs)
    same(graph, plain, TOLERANCE if kind == "step" else RATE)
    found = graph.step.finish()
    first = 1 if kind == "step" else 3
    assert found is not None and found["eager_steps"] == first + 3, "the first ones, and the short batch of each epoch"
    assert graph.watch.parts["step"] > 0


def changed(model: torch.nn.Module, batch: Any) -> Any:
    return model(batch[0].mul_(0.5).add_(1))


def turned(model: torch.nn.Module, batch: Any) -> Any:
    return model(batch[0].t_().unsqueeze_(0)[0].T)


def by_changed_keys(batch: Any, keys: torch.Tensor) -> Any:
    return brighter(batch, keys.remainder_(5).add_(1))


@pytest.mark.parametrize(
    ("data", "forward", "augment"),
    [(DATA, changed, None), (None, changed, None), (DATA, turned, None), (None, turned, None), (DATA, usual_forward, by_changed_keys)],
)  # fmt: skip
def test_a_task_that_changes_its_batch_in_place(data: Any, forward: Any, augment: Any) -> None:
    """The batch lies in tensors of the step's: the next one must not find it changed, and neither must the proof."""
    graph, plain = (
        made(kind, data=data, forward=forward, augment=augment, optimizer="adam") for kind in ("step", "eager")
    )
    for one in (graph, plain):
        by_place(one) if data is not None else one.train()
    same(graph, plain, TOLERANCE)
    assert graph.step.read_back()["graph"] == "compile"


def test_dropout_in_a_compiled_step_is_the_plain_steps() -> None:
    """Number for number: a graph draws from the same generator, as often."""

    def net() -> torch.nn.Module:
        return torch.nn.Sequential(network(), torch.nn.Dropout(0.3))

    results = []
    for kind in ("step", "eager"):
        one = made(kind, net, backend="inductor")
        torch.manual_seed(11)
        one.train()
        results.append(one)
    same(*results)


class Kept:
    """A task of the user's that keeps its model and looks at it in its loss, too: a penalty, as people write it."""

    def __init__(self) -> None:
        self.net: Any = None
        self.calls = [0]

    def loss(self, outputs: Any, batch: Any) -> Any:
        total, count = usual_loss(outputs, batch)
        return total + count * 0.1 * sum(p.square().sum() for p in self.net.parameters()), count

    def counting(self, outputs: Any, batch: Any) -> Any:
        self.calls[0] += 1
        return usual_loss(outputs, batch)


def test_weights_that_the_loss_looks_at_get_their_gradient() -> None:
    results = []
    for kind in ("step", "eager"):
        task = Kept()

        def net(task: Kept = task) -> torch.nn.Module:
            task.net = network()
            return task.net

        results.append(made(kind, net, loss=task.loss, optimizer="sgd"))
        results[-1].train()
    same(*results)


def halve(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad.mul_(0.5)


class Hooked(torch.nn.Module):
    def __init__(self, *, after: bool) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 5)
        weight = self.layer.weight
        if after:
            weight.register_post_accumulate_grad_hook(halve)
        else:
            weight.register_hook(lambda gradient: gradient * 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)


class Seeds(Hooked):
    """Sets torch's random state itself, as recomputation does."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.layer = torch.nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = torch.get_rng_state()
        torch.manual_seed(5)
        y = torch.nn.functional.dropout(self.layer(x), 0.5)
        torch.set_rng_state(state)
        return y


class Carries(Seeds):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        self.last = y.detach().mean(0)
        return y


@pytest.mark.parametrize(
    ("net", "why"),
    [
        (lambda: Hooked(after=False), "has other gradients"),
        (lambda: Hooked(after=True), "has other gradients"),
        (Seeds, "has other gradients"),
        (Carries, r"keeps a tensor in an attribute that is no buffer \(model.last\)"),
    ],
)
def test_what_a_trace_would_lose_is_refused(net: Callable[[], torch.nn.Module], why: str) -> None:
    with pytest.raises(RunFailed, match=why) as failed:
        made("step", net).train()
    assert failed.value.kind == "mismatch"


def test_buffers_are_compared_to_the_size_of_their_largest_number() -> None:
    """A mean near zero of large numbers is rounded as they are."""
    other = torch.tensor([100.0, 0.2])
    assert alike(torch.tensor([100.0, 0.9]), other, 1e-2)
    assert not alike(torch.tensor([100.0, 1.4]), other, 1e-2)
    assert not alike(torch.tensor([0.1]), torch.tensor([0.2]), 1e-2)
    assert alike(torch.tensor([float("nan")]), torch.tensor([float("nan")]), 1e-2)
    assert alike(torch.zeros(0), torch.zeros(0), 1e-2)


class Views(torch.nn.Module):
    """Keeps a view of its own buffer, which it changes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(8, 5)
        self.register_buffer("seen", torch.zeros(4, dtype=torch.float64))
        self.register_buffer("first", self.seen[:1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.add_(1.0)
        return self.layer(x) + self.first


def test_a_view_of_something_the_step_changes_is_refused() -> None:
    """The trace is right, run operator by operator; torch's compiler would take the two for separate."""
    with pytest.raises(RunFailed, match="lies in the same memory as another one") as failed:
        made("step", Views).train()
    assert failed.value.kind == "mismatch"


OF_TRITON = "in a subprocess:\nName=triton_0\nTraceback (most recent call last):\n  File ...\nValueError('Scalar is out of range')\n"
OF_GCC = "C++ compile error\n\nCommand:\ng++ x.cpp\n\nOutput:\nx.cpp: In function:\nx.cpp:3:1: error: no omp.h\nx.cpp:4: error: x\n"


@pytest.mark.parametrize(
    ("error", "why"),
    [(RuntimeError(OF_TRITON), "ValueError('Scalar is out of range')"), (CppCompileError(["g++"], OF_GCC), "x.cpp:3:1: error: no omp.h")],
)  # fmt: skip
def test_a_kernel_that_cannot_be_compiled_says_why(error: Exception, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that the task decides something in Python: it was traced. What a kernel fails of is said in another process."""

    def fails(*_: Any, **__: Any) -> Any:
        raise InductorError(error, None)

    monkeypatch.setattr("paceline.worker.step.compiled.compile_traced", fails)
    with pytest.raises(RunFailed) as failed:
        by_place(made("step"), epochs=1)
    assert str(failed.value.why).endswith(f"fails on the graph of the step: {why}; use graph_of=model, or graph=eager")


def test_a_number_that_the_task_counts_is_refused() -> None:
    with pytest.raises(RunFailed, match=r"counts in Python .*the task.calls"):
        made("step", loss=Kept().counting).train()


def test_words_and_bare_tensors_in_a_batch() -> None:
    """A batch of any form; a key of it may be called like ours."""

    class Named(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 5)

        def forward(self, batch: Any) -> torch.Tensor:
            return self.layer(batch["at"])

    def loss(outputs: Any, batch: Any) -> Any:
        return usual_loss(outputs, (batch["at"], batch["y"]))

    results = []
    for kind in ("step", "eager"):
        one = made(
            kind,
            Named,
            backend="inductor",
            loss=loss,
            score=lambda outputs, batch: {},
            forward=lambda model, batch: model(batch),
        )
        tally = Tally()
        for index in range(4):
            generator = torch.Generator().manual_seed(index)
            x = torch.randn(16, 8, dtype=torch.float64, generator=generator)
            y = torch.randint(0, 5, (16,), generator=generator)
            one.step(StepInput(iter([({"at": x, "y": y, "word": "a"}, 16, True)])), tally)
        results.append(one)
    same(*results)


def test_a_parameter_without_a_gradient_is_left_alone() -> None:
    """As the optimizer leaves it: weight decay must not touch it."""

    def net() -> torch.nn.Module:
        model = network()
        model.register_parameter("unused", torch.nn.Parameter(torch.ones(3)))
        return model

    graph = made("step", net, optimizer="adamw", weight_decay=0.5)
    graph.train()
    assert graph.model.get_parameter("unused").tolist() == [1.0, 1.0, 1.0]


def test_an_exported_model_trains_as_the_plain_one() -> None:
    graph, plain = made("export"), made("eager")
    same_epochs(graph, plain)
    same(graph, plain)
    assert graph.step.read_back()["graph"] == "export"
    found = graph.step.finish()
    assert found is not None and (found["graphs"], found["recompiles"], found["eager_steps"]) == (1, 0, 0)
    assert found["compile_s"] > 0


def test_a_single_sample_is_refused_by_the_model_not_taken_by_its_export() -> None:
    """The graph has no BatchNorm that says no; the batch goes to the model, which has."""
    graph = made("export")
    graph.train((16, 16))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        graph.train((1,))


def test_what_depends_on_a_number_is_broken_or_refused() -> None:
    broken = made("compile", Exits)
    broken.train((16, 16))
    found = broken.step.finish()
    line = Exits.forward.__code__.co_firstlineno + 2
    assert found is not None and found["break_reasons"] == [f"Data-dependent branching (test_graphs.py, line {line})"]
    for kind in ("export", "step"):
        with pytest.raises(RunFailed, match=rf"test_graphs\.py, line {line}, in forward") as failed:
            made(kind, Exits).train((16, 16))
        assert failed.value.kind == "mismatch"


def test_a_function_compiled_again_and_again_is_a_failure() -> None:
    """torch would go on eagerly after eight, with a line in a log."""

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.calls = torch.nn.Linear(8, 5), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return (
                self.layer(x) * self.calls
                if self.calls % 2
                else self.layer(x) + self.calls * len(str(self.calls * "x"))
            )

    with pytest.raises(RunFailed, match="compiled one function 8 times, each time for other values"):
        made("compile", Counting, backend="eager").train((16,) * 20)


def test_memory_is_read_beside_a_graph_and_not_in_the_step_that_made_it() -> None:
    """Looked at operator by operator, a compiled model would be run without its graph; and compiling is no step's memory."""
    graph = made("compile")
    allocator, why = host_memory()
    memory = Memory(graph.model, graph.update.optimizer, allocator, why, graph.watch, graphs=graph.step.num_made)
    looked: list[bool] = []

    class Watched:
        def __call__(self, batches: Any, tally: Tally) -> None:
            looked.append(memory.looks)
            with memory if memory.looks else contextlib.nullcontext():
                step(batches, tally)

    step, graph.step = graph.step, Watched()  # pyright: ignore[reportAttributeAccessIssue]
    graph.train((16,) * 5)
    found = step.finish()
    assert found is not None and (found["graphs"], found["recompiles"]) == (1, 0), "as without somebody who looks"
    if allocator is not None:  # not every C library can be asked
        assert looked == [True, True, True, False, False], "the first step compiled: two others were looked at instead"
        row = memory.close(data_bytes=None)
        assert row["why"] is not None and row["sizes"]["gradients"] == row["sizes"]["parameters"]


def test_our_own_code_around_a_model_breaks_no_graph() -> None:
    """A batch of several inputs and a target, through the usual forward: as one graph, or an error."""

    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    batch = tuple(torch.ones(3) for _ in range(3))
    assert torch.compile(usual_forward, backend="eager", fullgraph=True)(Two(), batch).tolist() == [2.0, 2.0, 2.0]


def test_too_few_steps_for_a_graph_are_no_graph() -> None:
    short = made("step")
    short.train((16,))
    assert short.step.read_back()["graph"] == "eager"


def test_a_missing_compiler_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from paceline.worker.transform.graph import in_words

    error = BackendCompilerFailed(lambda: None, RuntimeError("No working C++ compiler found in x"), None)
    with (
        pytest.raises(RunFailed, match=r"needs a C\+\+ compiler here, and there is none"),
        in_words("graph=compile", "use graph=eager"),
    ):
        raise error


def test_an_export_with_tensors_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network().double()
    real = torch.export.ExportedProgram.module

    def copied(program: torch.export.ExportedProgram, *args: Any, **kwargs: Any) -> torch.nn.Module:
        import copy

        return copy.deepcopy(real(program, *args, **kwargs))

    monkeypatch.setattr(torch.export.ExportedProgram, "module", copied)
    task = Task("made up", lambda: model, list, list, usual_forward, usual_loss, usual_score)
    exported = Exported(TaskModule(model, task), Compiles(Stopwatch("forward")).making)
    with pytest.raises(RunFailed, match="would train another model"):
        exported((torch.randn(4, 8, dtype=torch.float64), torch.zeros(4)))


class Plain(torch.nn.Module):
    """A layer, and what a subclass does beside it in Python."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls = torch.nn.Linear(8, 5), 0
        self.register_buffer("seen", torch.zeros(5))

    def beside(self, y: torch.Tensor) -> torch.Tensor:
        return y

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.beside(self.layer(x))


class Counts(Plain):
    def beside(self, y: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return y * self.calls


class Draws(Plain):
    def beside(self, y: torch.Tensor) -> torch.Tensor:
        return y * random.random()


class DrawsArrays(Plain):
    def beside(self, y: torch.Tensor) -> torch.Tensor:
        return y * float(np.random.rand())


class DrawsOnHost(Plain):
    def beside(self, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(y)


class Assigns(Plain):
    def beside(self, y: torch.Tensor) -> torch.Tensor:
        self.seen = 0.9 * self.seen + y.detach().mean(dim=0)
        return y - self.seen


@pytest.mark.parametrize("net", [Counts, Draws, DrawsArrays])
@pytest.mark.parametrize("kind", ["captured", "export"])
def test_what_python_does_beside_a_model_is_refused(kind: str, net: type[Plain]) -> None:
    """Run once in Python, its first number would become a constant; `compile` follows Python, and so may keep it."""
    asked = {"optimizer": "sgd", "update": "fused"} if kind == "captured" else {}
    with pytest.raises(RunFailed, match=f"graph={kind}: the model draws random numbers or counts in Python") as failed:
        made(kind, net, **asked).train((16,) * 5)
    assert failed.value.kind == "mismatch"
    made(kind, Plain, **asked).train((16,) * 5)


def test_the_hosts_generator_is_an_exported_graphs_and_no_recordings() -> None:
    made("export", DrawsOnHost).train((16,) * 3)
    with pytest.raises(RunFailed, match=r"torch's random numbers of the host"):
        made("captured", DrawsOnHost, optimizer="sgd", update="fused").train((16,) * 5)


@pytest.mark.parametrize("kind", ["captured", "step"])
def test_a_buffer_put_in_place_of_another_is_refused(kind: str) -> None:
    asked = {"optimizer": "sgd", "update": "fused"} if kind == "captured" else {}
    with pytest.raises(RunFailed, match=r"in place of a buffer \(model\.seen\).*copy_, mul_"):
        made(kind, Assigns, **asked).train((16,) * 5)


def test_a_batch_the_export_was_not_made_for_goes_to_the_model() -> None:
    """Longer in a later dimension, of another type, or of unequal sizes where they were one: the graph would refuse it."""

    class Means(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x.mean(dim=1, keepdim=True))

    model = Means()
    task = Task("made up", lambda: model, list, list, usual_forward, usual_loss, usual_score)
    exported = Exported(TaskModule(model, task), Compiles(Stopwatch("forward")).making)
    for num, (size, length) in enumerate([(4, 8), (6, 8), (2, 8)]):
        exported((torch.randn(size, length), torch.zeros(size)))
        assert (exported.num_graph, exported.num_eager) == (num + 1, 0), "the number of samples is free"
    for num, batch in enumerate([(torch.randn(4, 9), torch.zeros(4)), (torch.randn(4, 8), torch.zeros(4).long())]):
        assert exported(batch).shape == (4, 5)
        assert (exported.num_graph, exported.num_eager) == (3, num + 1)


def test_nothing_compiled_is_said_after_the_first_step() -> None:
    class Shut(Plain):
        @torch._dynamo.disable
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Shut()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    with pytest.raises(RunFailed, match="torch made no graph of any part of the model: Skip inlining"):
        made("compile", Outer, backend="eager").train((16,))


def test_a_batch_of_something_else_is_no_part_of_a_steps_graph() -> None:
    """Its text might be the same and its contents another."""
    assert signature((torch.ones(2, 3), "a", 1, 0.5, None, True), asked="x")[1:] == ("'a'", "1", "0.5", "None", "True")
    with pytest.raises(RunFailed, match="graph=captured: a batch holds a ndarray"):
        signature((torch.ones(2), np.ones(3)), asked="graph=captured")


def test_a_compiler_is_closed_twice_and_its_cache_goes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "others"))
    cold = Compiler(WORLD.device, threads=1, kept=False, backend="eager")
    with torch._dynamo.config.patch(suppress_errors=True):
        cold.get_ready()
        assert not torch._dynamo.config.suppress_errors
    assert len(list(tmp_path.iterdir())) == 1
    for _ in range(2):
        cold.close()
    assert not list(tmp_path.iterdir())
