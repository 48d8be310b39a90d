"""A step traced as one graph and compiled: forward, loss, backward and update in one call, with no Python in between.

On a GPU the batch is fetched in the graph too, and the graph is recorded, so that its kernels are launched with one
call. With several ranks it is two graphs with one message between them, in the layout of `Replicated`: the first one
writes this rank's gradients and count into the message, the second one reads those of all ranks. Where a batch is short
on one rank, all make an ordinary step.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from paceline.base.blame import users_line
from paceline.base.compiler_error import cause, no_cxx_compiler, of_compiler
from paceline.base.errors import PacelineError, RunFailed
from paceline.worker.measure.compiles import Compiles
from paceline.worker.optim.graph_update import GraphUpdate
from paceline.worker.sharding.gradient_message import GradientMessage
from paceline.worker.sharding.replicate import Replicated
from paceline.worker.step.batches import GraphBatches, HostBatches
from paceline.worker.step.executor import StepParts
from paceline.worker.step.proof import Proof
from paceline.worker.step.recording import Recorder
from paceline.worker.step.single_graph import STEP, GraphBuffers, SingleGraphStep
from paceline.worker.step.traced import State, TracedStep
from paceline.worker.tasks.task import sentence
from paceline.worker.tasks.tree import mapped
from paceline.worker.transform.few_channels import FEW_CHANNELS
from paceline.worker.transform.graph import USUALLY, Compiler
from paceline.worker.transform.graph import tensors as tensors_of
from paceline.worker.transform.side_effects import steady
from paceline.worker.transform.small_products import SMALL_PRODUCTS
from paceline.worker.transform.tracing import compile_traced, trace, written_twice

_IN_ONE_PLACE = (
    "{asked}: a tensor that the step changes (a weight, a buffer) lies in the same memory as another one that it uses, such as a view of a "
    "weight that the model keeps: torch's compiler takes them for separate; make the view where it is used, or use graph_of=model, or "
    "graph=eager"
)


class CompiledStep(SingleGraphStep):
    """One graph, or a refusal: a graph break would silently make two graphs of a step."""

    word, asked = "compile", "graph=compile graph_of=step"
    num_before_recording = 2  # compiled steps on the stream that is then recorded: kernels are loaded by then

    def __init__(self, parts: StepParts, compiles: Compiles, compiler: Compiler) -> None:
        super().__init__(parts, compiles)
        self._compiler = compiler
        device = next(parts.task_module.parameters()).device
        self._recorder = Recorder(device) if device.type == "cuda" else None
        self._instead = {**FEW_CHANNELS, **SMALL_PRODUCTS} if device.type == "cuda" else None
        self._recording: torch.cuda.CUDAGraph | None = None
        self.batches_of = HostBatches if device.type == "cpu" else GraphBatches
        self.draws_on_host = device.type == "cuda"
        # alone, the gradients go straight into the update
        sharding = parts.sharding
        replicated = isinstance(sharding, Replicated) and sharding.reduces_over_ranks
        self._message = GradientMessage(sharding) if replicated else None  # pyright: ignore[reportArgumentType]
        self.num_graphs = 1 if self._message is None else 2
        self._calls: list[Callable[[], Any]] = []
        self._batch: list[torch.Tensor] = []

    # ---- making it ----

    def make(self, update: GraphUpdate, graph_buffers: GraphBuffers, batch: Any, num: int) -> None:
        self._compiler.get_ready()
        step = TracedStep(self.parts, update, graph_buffers, self._message, num=(num, self._num_global or num))
        batches = self._batches
        state = step.state(self._given(batch) if batches is None else batches.tensors)

        def given(state: State) -> Any:
            if isinstance(batches, GraphBatches):
                return batches.batch(state["batch"])
            # what a task turns or stretches in place is a tensor of its own: the step's stay as they are
            own = mapped(lambda tensor: tensor.view_as(tensor), state["batch"], opens=False)
            return own if batches is None else batches.batch(own)

        try:
            with steady(self.task_module, self.asked, host=False):
                # a task may change its batch in place, but not the data
                moving = [batches.tensors["at"]] if isinstance(batches, GraphBatches) else tensors_of(state["batch"])
                proof = Proof(
                    step,
                    moving,
                    instead=self._instead,
                    rounds=self.parts.description.arithmetic.rounds,
                    asked=self.asked,
                )
                proof.gradients(state, given)
                proof.own_update(self.parts.state, update, state)
                if self._message is None:
                    self._calls = [self._call(lambda s: step.update(s, step.gradients(s, given(s))), state)]
                else:
                    self._calls = [
                        self._call(lambda s: step.send(s, given(s)), state),
                        self._call(lambda s: step.update(s, step.received(s)), step.after(state)),
                    ]
        except (PacelineError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise RunFailed(_refusal(error, self.asked, self.parts.description.task.source), kind="mismatch") from error

    def _given(self, batch: Any) -> Any:
        """Copies a batch that was fetched outside into the graph's own tensors."""
        own = mapped(torch.clone, batch, opens=False)
        self._batch = tensors_of(own)
        return own

    def _call(self, body: Callable[[State], None], state: State) -> Callable[[], Any]:
        traced = trace(body, state, self._instead)
        if written_twice(traced):
            raise RunFailed(_IN_ONE_PLACE.format(asked=self.asked), kind="mismatch")
        return compile_traced(traced, backend=self._compiler.backend)

    # ---- running it ----

    def run(self, batch: Any) -> None:
        for own, tensor in zip(self._batch, tensors_of(batch), strict=True):
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
                raise RunFailed(
                    _refusal(error, self.asked, self.parts.description.task.source), kind="mismatch"
                ) from error
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
        return {**row, "cache": self._compiler.cache_state(), "captured": self._recording is not None}

    def close(self) -> None:
        self._compiler.close()


def _refusal(error: BaseException, asked: str, source: Path | None) -> str:
    if no_cxx_compiler(error):
        return f"{asked}: torch needs a C++ compiler here, and there is none (g++ or clang++): install one, or use graph=eager"
    if of_compiler(error):
        return f"{asked}: torch's compiler fails on the graph of the step: {cause(error)}; use graph_of=model, or graph=eager"
    return (
        f"{asked}: the step cannot be made one graph: {sentence(error)[:300]}{users_line(error, source)}: {USUALLY}; "
        "use graph_of=model, or graph=eager"
    )
