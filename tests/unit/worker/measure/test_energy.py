"""Joules from counters that go up: wraps, several packages, what cannot be read. The powercap folder is made up, and `Nvml` stands in
for the module pynvml, because there is no GPU here; tests/gpu/test_energy.py asks a real one."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paceline.records.cost import GPU, PACKAGE, PLATFORM
from paceline.worker.measure import energy
from paceline.worker.measure.energy import Meter, Unreadable, gpu_counter

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)
UUID = "GPU-11111111-2222-3333-4444-555555555555"


class Machine:
    """A powercap folder and a clock, both moved by hand."""

    def __init__(self, root: Path, *names: str, range_j: int = 65_000) -> None:
        self.root, self.s, self.range_uj = root, 0.0, range_j * 10**6
        root.mkdir(exist_ok=True)
        for number, name in enumerate(names):
            path = root / f"intel-rapl:{number}"
            path.mkdir()
            (path / "name").write_text(name)
            (path / "max_energy_range_uj").write_text(str(self.range_uj))
            self.set(number, 0)

    def set(self, number: int, joules: float) -> None:
        (self.root / f"intel-rapl:{number}" / "energy_uj").write_text(str(int(joules * 1e6)))

    def meter(self, *, device: torch.device = CPU, leads: bool = True, nvml: Any = None) -> Meter:
        return Meter(device, leads=leads, root=self.root, nvml=nvml, clock=lambda: self.s)


class Nvml:
    """What is used of pynvml, over counters in millijoules by UUID."""

    class NVMLError(Exception):
        pass

    def __init__(self, millijoules: dict[str, int], *, mig: int | None = None, has_counter: bool = True) -> None:
        self.millijoules, self._mig, self._has_counter, self.opened = millijoules, mig, has_counter, 0

    def nvmlInit(self) -> None:
        self.opened += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid not in self.millijoules:
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:
        if self._mig is None:
            raise self.NVMLError("Not Supported")
        return [self._mig, self._mig]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:
        if not self._has_counter:
            raise self.NVMLError("Not Supported")
        return self.millijoules[handle]


@pytest.fixture
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch as it would be with one: the GPU's UUID without NVML's prefix, and nothing to wait for."""
    found = SimpleNamespace(uuid=UUID.removeprefix("GPU-"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: found)
    monkeypatch.setattr(energy, "settle", lambda device: None)


def test_packages_are_added(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "package-0", "package-1")
    machine.set(0, 100)
    meter = machine.meter()
    meter.start()
    machine.set(0, 130.5)
    machine.set(1, 12)
    said = meter.stop()
    assert (said["joules"], said["why"]) == ({PACKAGE: pytest.approx(42.5)}, [])
    assert said["machine"], "which machine it is, so that one with several names is counted once"


def test_a_counter_that_begins_again_is_followed(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "package-0", range_j=65_000)
    machine.set(0, 64_000)
    meter = machine.meter()
    meter.start()
    for joules in (1_000, 60_000, 500):  # over its end twice: only the readings in between can tell
        machine.s += 60
        machine.set(0, joules)
        meter.read()
    machine.s += 60
    machine.set(0, 700)
    assert meter.stop()["joules"] == {PACKAGE: pytest.approx(2_000 + 59_000 + 5_500 + 200)}


def test_a_reading_that_came_too_late_is_no_figure(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "package-0", range_j=65_000)
    meter = machine.meter()
    meter.start()
    machine.s += 3600
    machine.set(0, 900)
    said = meter.stop()
    assert said["joules"] == {PACKAGE: None}
    assert "not read for 3600 s" in said["why"][0]


def test_only_the_rank_that_leads_reads_the_machine(tmp_path: Path) -> None:
    meter = Machine(tmp_path, "package-0").meter(leads=False)
    meter.start()
    assert meter.stop() == {"joules": {}, "why": []}


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    meter = Machine(tmp_path / "none").meter()
    meter.start()
    meter.read()
    said = meter.stop()
    assert said["joules"] == {PACKAGE: None} and "no RAPL" in said["why"][0] and len(said["why"]) == 1


def test_a_counter_that_stands_still_is_no_zero(tmp_path: Path) -> None:
    meter = Machine(tmp_path, "package-0").meter()
    meter.start()
    said = meter.stop()
    assert said["joules"] == {PACKAGE: None} and "did not move" in said["why"][0]


def test_a_counter_that_goes_away_takes_the_sum_with_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "package-0", "package-1")
    meter = machine.meter()
    meter.start()
    machine.set(0, 10)
    (tmp_path / "intel-rapl:1" / "energy_uj").unlink()
    said = meter.stop()
    assert said["joules"] == {PACKAGE: None}, "one of two packages is not the machine"
    assert "cannot be read (No such file or directory)" in said["why"][0]


