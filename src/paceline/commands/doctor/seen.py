"""What the doctor looks at and what it says, as plain data: everything between looking (`look.py`) and judging (`rows.py`, `start.py`).
Nothing here asks the machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from paceline.base.powercap import Rapl
from paceline.spec.host import Host

State = Literal["yes", "no", "partly"]


@dataclass(frozen=True, slots=True)
class Row:
    """One line: `found` is the finding, `fix` what to do about it; empty where nothing has to be done."""

    group: str
    what: str
    state: State
    found: str
    fix: str = ""

    def plain(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was asked for its version: where it is, what it said, or why it said nothing."""

    path: str
    said: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Interface:
    name: str
    addresses: tuple[str, ...]  # IPv4 first
    up: bool
    loopback: bool
    speed_mbps: int = 0  # 0: the system does not say


@dataclass(frozen=True, slots=True)
class Partition:
    name: str
    default: bool
    state: str  # up, down, drain, inact
    limit: str
    usable: int
    total: int
    broken: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Slurm:
    """What a controller said; `why` when none did."""

    partitions: tuple[Partition, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """What `paceline cluster up` would miss: for any cluster at all, and for its links of a chosen speed or delay."""

    condition: str  # up, stale, down
    problems: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    delay: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Disk:
    path: str  # where runs/ would lie
    free_bytes: int
    writable: bool


@dataclass(frozen=True, slots=True)
class Tried:
    """What the short worker job reported; `why` when torch could not even be started. `ended`: how it died half-way."""

    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    why: str = ""
    ended: str = ""

    def attempt(self, name: str, device: str) -> Mapping[str, Any] | None:
        tried: list[dict[str, Any]] = self.facts.get("tried", [])
        return next((one for one in tried if (one["format"], one["device"]) == (name, device)), None)

    @property
    def devices(self) -> list[str]:
        return ["cpu", *(f"cuda:{number}" for number in range(len(self.facts.get("gpus", []))))]


@dataclass(frozen=True, slots=True)
class Seen:
    """The whole machine, as far as it could be seen."""

    host: Host
    tried: Tried
    cpu: str
    flags: frozenset[str]  # of the CPU; empty where the system does not say
    all_cores: int
    quota_cores: float | None  # what a container may use at a time
    free_bytes: int
    limit_bytes: int | None  # of a container's memory
    disk: Disk
    python: str
    python_path: str
    headers: str | None  # where Python.h is
    system: str
    name: str
    addresses: tuple[str, ...] | str  # what the name resolves to, or why it does not
    rapl: Rapl  # the processors' energy counters
    programs: Mapping[str, Program] = field(default_factory=dict[str, Program])
    packages: Mapping[str, str] = field(default_factory=dict[str, str])  # name -> version
    interfaces: tuple[Interface, ...] = ()
    slurm: Slurm | None = None  # None: there is no Slurm client here
    box: Box | str = ""  # or why it could not be looked at
