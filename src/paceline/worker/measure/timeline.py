"""The stopwatch of a rank on a GPU. Work is queued there, so the clock readings are queued with it, as events in the same stream.

The time between two events is how long the device took to get from one to the next, gaps included: where it stood still because
the host was fetching a batch, that is `data`; because the host was slow to launch the forward pass, `forward`. So parts are
contiguous here too and add up to the time that passed.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch

from paceline.records.split import COMMUNICATION
from paceline.worker.measure.clock import Stopwatch

# A run that logs seldom must not keep an event for every step: beyond this many, those that are over are read at once.
_MOST_PENDING = 4096


def following(watch: Stopwatch, device: torch.device) -> Stopwatch:
    """The stopwatch for this device: on a GPU a `Timeline` that goes on where `watch` stands."""
    return Timeline(watch, device) if device.type == "cuda" else watch


class Timeline(Stopwatch):
    """`switch` costs one event, about 3 us, and never waits; `settle` waits for the device and reads all events."""

    def __init__(self, watch: Stopwatch, device: torch.device) -> None:
        self.__dict__.update(vars(watch))
        self._device = device
        self._stream = torch.cuda.current_stream(device)  # kept, because looking it up costs as much as an event
        self._pending: deque[tuple[str, Any]] = deque()
        self._unused: list[Any] = []
        torch.cuda.synchronize(device)
        self._last = self._event()
        torch.cuda.synchronize(device)
        self._at = self._clock()
        super().switch(self._part)  # books the host's time up to here; from now on the device's events count

    def _event(self) -> Any:
        event = self._unused.pop() if self._unused else torch.cuda.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def switch(self, part: str) -> None:
        before, self._part = self._part, part
        if part == before:
            return
        self._pending.append((before, self._event()))
        if len(self._pending) > _MOST_PENDING:
            self._read(sure=False)
        if self.on_switch is not None:
            self.on_switch(before, part)

    def settle(self) -> None:
        self._pending.append((self._part, self._event()))
        torch.cuda.synchronize(self._device)
        self._read(sure=True)
        self._at = self._since = self._clock()  # the clocks of host and device drift apart: set them equal again

    def _read(self, *, sure: bool) -> None:
        """Book every event that the device has passed into the parts (`sure`: it has passed all). `_at` is the last one's host time."""
        while self._pending and (sure or self._pending[0][1].query()):
            part, event = self._pending.popleft()
            took = self._last.elapsed_time(event) / 1e3
            self.parts[part] = self.parts.get(part, 0.0) + took
            if part == COMMUNICATION:
                self.collective_times.add(self._at, self._at, self._at + took)
            self._at += took
            self._unused.append(self._last)
            self._last = event

    def spent(self, *parts: str) -> float:
        """As of the last `settle`."""
        return sum(self.parts.get(part, 0.0) for part in parts)

    def moment(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()  # in the caller's current stream: a message arrives in another stream than it left from
        return event

    def seconds(self, start: Any, end: Any) -> float:
        """Both moments must have passed on the device: call `settle` first."""
        return start.elapsed_time(end) / 1e3
