"""A step as one CUDA graph: every kernel of a step is recorded once, and from then on all are launched with one call.

Launching a small kernel takes the host longer than the GPU takes to run it, so a small model's step is mostly launches.
A recording holds addresses, not values: what changes from step to step is kept in tensors that are never moved.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from paceline.base.blame import users_line
from paceline.base.errors import PacelineError, RunFailed
from paceline.worker.measure.compiles import Compiles
from paceline.worker.measure.tally import Tally
from paceline.worker.optim.graph_update import GraphUpdate
from paceline.worker.step import clip
from paceline.worker.step.executor import StepParts
from paceline.worker.step.input import StepInput
from paceline.worker.step.recording import Recorder
from paceline.worker.step.single_graph import GraphBuffers, SingleGraphStep
from paceline.worker.tasks.task import sentence
from paceline.worker.tasks.tree import mapped
from paceline.worker.transform.graph import USUALLY, tensors
from paceline.worker.transform.side_effects import steady


class CapturedStep(SingleGraphStep):
    """The first steps (three, as in torch's own guide) are ordinary ones on the stream that is then recorded. Libraries
    allocate there what they need, so that the recording holds nothing but the step. Recording runs no kernel: the
    recorded step is computed by the first replay."""

    word, asked = "captured", "graph=captured"

    _graph: torch.cuda.CUDAGraph | None = None
    _static: Sequence[torch.Tensor] = ()

    def __init__(self, parts: StepParts, compiles: Compiles) -> None:
        super().__init__(parts, compiles)
        self.recorder = Recorder(next(parts.task_module.parameters()).device)

    def _ordinary(self, step_input: StepInput, tally: Tally) -> None:
        self.recorder.aside(lambda: super(CapturedStep, self)._ordinary(step_input, tally))

    def make(self, update: GraphUpdate, graph_buffers: GraphBuffers, batch: Any, num: int) -> None:
        change = update.captured()
        own = mapped(torch.clone, batch, opens=False)
        self._static = tensors(own)
        batches, description, state = self._batches, self.parts.description, self.parts.state

        def body() -> None:
            """A step as `EagerStep` makes it on one rank. Gradients are allocated in it, so nothing has to be
            zeroed."""
            given = own if batches is None else batches.batch(batches.tensors)
            loss, sums = description.forward_loss(self.task_module, given, num, num)
            with torch.no_grad():
                graph_buffers.sums.add_(graph_buffers.rows(sums))
            description.divided(loss, state.unit).backward()
            with torch.no_grad():
                gradients = [parameter.grad for parameter in update.parameters if parameter.grad is not None]
                change(clip.clipped(gradients, state.clips, self.parts.update.clip))

        try:
            with steady(self.task_module, self.asked):
                self._graph = self.recorder.record(body)
        except PacelineError:
            raise
        except Exception as error:
            raise RunFailed(_refusal(error, self.parts.description.task.source), kind="mismatch") from error

    def run(self, batch: Any) -> None:
        """Copying a batch into the tensors of the recording is timed as a part of `data`."""
        assert self._graph is not None
        for static, tensor in zip(self._static, tensors(batch), strict=True):
            static.copy_(tensor)
        self.begins()
        self._graph.replay()

    def close(self) -> None:
        """A recording goes with its step."""

    @property
    def is_made(self) -> bool:
        return super().is_made and isinstance(self._graph, torch.cuda.CUDAGraph)


def _refusal(error: BaseException, source: Path | None) -> str:
    """The sentence for the error that broke the recording. Ending a broken recording raises another error, which would
    hide it."""
    first, inner = error, error.__context__
    while inner is not None:
        if any(frame.name == "body" for frame in traceback.extract_tb(inner.__traceback__)):
            first = inner
        inner = inner.__context__
    return (
        f"graph=captured: the step cannot be recorded as one CUDA graph: {sentence(first)[:200]}{users_line(first, source)}: {USUALLY}, or "
        "waits for the device in another way; use graph=eager, or graph=compile graph_of=model"
    )
