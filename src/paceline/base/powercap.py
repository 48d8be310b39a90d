"""The processors' energy counters (RAPL), as the kernel shows them in files: which exist, and what one reads. It sums
nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/class/powercap")
# intel-rapl:0 is a whole package, intel-rapl:0:1 a part of it. AMD's have Intel's name too.
_WHOLE = re.compile(r"[a-z-]*rapl[a-z-]*:\d+")


@dataclass(frozen=True, slots=True)
class Zone:
    """One counter, in microjoules; after `range_uj` it begins again at 0."""

    name: str
    path: Path
    range_uj: int

    def read_uj(self) -> int:
        return int((self.path / "energy_uj").read_text())


@dataclass(frozen=True, slots=True)
class Rapl:
    """What a machine has of them. `why`: the reason they cannot be read; empty where all of them can."""

    zones: tuple[Zone, ...] = ()
    why: str = ""

    @property
    def platform(self) -> bool:
        """The kernel names no package, only all of the board together (psys)."""
        return any(zone.name == "psys" for zone in self.zones)


def look(root: Path = ROOT) -> Rapl:
    """The packages' counters; psys only where there is no package, because it includes them. Each is read once, to see
    whether that works."""
    by_name: dict[str, Zone] = {}
    # Some laptops show a package twice, the second time as intel-rapl-mmio: it is the same package.
    for path in sorted(root.glob("*rapl*"), key=lambda one: ("mmio" in one.name, one.name)):
        zone = _zone(path) if _WHOLE.fullmatch(path.name) else None
        if zone is not None:
            by_name.setdefault(zone.name, zone)
    packages = tuple(zone for name, zone in sorted(by_name.items()) if name.startswith("package-"))
    zones = packages or tuple(zone for name, zone in by_name.items() if name == "psys")
    if not zones:
        return Rapl(why=f"no RAPL in {root}: a virtual machine, a processor without it, or a kernel without its driver")
    for zone in zones:
        try:
            zone.read_uj()
        except (OSError, ValueError) as error:
            return Rapl(zones, f"{zone.path / 'energy_uj'} cannot be read ({said(error)})")
    return Rapl(zones)


def said(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _zone(path: Path) -> Zone | None:
    """None for a folder that is no counter, or has gone since it was listed."""
    try:
        name, range_uj = (path / "name").read_text().strip(), int((path / "max_energy_range_uj").read_text())
    except (OSError, ValueError):
        return None
    return Zone(name, path, range_uj)
