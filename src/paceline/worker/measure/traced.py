"""torch's profiler around a block: its trace as a file, its events as plain frames. It times nothing itself.

The frames are put together here from the profiler's raw events. `profile.events()` does the same with an object of 40 fields
for each and takes 50 us an event, this 9: for 100 steps of a transformer with 24 layers (3 million events) half a minute instead of four.
"""

from __future__ import annotations

import contextlib
import sys
import zlib
from collections import defaultdict
from collections.abc import Generator, Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity

from paceline.base.files import remove_file, write_bytes
from paceline.worker.measure.accounts import Frame
from paceline.worker.measure.device import settle

_NANO = 1e-9
_GZIP = 31  # zlib's word for the largest window and the header of a .gz file
_MEMORY = "[memory]"
_OWN = "profiler::"  # what the profiler does for marks of its own

# (start, -end, a frame or a change of memory): sorted by the first two, a frame comes before those inside it.
Entry = tuple[int, int, Frame | int]


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
            settle(self._device)  # wait for the kernels: those that end after the profiler are lost

    def save(self, path: Path) -> None:
        """torch's own export, compressed here: torch would pass it on line by line, and take ten times as long."""
        path.parent.mkdir(parents=True, exist_ok=True)
        uncompressed = path.with_suffix("")
        self._profiler.export_chrome_trace(str(uncompressed))
        packer = zlib.compressobj(wbits=_GZIP)
        with uncompressed.open("rb") as file:
            packed = [packer.compress(piece) for piece in iter(lambda: file.read(1 << 20), b"")]
        write_bytes(path, b"".join([*packed, packer.flush()]))
        remove_file(uncompressed)

    def roots(self) -> list[Frame]:
        """The outermost frames of every thread, their children in them."""
        profiler: Any = self._profiler.profiler
        threads: defaultdict[int, list[Entry]] = defaultdict(list)
        kernels_s: defaultdict[int, float] = defaultdict(float)  # by the call that launched them
        launchers: dict[int, Frame] = {}
        borrowed: list[
            tuple[int, Entry]
        ] = []  # calls of the driver, which name the call they were made for but no thread
        for event in profiler.kineto_results.events():
            name, start = sys.intern(event.name()), event.start_ns()
            on_host, link = event.device_type() == DeviceType.CPU, event.linked_correlation_id()
            if name == _MEMORY:
                if on_host == (self._device.type == "cpu"):
                    threads[event.start_thread_id()].append((start, -start, event.nbytes()))
            elif not on_host:
                kernels_s[link] += event.duration_ns() * _NANO
            elif (
                not event.is_async() and event.start_thread_id() == event.end_thread_id() and not name.startswith(_OWN)
            ):
                frame = _frame(event, name, start)
                entry = (start, -start - event.duration_ns(), frame)
                if link:
                    borrowed.append((link, entry))
                else:
                    threads[frame.thread].append(entry)
                    # A range that the user marked is also seen on the GPU, as a span over kernels that are booked already.
                    if not event.is_user_annotation():
                        launchers[event.correlation_id()] = frame
        for link, entry in borrowed:
            if link in launchers:
                threads[launchers[link].thread].append(entry)
        for link, frame in launchers.items():
            frame.own_device_s = kernels_s.get(link, 0.0)
        return [root for entries in threads.values() for root in nested(entries)]


def _frame(event: Any, name: str, start: int) -> Frame:
    return Frame(
        name, start * _NANO, event.duration_ns() * _NANO, thread=event.start_thread_id(), sequence=event.sequence_nr(),
        forward_thread=event.fwd_thread_id(),
    )  # fmt: skip


def nested(entries: Iterable[Entry]) -> list[Frame]:
    """The frames of one thread, each below the one it lies in; what memory changed belongs to the innermost.

    A frame that only overlaps another is its neighbour, as in torch's own tables.
    """
    roots: list[Frame] = []
    open_: list[tuple[int, Frame]] = []
    for start, minus_end, what in sorted(entries, key=itemgetter(0, 1)):
        while open_ and (start >= open_[-1][0] or -minus_end > open_[-1][0]):
            open_.pop()
        if isinstance(what, int):
            if open_:
                open_[-1][1].own_bytes += what
            continue
        if open_:
            open_[-1][1].add(what)
        else:
            roots.append(what)
        open_.append((-minus_end, what))
    return roots