def test_the_board_alone_has_another_name(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "psys")
    meter = machine.meter()
    meter.start()
    machine.set(0, 3)
    assert meter.stop()["joules"] == {PLATFORM: pytest.approx(3)}


@pytest.mark.usefixtures("a_gpu")
def test_a_gpu_and_the_packages_beside_it(tmp_path: Path) -> None:
    machine, nvml = Machine(tmp_path, "package-0"), Nvml({"GPU-another": 1, UUID: 9_000_000})
    meter = machine.meter(device=CUDA, nvml=nvml)
    meter.start()
    nvml.millijoules[UUID] += 250_000
    machine.set(0, 40)
    machine.s += 2
    said = meter.stop()
    assert (said["joules"], said["why"]) == ({GPU: pytest.approx(250), PACKAGE: pytest.approx(40)}, [])


@pytest.mark.usefixtures("a_gpu")
def test_a_board_that_may_hold_the_gpu_is_not_added_to_it(tmp_path: Path) -> None:
    nvml = Nvml({UUID: 0})
    machine = Machine(tmp_path, "psys")
    meter = machine.meter(device=CUDA, nvml=nvml)
    meter.start()
    nvml.millijoules[UUID] = 5_000
    machine.s += 2
    said = meter.stop()
    assert said["joules"] == {GPU: pytest.approx(5), PACKAGE: None} and "psys" in said["why"][0]


@pytest.mark.usefixtures("a_gpu")
def test_a_moment_is_too_short_for_a_gpus_counter(tmp_path: Path) -> None:
    """It moves ten times a second: over less than one, the figure would be off by more than it is worth."""
    machine, nvml = Machine(tmp_path), Nvml({UUID: 0})
    meter = machine.meter(device=CUDA, leads=False, nvml=nvml)
    meter.start()
    nvml.millijoules[UUID] = 5_000
    machine.s += 0.25
    said = meter.stop()
    assert said["joules"] == {GPU: None} and "training took 0.25 s, too short" in said["why"][0]


@pytest.mark.usefixtures("a_gpu")
def test_without_the_module_there_is_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)  # Python's own way of "there is none"
    meter = Machine(tmp_path, "package-0").meter(device=CUDA, leads=False)
    meter.start()
    said = meter.stop()
    assert said["joules"] == {GPU: None} and "nvidia-ml-py, which is not installed" in said["why"][0]


@pytest.mark.parametrize(
    ("nvml", "why"),
    [
        (Nvml({}), f"NVML does not answer for {UUID} (Not Found)"),
        (Nvml({UUID: 1}, has_counter=False), "shows no energy counter (NVML: Not Supported)"),
        (Nvml({UUID: 1}, mig=1), "is divided (MIG)"),
    ],
)
def test_what_a_gpu_cannot_say(nvml: Nvml, why: str) -> None:
    with pytest.raises(Unreadable) as refused:
        gpu_counter(UUID, nvml)
    assert why in str(refused.value)


def test_a_gpu_that_could_be_divided_and_is_not() -> None:
    assert gpu_counter(UUID, Nvml({UUID: 7}, mig=0)).read() == 7


@pytest.mark.usefixtures("a_gpu")
def test_a_gpu_counter_that_was_set_back_is_no_figure(tmp_path: Path) -> None:
    nvml = Nvml({UUID: 9_000})
    meter = Machine(tmp_path, "package-0").meter(device=CUDA, leads=False, nvml=nvml)
    meter.start()
    nvml.millijoules[UUID] = 10
    said = meter.stop()
    assert said["joules"] == {GPU: None} and "set back" in said["why"][0]
