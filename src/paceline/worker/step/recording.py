"""A CUDA graph: recorded on a stream of its own, and replayed with one call."""

from __future__ import annotations

from collections.abc import Callable

import torch


class Recorder:
    """What runs before the recording runs on the same stream, because libraries allocate there what they need for
    it."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream: torch.cuda.Stream | None = None

    def aside(self, work: Callable[[], None]) -> None:
        """Runs on the recording's stream while the usual one waits, which is where the stopwatch has its events."""
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
