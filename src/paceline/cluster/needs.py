"""What a cluster in a box needs of the real machine, and a sentence for each thing that is missing.
`look` finds out and leaves no trace; `missing` judges, purely, so that it can be tested with a machine that is not there."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.base.errors import BadInput, RunFailed
from paceline.cluster.box import SUBNET
from paceline.launch.command import ask

# program -> the Debian package it comes in
PROGRAMS: Mapping[str, str] = {
    "ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "taskset": "util-linux",
    "mount": "mount", "umount": "mount", "hostname": "hostname", "munged": "munge", "mungekey": "munge",
    "slurmctld": "slurmctld", "slurmd": "slurmd", "sbatch": "slurm-client", "sinfo": "slurm-client",
    "squeue": "slurm-client",
}  # fmt: skip
# A shell that became root with `su` has no sbin on its path.
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"

# feature -> what to try in a network namespace that is gone again when the command is over
_FEATURES: dict[str, tuple[str, ...]] = {
    "network namespaces": ("ip", "link", "set", "lo", "up"),
    "bridges (CONFIG_BRIDGE)": ("ip", "link", "add", "try0", "type", "bridge"),
    "veth pairs (CONFIG_VETH)": ("ip", "link", "add", "try0", "type", "veth", "peer", "name", "try1"),
}
_LINK: dict[str, tuple[str, ...]] = {
    "links of a chosen speed (tbf, CONFIG_NET_SCH_TBF)":
        ("tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "1mbit", "burst", "32kbit", "latency", "50ms"),
}  # fmt: skip
_DELAY: dict[str, tuple[str, ...]] = {
    "links with a delay (netem, CONFIG_NET_SCH_NETEM)":
        ("tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Host:
    """What was found on the real machine."""

    platform: str
    root: bool
    programs: frozenset[str]
    lacking: Mapping[str, str] = field(default_factory=dict[str, str])  # feature -> the kernel's own words
    taken: tuple[str, ...] = ()  # networks in use that overlap with ours


def tool(name: str) -> str:
    """The full path of a program we need."""
    path = shutil.which(name) or shutil.which(name, path=_SBIN)
    if path is None:
        raise RunFailed(
            f"{name}: no such program on this machine; install it: apt-get install -y {PROGRAMS[name]}", kind="launch"
        )
    return path


def is_root() -> bool:
    return os.geteuid() == 0


def look(*, link: bool, delay: bool) -> Host:
    programs = frozenset(name for name in PROGRAMS if shutil.which(name) or shutil.which(name, path=_SBIN))
    host = Host(sys.platform, is_root(), programs)
    if host.platform != "linux" or not host.root or not {"ip", "tc", "unshare"} <= programs:
        return host  # nothing more can be tried
    lacking: dict[str, str] = {}
    for feature, words in (_FEATURES | (_LINK if link else {}) | (_DELAY if delay else {})).items():
        # A network namespace that ends with its command takes everything in it along: trying leaves nothing behind.
        answer = ask([tool("unshare"), "--net", "--mount", "--uts", tool(words[0]), *words[1:]])
        if not answer.ok:
            lacking[feature] = answer.words.rstrip(".")
    return Host(host.platform, host.root, programs, lacking, _taken())


def _taken() -> tuple[str, ...]:
    """Routes of the real machine into our subnet, other than our own and the one to everywhere."""
    answer = ask([tool("ip"), "-json", "-4", "route", "show"])
    routes: list[dict[str, str]] = json.loads(answer.out) if answer.ok and answer.out.strip() else []
    taken: list[str] = []
    for route in routes:
        if route["dst"] == "default" or route.get("dev", "").startswith("paceline"):
            continue
        network = ipaddress.IPv4Network(route["dst"], strict=False)
        if network.prefixlen >= 8 and network.overlaps(SUBNET):
            taken.append(f"{network} on {route.get('dev', '?')}")
    return tuple(taken)


def missing(host: Host) -> list[str]:
    """A sentence for each problem: all at once, so that one visit to the administrator is enough."""
    if host.platform != "linux":
        return [
            f"a cluster in a box is made of Linux network namespaces, and this is {host.platform}; "
            "use a Linux machine or a virtual one, as root"
        ]
    problems: list[str] = []
    if not host.root:
        problems.append("making machines and networks needs root, and you are not; try: sudo paceline cluster ...")
    if absent := [name for name in PROGRAMS if name not in host.programs]:
        packages = " ".join(sorted({PROGRAMS[name] for name in absent}))
        problems.append(
            f"{', '.join(absent)}: not installed; on Debian or Ubuntu: apt-get install -y --no-install-recommends {packages}"
        )
    for feature, words in host.lacking.items():
        problems.append(f"the kernel refuses {feature}: {words}; {_advice(feature)}")
    if host.taken:
        problems.append(
            f"the box would use the network {SUBNET}, which this machine already uses ({', '.join(host.taken)}); "
            "take that network down first"
        )
    return problems


def _advice(feature: str) -> str:
    if "netem" in feature:
        return "leave --delay out, or use a kernel that has it (Debian's own does); nothing here can stand in for it"
    if "tbf" in feature:
        return "leave --link out, or use a kernel that has it"
    return "in a container it needs --privileged, and a kernel that has it"


def check(*, link: bool, delay: bool) -> None:
    if problems := missing(look(link=link, delay=delay)):
        raise BadInput(problems)


def check_root() -> None:
    """For commands that change a box but need no new one."""
    if not sys.platform.startswith("linux") or not is_root():
        raise BadInput(missing(Host(sys.platform, is_root(), frozenset(PROGRAMS))))
