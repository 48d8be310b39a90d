"""The network of a box: a switch, a link of the chosen speed to each machine in both directions, and cutting a link.

It starts no daemon and knows nothing of Slurm.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

from paceline.base.errors import RunFailed
from paceline.base.files import remove_tree
from paceline.cluster.box import HEAD_ADDRESS, HOST_ADDRESS, SUBNET, Box, Machine, delay_text
from paceline.cluster.needs import tool
from paceline.launch.command import Answer, ask

# The switch has a namespace of its own: the firewall of the real machine (Docker's drops what it forwards) never sees the traffic.
NETNS = Path("/run/netns")
PREFIX = "paceline-"
SWITCH = f"{PREFIX}switch"
HOST_LINK = "paceline0"  # the one interface that the real machine gets
_MASK = SUBNET.prefixlen


def space(name: str) -> str:
    """The network namespace of a machine."""
    return f"{PREFIX}{name}"


def spaces() -> list[str]:
    """Our network namespaces that exist, those of an interrupted start too."""
    return sorted(path.name for path in NETNS.glob(f"{PREFIX}*"))


def _ip(*words: str, inside: str | None = None) -> Answer:
    return _did([tool("ip"), *(["-n", inside] if inside else []), *words])


def _did(argv: list[str]) -> Answer:
    answer = ask(argv)
    if not answer.ok:
        raise RunFailed(f"the network could not be changed: {' '.join(argv)}: {answer.words}", kind="launch")
    return answer


def make(box: Box) -> None:
    _ip("netns", "add", SWITCH)
    _ip("link", "set", "lo", "up", inside=SWITCH)
    _ip("link", "add", "bridge0", "type", "bridge", inside=SWITCH)
    _ip("addr", "add", f"{HEAD_ADDRESS}/{_MASK}", "dev", "bridge0", inside=SWITCH)
    _ip("link", "set", "bridge0", "up", inside=SWITCH)
    _ip("link", "add", HOST_LINK, "type", "veth", "peer", "name", "host", "netns", SWITCH)
    _ip("link", "set", "host", "master", "bridge0", "up", inside=SWITCH)
    _ip("addr", "add", f"{HOST_ADDRESS}/{_MASK}", "dev", HOST_LINK)
    _ip("link", "set", HOST_LINK, "up")
    for machine in box.members:
        _plug_in(machine)
        _shape(box, machine)


def _plug_in(machine: Machine) -> None:
    inside = space(machine.name)
    _ip("netns", "add", inside)
    _ip("link", "set", "lo", "up", inside=inside)
    _ip("link", "add", machine.name, "type", "veth", "peer", "name", "eth0", "netns", inside, inside=SWITCH)
    _ip("addr", "add", f"{machine.address}/{_MASK}", "dev", "eth0", inside=inside)
    _ip("link", "set", "eth0", "up", inside=inside)
    _ip("link", "set", machine.name, "master", "bridge0", "up", inside=SWITCH)


def _shape(box: Box, machine: Machine) -> None:
    """A queue limits what leaves an interface, so a link has one at each end: what the machine sends and what it receives.

    The delay is added once, where a packet leaves its machine: one way takes that long, there and back twice.
    """
    sending = (space(machine.name), "eth0")
    place = ("root",)
    if box.delay_us:
        # The limit is a number of packets: the default of 1000 would drop what a fast link holds in flight.
        _queue(*sending, "root", "handle", "1:", "netem", "delay", delay_text(box.delay_us), "limit", "100000")
        place = ("parent", "1:1")
    if box.link_bps:
        for where, at in ((sending, place), ((SWITCH, machine.name), ("root",))):
            _queue(*where, *at, "tbf", "rate", f"{box.link_bps}bit", "burst", f"{burst_bytes(box.link_bps)}b",
                   "latency", "50ms")  # fmt: skip


def burst_bytes(link_bps: int) -> int:
    """How much may pass at once: the bytes of one millisecond, so that the timer's resolution does not limit a fast
    link."""
    return max(4096, link_bps // 8 // 1000)


def _queue(inside: str, interface: str, *words: str) -> None:
    _did([tool("tc"), "-n", inside, "qdisc", "add", "dev", interface, *words])


def cut(name: str) -> None:
    """As if the cable were pulled: nothing is refused, nothing arrives."""
    _ip("link", "set", name, "down", inside=SWITCH)


def mend(name: str) -> None:
    _ip("link", "set", name, "up", inside=SWITCH)


def cut_off() -> set[str]:
    """The machines whose cable is pulled."""
    links = json.loads(_ip("-json", "link", "show", "type", "veth", inside=SWITCH).out)
    return {link["ifname"] for link in links if "UP" not in link["flags"]}


def remove(*, folder_too: bool) -> bool:
    """Removes whatever exists of the network; True when there was something. `folder_too`: /run/netns is ours, too."""
    namespaces = spaces()
    there = HOST_LINK in (name for _, name in socket.if_nameindex())
    if there:
        _ip("link", "del", HOST_LINK)  # with the switch alone it would go too, but some time later
    for name in namespaces:
        _ip("netns", "del", name)
    if folder_too and NETNS.is_dir() and not any(NETNS.iterdir()):
        # `ip` mounts the folder onto itself; os.path.ismount does not see that where /run is no file system of its own.
        if f" {NETNS} " in Path("/proc/self/mounts").read_text():
            _did([tool("umount"), "-n", str(NETNS)])
        remove_tree(NETNS)
    return there or bool(namespaces)
