"""torch's profiler around a block: its trace as a file, its events as plain frames. It times nothing itself."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from paceline.worker.measure.accounts import Frame
from paceline.worker.measure.device import settle

_MICRO = 1e-6


class Trace:
    """What was seen, once the block is over."""

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._device = device
        self._profiler = torch.profiler.profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])], profile_memory=True
        )

    @contextlib.contextmanager
    def recording(self) -> Generator[None]:
        with self._profiler:
            yield
            settle(self._device)  # kernels that end after the profiler would be nobody's

    def save(self, path: Path) -> None:
        """torch's own export; a name that ends in .gz is compressed."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._profiler.export_chrome_trace(str(path))

    def roots(self) -> list[Frame]:
        """The outermost frames of every thread, their children in them."""
        events: Any = self._profiler.events()
        return [self._frame(event) for event in events if event.cpu_parent is None and _is_call(event)]

    def _frame(self, event: Any) -> Frame:
        on_gpu = self._device.type == "cuda"
        # A range that the user marked is also seen on the GPU, as a span over kernels that are booked already.
        kernels = [] if event.is_user_annotation else event.kernels
        return Frame(
            name=event.name, start_s=event.time_range.start * _MICRO, total_s=event.time_range.elapsed_us() * _MICRO,
            children=tuple(self._frame(child) for child in event.cpu_children if _is_call(child)),
            thread=event.thread, sequence=event.sequence_nr, forward_thread=event.fwd_thread or 0,
            own_bytes=event.self_device_memory_usage if on_gpu else event.self_cpu_memory_usage,
            own_device_s=sum(kernel.duration for kernel in kernels) * _MICRO,
        )  # fmt: skip


def _is_call(event: Any) -> bool:
    """Not a kernel, a change of memory between calls, or something that began in one thread and ended in another."""
    return event.device_type.name == "CPU" and not event.is_async and event.name != "[memory]"
