"""A whole step as one CUDA graph: every kernel of a step recorded once and started with one call from then on.

Launching a small kernel takes the host longer than the GPU takes to run it, so a small model's step is mostly launches. A
recording knows addresses, not values: what changes from step to step is in tensors that stay where they are.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree

from paceline.base.errors import PacelineError, RunFailed
from paceline.worker.measure.compiles import Compiles
from paceline.worker.measure.tally import LOSS, Tally
from paceline.worker.recording import Recorder
from paceline.worker.sharding.task_module import TaskModule
from paceline.worker.single_graph_step import Data, GraphBuffers, SingleGraphStep
from paceline.worker.step import EagerStep, StepInput
from paceline.worker.tasks.task import sentence
from paceline.worker.transform.graph import USUALLY, code_line, tensors
from paceline.worker.transform.in_graph import total_norm, updater
from paceline.worker.transform.side_effects import steady
from paceline.worker.update import TINY


class CapturedStep(SingleGraphStep):
    """The first three steps are ordinary ones on the stream that is then recorded: libraries make what they need for it there, and
    so the recording holds nothing but the step. A recording runs nothing: the step it was made of is made by its first replay.
    """

    word, asked = "captured", "graph=captured"
    num_first = 3  # as torch's own guide has it

    _graph: torch.cuda.CUDAGraph | None = None
    _static: Sequence[torch.Tensor] = ()

    def __init__(
        self,
        eager: EagerStep,
        task_module: TaskModule,
        compiles: Compiles,
        *,
        moves_beta: bool,
        data: Data | None = None,
    ) -> None:
        super().__init__(eager, task_module, compiles, moves_beta=moves_beta, data=data)
        self.recorder = Recorder(next(task_module.parameters()).device)

    def _ordinary(self, step_input: StepInput, tally: Tally) -> None:
        self.recorder.aside(lambda: super(CapturedStep, self)._ordinary(step_input, tally))

    def make(self, graph_buffers: GraphBuffers, batch: Any, num: int) -> None:
        update = updater(self.update.optimizer, graph_buffers.parameters, graph_buffers.rate)
        own = _pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, batch)
        self._static = tensors(own)
        batches = self._batches

        def body() -> None:
            """A step as `EagerStep` makes it alone. Gradients are made anew in it, so nothing has to be zeroed."""
            task, arithmetic = self.eager.task, self.arithmetic
            given = own if batches is None else batches.batch(batches.tensors)
            with arithmetic.autocast():
                outputs = self.task_module(given)
            outputs = arithmetic.full_precision(outputs)
            loss, count = task.loss_sum(outputs, given, num)
            with torch.no_grad():
                graph_buffers.sums.add_(
                    graph_buffers.rows({LOSS: (loss, count), **task.score_sums(outputs, given, num)})
                )
            (loss / count).backward()
            with torch.no_grad():
                gradients = [parameter.grad for parameter in graph_buffers.parameters if parameter.grad is not None]
                update(self._clipped(graph_buffers, gradients))

        try:
            with steady(self.task_module, self.asked):
                self._graph = self.recorder.record(body)
        except PacelineError:
            raise
        except Exception as error:
            raise RunFailed(_refusal(error), kind="mismatch") from error

    @staticmethod
    def _clipped(graph_buffers: GraphBuffers, gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        """The same arithmetic as `Update`, where nothing may be looked at."""
        if graph_buffers.clip is None:
            return gradients
        norm = total_norm(gradients)
        long = norm.double()
        graph_buffers.clips.copy_(
            torch.stack(
                [graph_buffers.clips[0] + (long > graph_buffers.clip), torch.maximum(graph_buffers.clips[1], long)]
            )
        )
        factor = (graph_buffers.clip / (norm + TINY)).clamp(max=1.0)
        return [gradient * factor for gradient in gradients]

    def run(self, batch: Any) -> None:
        """Copying a batch to where the recording looks for it is a part of getting it."""
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


def _refusal(error: BaseException) -> str:
    """Of the error that broke the recording: ending a broken one raises another, which hides it."""
    first, inner = error, error.__context__
    while inner is not None:
        if any(frame.name == "body" for frame in traceback.extract_tb(inner.__traceback__)):
            first = inner
        inner = inner.__context__
    return (
        f"graph=captured: the step cannot be recorded as one CUDA graph: {sentence(first)[:200]}{code_line(first)}: {USUALLY}, or waits "
        "for the device in another way; use graph=eager, or graph=compile graph_of=model"
    )
