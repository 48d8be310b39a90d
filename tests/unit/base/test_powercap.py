"""Which of the kernel's energy counters are taken: whole packages, each once; and why none is. The folders are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.base import powercap
from paceline.base.powercap import look


def zone(root: Path, folder: str, name: str, energy: int | str = 5_000_000, range_uj: int = 262_143_328_850) -> Path:
    path = root / folder
    path.mkdir(parents=True)
    for file, value in (("name", name), ("energy_uj", energy), ("max_energy_range_uj", range_uj)):
        (path / file).write_text(f"{value}\n")
    return path


def test_packages_are_taken_and_their_parts_are_not(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", energy=7)
    zone(tmp_path, "intel-rapl:0:0", "core")
    zone(tmp_path, "intel-rapl:0:1", "dram")
    zone(tmp_path, "intel-rapl:1", "package-1")
    zone(tmp_path, "intel-rapl:2", "psys")
    zone(tmp_path, "dtpm:0", "package-9")
    (tmp_path / "intel-rapl").mkdir()  # the driver's own folder has no counter
    found = look(tmp_path)
    assert ([one.name for one in found.zones], found.why, found.platform) == (["package-0", "package-1"], "", False)
    assert found.zones[0].read_uj() == 7


def test_a_package_shown_twice_is_one(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl-mmio:0", "package-0", energy=1)
    zone(tmp_path, "intel-rapl:0", "package-0", energy=2)
    assert [one.read_uj() for one in look(tmp_path).zones] == [2]


def test_the_board_as_a_whole_where_there_is_no_package(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "psys")
    zone(tmp_path, "intel-rapl:0:0", "core")
    found = look(tmp_path)
    assert [one.name for one in found.zones] == ["psys"] and found.platform


@pytest.mark.parametrize("folder", ["nowhere", "empty"])
def test_a_machine_without_any(folder: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    found = look(tmp_path / folder)
    assert found.zones == () and f"no RAPL in {tmp_path / folder}" in found.why


def test_what_only_root_may_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, and tests may run as root: the refusal is made here."""
    path = zone(tmp_path, "intel-rapl:0", "package-0")

    def refuse(self: powercap.Zone) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(powercap.Zone, "read_uj", refuse)
    found = look(tmp_path)
    assert found.zones and found.why == f"{path / 'energy_uj'} cannot be read (Permission denied)"


def test_what_is_no_number(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", "package-0", energy="many")
    assert "cannot be read" in look(tmp_path).why
