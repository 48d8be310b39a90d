"""A recording of what a GPU is given to do: a CUDA graph, made on a stream of its own and played with one call."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Recorder:
    """Whatever comes before the recording runs on its stream too: libraries make what they need for it there."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: torch.cuda.Stream | None = None

    def aside(self, work: Callable[[], None]) -> None:
        """On the stream of the recording, and the other one waits: there the stopwatch has its events."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(self.device)
        self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            work()
        torch.cuda.current_stream(self.device).wait_stream(self._stream)

    def record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Nothing is computed: that is done when it is played."""
        torch.cuda.synchronize(self.device)
        graph = torch.cuda.CUDAGraph()
        # Another thread may be asking the device something meanwhile: only what this one does may break the recording.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            work()
        return graph
