"""A whole step traced as one graph and compiled: forward, loss, backward and update in one call, without a word of Python between
them. On a GPU the batch is fetched in it too, and it is recorded, so that its kernels are started with one call.

With several ranks it is two graphs with one message between them, laid out as `Replicated` lays out its own: the first ends with this
rank's gradients and count in the message, the second begins with everybody's. Where a batch is short on one rank, all make
an ordinary step.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch._inductor.exc import InductorError
from torch.utils import _pytree

from paceline.base.errors import PacelineError, RunFailed
from paceline.worker.graph_batches import GraphBatches, HostBatches
from paceline.worker.measure.compiles import Compiles
from paceline.worker.recording import Recorder
from paceline.worker.seed import kept
from paceline.worker.sharding.gradient_message import GradientMessage
from paceline.worker.sharding.replicate import Replicated
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.single_graph_step import STEP, Data, GraphBuffers, SingleGraphStep
from paceline.worker.step import EagerStep
from paceline.worker.step_body import Body, State
from paceline.worker.tasks.task import sentence
from paceline.worker.transform.few_channels import FEW_CHANNELS
from paceline.worker.transform.formulas import Corrections
from paceline.worker.transform.graph import USUALLY, Compiler, code_line
from paceline.worker.transform.side_effects import steady
from paceline.worker.transform.small_products import SMALL_PRODUCTS
from paceline.worker.transform.tracing import compile_traced, trace, written_twice

# The same arithmetic on the same numbers: on a GPU the order of sums differs, and where gradients are computed in another way and
# factors are rounded, what is rounded.
_SAME, _SAME_ROUNDED = 1e-3, 1e-2
_IN_ONE_PLACE = (
    "{asked}: a tensor that the step changes (a weight, a buffer) lies in the same memory as another one that it uses, such as a view of a "
    "weight that the model keeps: torch's compiler takes them for separate; make the view where it is used, or use graph_of=model, or "
    "graph=eager"
)


class CompiledStep(SingleGraphStep):
    """As one graph or not at all: a break inside a step would make two graphs of it without a word."""

    word, asked = "compile", "graph=compile graph_of=step"
    num_before_recording = 2  # compiled steps on the stream that is then recorded: kernels are loaded by then

    def __init__(
        self, eager: EagerStep, task_module: TaskModule, compiles: Compiles, compiler: Compiler,
        *, moves_beta: bool, data: Data | None = None,
    ) -> None:  # fmt: skip
        super().__init__(eager, task_module, compiles, moves_beta=moves_beta, data=data)
        self._compiler = compiler
        device = next(task_module.parameters()).device
        self._recorder = Recorder(device) if device.type == "cuda" else None
        self._instead = {**FEW_CHANNELS, **SMALL_PRODUCTS} if device.type == "cuda" else None
        self._recording: torch.cuda.CUDAGraph | None = None
        self.batches_of = HostBatches if device.type == "cpu" else GraphBatches
        self.draws_on_host = device.type == "cuda"
        # alone, the gradients go straight into the update
        self._message = (
            GradientMessage(eager.sharding) if eager.sharding.meets and isinstance(eager.sharding, Replicated) else None
        )
        self.num_graphs = 1 if self._message is None else 2
        self._calls: list[Callable[[], Any]] = []
        self._batch: list[torch.Tensor] = []
        self._corrections: Corrections | None = None
        self._looked = -1  # ordinary steps when they were last looked at

    # ---- making it ----

    def make(self, graph_buffers: GraphBuffers, batch: Any, num: int) -> None:
        self._compiler.get_ready()
        body = Body(self.eager, self.task_module, graph_buffers, self._message, num=num)
        self._corrections = body.corrections
        batches = self._batches
        state = body.state(self._given(batch) if batches is None else batches.tensors)

        def given(state: State) -> Any:
            if isinstance(batches, GraphBatches):
                return batches.batch(state["batch"])
            # what a task turns or stretches in place is a tensor of its own: the step's stay as they are
            own = _pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.view_as(tensor), state["batch"])
            return own if batches is None else batches.batch(own)

        try:
            with steady(self.task_module, self.asked, host=False):
                self._prove(body, state, given)
                if self._message is None:
                    self._calls = [self._call(lambda s: body.update(s, body.gradients(s, given(s))), state)]
                else:
                    self._calls = [
                        self._call(lambda s: body.send(s, given(s)), state),
                        self._call(lambda s: body.update(s, body.received(s)), body.after(state)),
                    ]
        except (PacelineError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise RunFailed(_refusal(error, self.asked), kind="mismatch") from error

    def _prove(self, body: Body, state: State, given: Callable[[State], Any]) -> None:
        """The trace, run operator by operator, has the gradients of the plain step on the same batch, or it is no graph of it: a
        gradient's hook, random states set in Python, a number kept elsewhere would be lost in it without a word."""
        with torch.no_grad():
            flat = torch.zeros(body.num_numbers(), dtype=torch.float64, device=body.device)
        traced = trace(
            lambda s: s["proof"].copy_(body.flat(*body.backward(s, given(s)))), {**state, "proof": flat}, self._instead
        )
        # a task may change its batch in place, but not the data
        ours = [self._batches.tensors["at"]] if isinstance(self._batches, GraphBatches) else _tensors(state["batch"])
        moving = [*state["buffers"].values(), state["sums"], *ours]
        with _untouched(moving, body.device):
            with torch.no_grad():
                traced.graph(*traced.inputs)
            traces, after = flat, [buffer.clone() for buffer in state["buffers"].values()]
        with _untouched(moving, body.device):
            plain = body.eagerly(given(state))
            theirs = [buffer.clone() for buffer in state["buffers"].values()]
        apart = max(
            _apart(traces[:-1], plain[:-1]), _apart(traces[-1:], plain[-1:])
        )  # the gradients, and what they count to
        same = _SAME_ROUNDED if self._instead is not None and self.arithmetic.rounds else _SAME
        moved = [
            name for name, one, other in zip(state["buffers"], after, theirs, strict=True)
            if not _alike(one.double(), other.double(), same)
        ]  # fmt: skip
        if apart > same or moved:
            what = f"gradients ({apart:.1g} apart)" if apart > same else f"buffers ({', '.join(moved[:3])})"
            raise RunFailed(
                f"{self.asked}: traced as one graph, the step has other {what} than eagerly: something does not show in a trace (hooks on "
                "parameters, random states set in Python, numbers that are kept outside of tensors); use graph_of=model, or graph=eager",
                kind="mismatch",
            )

    def _given(self, batch: Any) -> Any:
        """A batch that is handed over: to the graph's own tensors, where they stay."""
        own = _pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, batch)
        self._batch = [leaf for leaf in _pytree.tree_leaves(own) if isinstance(leaf, torch.Tensor)]
        return own

    def _call(self, body: Callable[[State], None], state: State) -> Callable[[], Any]:
        traced = trace(body, state, self._instead)
        if written_twice(traced):
            raise RunFailed(_IN_ONE_PLACE.format(asked=self.asked), kind="mismatch")
        return compile_traced(traced, backend=self._compiler.backend)

    # ---- running it ----

    def before_run(self) -> None:
        if self._corrections is None:
            return
        if self._looked != self.num_eager:
            self._corrections.look()
            self._looked = self.num_eager
        self._corrections.advance()

    def run(self, batch: Any) -> None:
        for own, tensor in zip(self._batch, _tensors(batch), strict=True):
            own.copy_(tensor)
        self.begins()
        if self._recorder is not None:
            self._on_gpu(self._recorder)
            return
        with torch.no_grad():
            self._calls[0]()
            if self._message is None:
                return
            if self._message.exchange.publish():
                self.watch.arrived()
            if isinstance(self._batches, HostBatches):
                self._batches.fetch_ahead()
            self.watch.switch("communication")
            self._message.exchange.wait()
            self.watch.switch(STEP)
            try:
                self._calls[1]()
            finally:
                self._message.exchange.release()

    def _on_gpu(self, recorder: Recorder) -> None:
        if self._recording is not None:
            self._recording.replay()
        elif self.num_graph < self.num_before_recording:
            recorder.aside(self._once)
        else:
            try:
                with self.compiles.making():
                    self._recording = recorder.record(self._once)
            except Exception as error:
                raise RunFailed(_refusal(error, self.asked), kind="mismatch") from error
            self._recording.replay()

    def _once(self) -> None:
        with torch.no_grad():
            self._calls[0]()

    @property
    def is_made(self) -> bool:
        return super().is_made and bool(self._calls)

    def finish(self) -> dict[str, Any] | None:
        row = super().finish()
        assert row is not None
        return {**row, "cache": self._compiler.found(), "captured": self._recording is not None}

    def close(self) -> None:
        self._compiler.close()


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm().clamp(min=1e-30))


