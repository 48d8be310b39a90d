"""What a cluster in a box is made of: its machines, their cores, names and addresses, and the speed of their links.
Pure data and arithmetic; nothing here looks at the machine it runs on, starts anything or writes anything."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from paceline.base.errors import BadInput
from paceline.base.names import unknown
from paceline.launch.slurm.queue import BOX_CONF

CONF = BOX_CONF  # where every launcher looks for it
FOLDER = CONF.parent
MUNGE_SOCKET = FOLDER / "munge" / "socket"

# 198.18.0.0/15 is set aside for measuring networks (RFC 2544): nobody's office, home or cloud network lies there.
SUBNET = ipaddress.IPv4Network("198.18.77.0/24")
HEAD, HEAD_ADDRESS = "head", str(SUBNET[254])
HOST_ADDRESS = str(SUBNET[253])  # the real machine, so that sbatch and srun work from it

MOST_MACHINES = 16
RATES: Mapping[str, int] = {"kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
DELAYS_US: Mapping[str, int] = {"us": 1, "ms": 10**3, "s": 10**6}
LEAST_LINK_BPS, MOST_LINK_BPS = 10**6, 10**11
MOST_DELAY_US = 500_000  # Slurm takes a machine for lost when a message needs seconds


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    address: str
    cores: tuple[int, ...]  # the real cores it may use


@dataclass(frozen=True, slots=True)
class Box:
    """Two boxes are equal when they have the same shape; the cores and memory of the real machine do not count."""

    machines: int
    cores: int  # of each machine
    link_bps: int | None = None
    delay_us: int | None = None  # one way, from machine to machine
    host_cores: tuple[int, ...] = field(default=(0,), compare=False)
    memory_mb: int = field(default=1024, compare=False)  # of the real machine

    @property
    def members(self) -> tuple[Machine, ...]:
        return tuple(Machine(f"node{i}", str(SUBNET[i + 1]), self._pinned(i)) for i in range(self.machines))

    def _pinned(self, index: int) -> tuple[int, ...]:
        """The next cores in order, starting again with the first when there are no more: then machines share cores."""
        first, real = index * self.cores, self.host_cores
        return tuple(sorted({real[(first + j) % len(real)] for j in range(self.cores)}))

    @property
    def shares_cores(self) -> bool:
        return self.machines * self.cores > len(self.host_cores)

    @property
    def machine_memory_mb(self) -> int:
        return max(64, self.memory_mb // self.machines)

    @property
    def shape(self) -> str:
        """As it is asked for on the command line."""
        words = [f"--machines {self.machines}", f"--cores {self.cores}"]
        words += [f"--link {rate_text(self.link_bps)}"] if self.link_bps else []
        words += [f"--delay {delay_text(self.delay_us)}"] if self.delay_us else []
        return " ".join(words)

    def member(self, name: str) -> Machine:
        for machine in self.members:
            if machine.name == name:
                return machine
        raise BadInput(unknown("machine", name, [machine.name for machine in self.members]))

    def hosts(self) -> str:
        """The hosts file of every machine: all names have their real addresses, one's own too, as gloo and MPI need it."""
        lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback", f"{HEAD_ADDRESS} {HEAD}"]
        return "\n".join([*lines, *(f"{machine.address} {machine.name}" for machine in self.members)]) + "\n"

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def from_plain(plain: Mapping[str, Any]) -> Box:
    return Box(
        plain["machines"],
        plain["cores"],
        plain["link_bps"],
        plain["delay_us"],
        tuple(plain["host_cores"]),
        plain["memory_mb"],
    )


def described(
    *, machines: int, cores: int, link: str | None, delay: str | None, host_cores: Sequence[int], memory_mb: int
) -> Box:
    """The box that was asked for, or BadInput with everything that is wrong with it."""
    problems: list[str] = []
    if not 1 <= machines <= MOST_MACHINES:
        problems.append(
            f"--machines {machines}: a box holds 1 to {MOST_MACHINES} machines; "
            "they all share this one, and more of them would measure nothing but its scheduler"
        )
    if not 1 <= cores <= len(host_cores):
        problems.append(
            f"--cores {cores}: this machine has {len(host_cores)}, and a machine in the box cannot have more "
            f"than the real one; choose 1 to {len(host_cores)}"
        )
    limits: dict[str, int | None] = {"link": None, "delay": None}
    for name, text, parse in (("link", link, parse_rate), ("delay", delay, parse_delay)):
        try:
            limits[name] = parse(text) if text is not None else None
        except BadInput as error:
            problems += error.problems
    if problems:
        raise BadInput(problems)
    return Box(machines, cores, limits["link"], limits["delay"], tuple(host_cores), memory_mb)


def _parse(text: str, units: Mapping[str, int]) -> int | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip().lower())
    if match is None or match[2] not in units:
        return None
    return round(float(match[1]) * units[match[2]])


def parse_rate(text: str) -> int:
    """Bits per second."""
    bps = _parse(text, RATES)
    if bps is None:
        # tc reads "100mbps" as megabytes: eight times what most people mean by it. Nobody shall have to know that.
        raise BadInput(
            f"--link {text}: not a speed; give a number with kbit, mbit or gbit (bits a second), "
            "for example --link 100mbit, or leave it out for no limit"
        )
    if not LEAST_LINK_BPS <= bps <= MOST_LINK_BPS:
        raise BadInput(
            f"--link {text}: choose from {rate_text(LEAST_LINK_BPS)} to {rate_text(MOST_LINK_BPS)}; "
            "below, Slurm's own messages come too late; above, the link limits nothing"
        )
    return bps


def parse_delay(text: str) -> int | None:
    """Microseconds; none at all for 0."""
    delay_us = _parse(text, DELAYS_US)
    if delay_us is None:
        raise BadInput(f"--delay {text}: not a time; give a number with us, ms or s, for example --delay 5ms")
    if delay_us > MOST_DELAY_US:
        raise BadInput(
            f"--delay {text}: at most {delay_text(MOST_DELAY_US)}; with more, Slurm takes the machines for lost"
        )
    return delay_us or None


def _text(value: int, units: Mapping[str, int]) -> str:
    name, size = max(((n, s) for n, s in units.items() if value >= s), key=lambda unit: unit[1])
    return f"{value / size:.10g}{name}"


def rate_text(bps: int) -> str:
    """As `parse_rate` and tc read it: 2.5gbit."""
    return _text(bps, RATES)


def delay_text(delay_us: int) -> str:
    return _text(delay_us, DELAYS_US)
