"""A whole step as one CUDA graph: every kernel of a step recorded once and started with one call from then on.

Launching a small kernel takes the host longer than the GPU takes to run it, so a small model's step is mostly launches. A
recording knows addresses, not values: batches are copied into tensors that stay where they are.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable, Generator, Sequence
from typing import Any

import torch
from torch.utils import _pytree

from paceline.base.errors import PacelineError, RunFailed
from paceline.worker.measure.tally import LOSS
from paceline.worker.tasks.task import sentence
from paceline.worker.transform.beside import steady
from paceline.worker.transform.graph import USUALLY, code_line, tensors
from paceline.worker.whole_step import STEP, Insides, WholeStep


class CapturedStep(WholeStep):
    """The first three steps are ordinary ones on the stream that is then recorded: libraries make what they need for it there, and
    so the recording holds nothing but the step. A recording runs nothing: the step it was made of is made by its first replay.
    """

    word, asked = "captured", "graph=captured"
    num_first = 3  # as torch's own guide has it
    by_hand = 1

    _graph: torch.cuda.CUDAGraph | None = None
    _stream: torch.cuda.Stream | None = None
    _static: Sequence[torch.Tensor] = ()

    def _ordinary(self, batch: Any, num: int, tally: Any) -> None:
        """On the stream of the recording, and the other one waits: there the stopwatch has its events."""
        device = self.device
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        self._stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(self._stream):
            super()._ordinary(batch, num, tally)
        torch.cuda.current_stream(device).wait_stream(self._stream)

    @contextlib.contextmanager
    def checked(self) -> Generator[None]:
        """Python is not there when a recording is played: what it draws or counts would stay as it was recorded."""
        with super().checked(), steady(self.whole, self.asked):
            yield

    @property
    def device(self) -> torch.device:
        return next(self.whole.parameters()).device

    def make(self, insides: Insides, batch: Any, num: int) -> None:
        own = _pytree.tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, batch)
        self._static = tensors(own)
        try:
            with steady(self.whole, self.asked):
                self._graph = self._recorded(lambda: self._body(insides, own, num))
        except PacelineError:
            raise
        except Exception as error:
            raise RunFailed(_refusal(error), kind="mismatch") from error

    def _recorded(self, body: Callable[[], None]) -> torch.cuda.CUDAGraph:
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        # Another thread may be asking the device something meanwhile: only what this one does may break the recording.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            body()
        return graph

    def _body(self, insides: Insides, batch: Any, num: int) -> None:
        """A step as `EagerStep` makes it alone. Gradients are made anew in it, so nothing has to be zeroed."""
        task, numbers = self.eager.task, self.numbers
        with numbers.arithmetic():
            outputs = self.whole(batch)
        outputs = numbers.whole(outputs)
        loss, count = task.loss_sum(outputs, batch, num)
        with torch.no_grad():
            insides.sums.add_(insides.rows({LOSS: (loss, count), **task.score_sums(outputs, batch, num)}))
        (loss / count).backward()
        with torch.no_grad():
            insides.apply([parameter.grad for parameter in insides.parameters if parameter.grad is not None])

    def run(self, batch: Any) -> None:
        """Copying the batch to where the recording looks for it is a part of getting it."""
        assert self._graph is not None
        for static, tensor in zip(self._static, tensors(batch), strict=True):
            static.copy_(tensor)
        self.watch.switch(STEP)
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
        if any(frame.name == "_body" for frame in traceback.extract_tb(inner.__traceback__)):
            first = inner
        inner = inner.__context__
    return (
        f"graph=captured: the step cannot be recorded as one CUDA graph: {sentence(first)[:200]}{code_line(first)}: {USUALLY}, or waits "
        "for the device in another way; use graph=eager, or graph=compile graph_of=model"
    )
