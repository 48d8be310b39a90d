"""Joules of a rank's GPU (NVML) and of its machine's processors (RAPL), from counters that exist. It never guesses and never computes
energy from power: what cannot be read is said in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from paceline.base import powercap
from paceline.records.cost import GPU, PACKAGE, PLATFORM
from paceline.worker.measure.clock import now
from paceline.worker.measure.device import settle
from paceline.worker.world.clocks import boot_id

# Watts, more than any processor package draws: gives the earliest time at which a counter can have wrapped.
_MOST_W = 600.0
# Seen on an H200: the counter moves ten times a second, and 0.2 s of full work read as 0.2 s of rest.
_LEAST_GPU_S = 1.0


class Unreadable(Exception):
    """Why a counter cannot be read, in a sentence."""


@dataclass(slots=True)
class Counter:
    """One counter, read now and then. `wraps_at`: where it begins again at 0, in its own unit; 0: never. `least_s`: in less time it
    moves too seldom to mean anything."""

    source: str
    read: Callable[[], int]
    per_joule: float
    wraps_at: int = 0
    least_s: float = 0.0
    last: int = 0
    sum: int = 0

    def begin(self) -> None:
        self.last, self.sum = self.read(), 0

    def go_on(self) -> None:
        """Add the next reading. It is right if the counter wrapped at most once since the last one."""
        value = self.read()
        if value < self.last and not self.wraps_at:
            raise Unreadable("the counter was set back while the training ran")
        self.sum += value - self.last + (self.wraps_at if value < self.last else 0)
        self.last = value


class Meter:
    """Around training: `start()`, `read()` at every mark or evaluation, `stop()`; never in a step. A reading is one small file for each
    package, and at the two ends one question to NVML (2.4 ms on an H200).

    RAPL counts in 32 bits: 262 kJ on Intel and 66 kJ on AMD before it begins again, at 200 W every 22 and 5.5 minutes. `read()` in
    between keeps count; where it came too late to be sure, the joules are null and the reason says so. NVML counts in 64 bits.

    `leads`: whether this rank reads the counters of its machine; one a machine does, else they would be added several times.
    """

    def __init__(
        self, device: torch.device, *, leads: bool, root: Path = powercap.ROOT, nvml: Any = None,
        clock: Callable[[], float] = now,
    ) -> None:  # fmt: skip
        self._device, self._leads, self._clock = device, leads, clock
        self._counters: list[Counter] = []
        self._lost: dict[str, str] = {}  # source -> why its joules cannot be told
        self._began = self._since = 0.0
        on_gpu = device.type == "cuda"
        if on_gpu:
            self._add(GPU, lambda: [gpu_counter(uuid_of(device), nvml or load_nvml())])
        if leads:
            self._add(PACKAGE, lambda: machine_counters(root, beside_a_gpu=on_gpu))

    def _add(self, source: str, find: Callable[[], list[Counter]]) -> None:
        try:
            self._counters += find()
        except Unreadable as error:
            self._lost[source] = str(error)

    def start(self) -> None:
        settle(self._device)
        self._each(self._counters, Counter.begin)
        self._began = self._since = self._clock()

    def read(self) -> None:
        """Read the counters that wrap; called between `start` and `stop`."""
        self._go_on([counter for counter in self._counters if counter.wraps_at])

    def stop(self) -> dict[str, Any]:
        """{"joules": {source: J, or null where it should be but is not known}, "why": sentences}, and on the rank that leads "machine"."""
        settle(self._device)
        self._go_on(self._counters)
        training_s = self._since - self._began
        sums = {counter.source: 0.0 for counter in self._counters}
        for counter in self._counters:
            sums[counter.source] += counter.sum / counter.per_joule
            if training_s < counter.least_s:
                why = f"training took {training_s:.2g} s, too short for the GPU's energy counter: it needs {counter.least_s:g} s"
                self._lost.setdefault(counter.source, why)
            if counter.sum == 0:
                self._lost.setdefault(
                    counter.source, f"{counter.source}: the counter did not move while the training ran"
                )
        machine = boot_id() if self._leads else None  # none outside Linux, where there is no RAPL either
        said = {"joules": {**sums, **dict.fromkeys(self._lost)}, "why": list(self._lost.values())}
        return {**said, "machine": machine} if machine else said

    def _go_on(self, counters: list[Counter]) -> None:
        time = self._clock()
        gap_s, self._since = time - self._since, time
        for counter in counters:
            earliest_s = counter.wraps_at / counter.per_joule / _MOST_W
            if counter.wraps_at and gap_s > earliest_s:
                self._lost[counter.source] = (
                    f"the machine's energy counter was not read for {gap_s:.0f} s, and it may begin again at 0 every "
                    f"{earliest_s:.0f} s: what it counted in that time is not known"
                )
        self._each(counters, Counter.go_on)

    def _each(self, counters: list[Counter], what: Callable[[Counter], None]) -> None:
        for counter in counters:
            try:
                what(counter)
            except Unreadable as error:
                self._lost.setdefault(counter.source, str(error))


def machine_counters(root: Path, *, beside_a_gpu: bool) -> list[Counter]:
    rapl = powercap.look(root)
    if rapl.why:
        raise Unreadable(rapl.why)
    if rapl.platform and beside_a_gpu:
        raise Unreadable(
            "the machine counts its board as a whole (psys), the GPU perhaps with it: it cannot be added to the GPU's"
        )
    source = PLATFORM if rapl.platform else PACKAGE
    return [Counter(source, _reader(zone), 1e6, zone.range_uj) for zone in rapl.zones]


def _reader(zone: powercap.Zone) -> Callable[[], int]:
    def read() -> int:
        try:
            return zone.read_uj()
        except (OSError, ValueError) as error:
            raise Unreadable(f"{zone.path / 'energy_uj'} cannot be read ({powercap.said(error)})") from None

    return read


def uuid_of(device: torch.device) -> str:
    """What CUDA and NVML both call this GPU; their numbers differ as soon as CUDA_VISIBLE_DEVICES is set."""
    return f"GPU-{str(torch.cuda.get_device_properties(device).uuid).removeprefix('GPU-')}"


def load_nvml() -> Any:
    try:
        import pynvml  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise Unreadable(
            "the GPU's counter is read through nvidia-ml-py, which is not installed in this Python"
        ) from None
    return pynvml


def gpu_counter(uuid: str, nvml: Any) -> Counter:
    """Read once, to see whether it can be. NVML stays open: it is counted inside, and ends with the process."""
    try:
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError as error:
        raise Unreadable(f"NVML does not answer for {uuid} ({error})") from None
    if _divided(handle, nvml):
        raise Unreadable(f"{uuid} is divided (MIG), and its energy counter counts all its parts together")

    def read() -> int:
        try:
            return nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        except nvml.NVMLError as error:
            raise Unreadable(f"{uuid} shows no energy counter (NVML: {error})") from None

    read()
    return Counter(GPU, read, 1e3, least_s=_LEAST_GPU_S)


def _divided(handle: Any, nvml: Any) -> bool:
    try:
        return nvml.nvmlDeviceGetMigMode(handle)[0] == 1
    except nvml.NVMLError:  # a GPU that cannot be divided has no such mode
        return False


def gpu_lacks(device: torch.device) -> str:
    """Why this GPU's energy cannot be read; empty where it can."""
    try:
        gpu_counter(uuid_of(device), load_nvml())
    except Unreadable as error:
        return str(error)
    return ""