def _alike(one: torch.Tensor, other: torch.Tensor, same: float) -> bool:
    """To the size of the largest number: where factors are rounded, a mean near zero of large numbers is so too."""
    size = max(1.0, float(other.abs().nan_to_num(0.0, 0.0, 0.0).max())) if other.numel() else 1.0
    return torch.allclose(one, other, rtol=same, atol=same * size, equal_nan=True)


def _tensors(batch: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _pytree.tree_leaves(batch) if isinstance(leaf, torch.Tensor)]


@contextlib.contextmanager
def _untouched(tensors: list[torch.Tensor], device: torch.device) -> Generator[None]:
    """Around a rehearsal: these tensors, and the random streams, are afterwards as they were."""
    before = [tensor.clone() for tensor in tensors]
    with kept(device):
        yield
    with torch.no_grad():
        for tensor, value in zip(tensors, before, strict=True):
            tensor.copy_(value)


def _refusal(error: BaseException, asked: str) -> str:
    if "No working C++ compiler" in str(error) or "InvalidCxxCompiler" in str(error):
        return f"{asked}: torch needs a C++ compiler here, and there is none (g++ or clang++): install one, or use graph=eager"
    if isinstance(error, InductorError):
        return f"{asked}: torch's compiler fails on the graph of the step: {_last(error)[:300]}; use graph_of=model, or graph=eager"
    return (
        f"{asked}: the step cannot be made one graph: {sentence(error)[:300]}{code_line(error)}: {USUALLY}; use graph_of=model, or "
        "graph=eager"
    )


def _last(error: BaseException) -> str:
    """What it fails of: the last line of a traceback that names an error. A kernel is compiled in another process, whose traceback is
    the text of this one's error."""
    text = str(error)
    found = re.findall(r"^\s*([\w.]*(?:Error|Exception)\b.*)$", text, re.MULTILINE)
    if len(found) > 1:
        return found[-1]
    compilers = re.search(r"^.*\berror: .*$", text, re.MULTILINE)  # of a C++ compiler
    return compilers[0].strip() if compilers else sentence(error)
