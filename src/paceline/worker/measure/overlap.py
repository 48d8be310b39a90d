"""Measures the communication that torch's DDP overlaps with the backward pass, and when the part begins that it cannot overlap.

DDP sends a bucket of gradients as soon as it is full, while the rest is still being computed. Its communication hook is the one
place that sees each bucket leave and arrive. It sends them as DDP itself would, divided by the world size and summed; or as
plain sums; or in a half format.
"""

# No `from __future__ import annotations` here: DDP compares a hook's annotations with its own classes.
from typing import Any

import torch
import torch.distributed as dist

from paceline.records.split import COMMUNICATION
from paceline.worker.measure.clock import Stopwatch
from paceline.worker.world.join import World


def covered(spans: list[tuple[float, float]]) -> float:
    """Seconds that at least one span covers: buckets on their way at the same time are not counted twice.

    >>> covered([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


class Overlap:
    """When the last bucket is sent nothing is left to compute, so the stopwatch is switched to `communication` there.

    `divide` is what gradients are divided by before they leave (unset: the world size, for a mean), `multiply` what they are
    multiplied by when they are back; `wire` is the format they are sent in. Beside the buckets DDP sends which of its
    `num_parameters` were used, as 32-bit numbers, where it has to find that out.
    """

    def __init__(
        self, watch: Stopwatch, world: World, *, divide: float | None = None, multiply: float = 1.0,
        wire: torch.dtype | None = None, num_parameters: int = 0,
    ) -> None:  # fmt: skip
        self._watch, self._world = watch, world
        self._divide, self._multiply, self._wire = world.size if divide is None else divide, multiply, wire
        self._map_bytes = 4 * num_parameters
        self.sent_as: set[torch.dtype] = set()  # read from what was given to the collective
        self.sizes: list[int] = []  # bytes of the buckets of the last step, as DDP made them
        self._buckets: list[list[Any]] = []  # [left, arrived] of this step's buckets
        self._steps: list[tuple[list[list[Any]], Any]] = []
        self._hidden_s = 0.0

    def hook(
        self,
        _: object,
        bucket: dist.GradBucket,  # pyright: ignore[reportPrivateImportUsage]
    ) -> torch.futures.Future[torch.Tensor]:
        times: list[Any] = [self._watch.moment(), None]
        if not self._buckets:
            self.sizes = []
        self._buckets.append(times)
        if bucket.is_last():  # switch before it is sent: nothing is left to compute that could overlap it
            self._steps.append((self._buckets, times[0]))
            self._buckets = []
            self._watch.switch(COMMUNICATION)
            if self._map_bytes:
                self._world.count("all_reduce", self._map_bytes)
        buffer = bucket.buffer()
        self.sizes.append(buffer.nbytes)
        message = buffer if self._divide == 1 else buffer.div_(self._divide)
        if self._wire is not None:
            message = message.to(self._wire)
        self.sent_as.add(message.dtype)
        sent = dist.all_reduce(message, async_op=True)
        assert sent is not None
        self._world.count("all_reduce", message.nbytes)

        def arrived(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            times[1] = self._watch.moment()
            back = future.value()[0]
            if back.dtype != buffer.dtype:
                back = buffer.copy_(back)
            return back if self._multiply == 1 else back.mul_(self._multiply)

        return sent.get_future().then(arrived)

    def hidden_s(self) -> float:
        """Seconds of overlapped communication so far. Called between steps, after `settle` of the stopwatch."""
        for buckets, computed in self._steps:
            first = buckets[0][0]
            until = self._watch.seconds(first, computed)
            spans = [
                (self._watch.seconds(first, left), min(until, self._watch.seconds(first, arrived)))
                for left, arrived in buckets
                if arrived is not None
            ]
            self._hidden_s += covered([span for span in spans if span[1] > span[0]])
        self._steps.clear()
        return self._hidden_s
