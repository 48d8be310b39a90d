"""The daemons of a box: munged with a key of its own, slurmctld on the switch, a slurmd in every machine.
They are started and waited for here; the system's own munge and Slurm are never touched."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from paceline.base.errors import RunFailed
from paceline.base.files import write_text
from paceline.cluster import network
from paceline.cluster.box import CONF, FOLDER, HEAD, MUNGE_SOCKET, Box, Machine
from paceline.cluster.needs import tool
from paceline.cluster.processes import MARK, start_ticks
from paceline.cluster.slurmconf import render
from paceline.cluster.state import Daemon
from paceline.launch.command import ask

HOSTS, RESOLV = FOLDER / "hosts", FOLDER / "resolv.conf"
_MUNGE = MUNGE_SOCKET.parent
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TRIES, _PAUSE_S, _PATIENCE_S = 200, 0.1, 5.0
# Errors that every new cluster logs: it has no state to recover; and PMIx is missed only by who asks for it.
_HARMLESS = "state file|state save file|[Pp][Mm][Ii]x"

# What makes a namespace a machine: its own names, its own shared memory, a name server that answers nothing.
# An unknown name then fails at once; shared memory is memory, and no two machines share that.
# -n: `mount` keeps no book of it in /run/mount.
_MACHINE = """\
set -e
hostname "$1"
mount -n --bind {hosts} /etc/hosts
if [ -e /etc/resolv.conf ]; then mount -n --bind {resolv} /etc/resolv.conf; fi
if [ -d /dev/shm ]; then mount -n -t tmpfs -o "mode=1777,size=$2m" tmpfs /dev/shm; fi
exec taskset -c "$3" "$4" -f {conf} -N "$1"
"""
_HEAD = 'hostname "$1" && exec "$2" -f {conf}'


def write_files(box: Box) -> None:
    write_text(CONF, render(box))
    write_text(HOSTS, box.hosts())
    write_text(RESOLV, "")
    folders = ["state", *(f"{kind}-{machine.name}" for kind in ("spool", "tmp") for machine in box.members)]
    for name in folders:
        (FOLDER / name).mkdir(exist_ok=True)
    _MUNGE.mkdir(exist_ok=True)


def start_munge() -> None:
    _start([tool("mungekey"), "--create", f"--keyfile={_MUNGE / 'key'}"], "mungekey")
    names = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    _start([tool("munged"), *(f"--{option}={_MUNGE / name}" for option, name in names.items())], "munged")


def start_slurm(box: Box) -> None:
    """nsenter, not `ip netns exec`: the latter mounts /sys again, and slurmd does not find its cgroups there."""
    head = _HEAD.format(conf=CONF)
    _start([*_into(network.SWITCH, "--uts"), "sh", "-c", head, "sh", HEAD, tool("slurmctld")], "slurmctld")
    script = _MACHINE.format(hosts=HOSTS, resolv=RESOLV, conf=CONF)
    for machine in box.members:
        inside = _into(network.space(machine.name), "--uts", "--mount", "--propagation", "slave")
        words = (machine.name, str(box.machine_memory_mb), core_list(machine), tool("slurmd"))
        _start([*inside, "sh", "-c", script, "sh", *words], f"slurmd of {machine.name}")


def _into(space: str, *more: str) -> list[str]:
    return [tool("nsenter"), f"--net={network.NETNS / space}", tool("unshare"), *more]


def core_list(machine: Machine) -> str:
    return ",".join(map(str, machine.cores))


def _start(argv: Sequence[str], who: str) -> None:
    """Each daemon goes to the background when it is ready, so its start has an exit code."""
    answer = ask(["env", "-i", _PATH, MARK, *argv])
    if not answer.ok:
        raise RunFailed(f"{who} did not start: {answer.words}{_complaints()}", kind="launch")


def running(box: Box) -> dict[str, Daemon]:
    """The daemons by name, from the pid files they wrote."""
    files = {"munged": _MUNGE / "pid", "slurmctld": FOLDER / "slurmctld.pid"}
    files |= {machine.name: FOLDER / f"slurmd-{machine.name}.pid" for machine in box.members}
    daemons: dict[str, Daemon] = {}
    for name, file in files.items():
        try:
            pid = int(file.read_text())
        except (OSError, ValueError):
            raise RunFailed(f"{name} has left no pid in {file}{_complaints()}", kind="launch") from None
        if (ticks := start_ticks(pid)) is None:
            raise RunFailed(f"{name} has ended again{_complaints()}", kind="launch")
        daemons[name] = Daemon(pid, ticks)
    return daemons


def wait_until_idle(box: Box) -> None:
    """Every machine has reported to slurmctld, or a sentence with what the daemons wrote."""
    states: dict[str, str] = {}
    silent = 0
    for attempt in range(_TRIES):
        states = node_states()
        if len(states) == box.machines and all(state == "idle" for state in states.values()):
            return
        silent += not states
        if silent or attempt > _TRIES // 10:
            running(box)  # by now each has written its pid; one that has ended again is not waited for
        if silent > 2:
            break
        time.sleep(_PAUSE_S)
    seen = ", ".join(f"{name} is {state}" for name, state in states.items()) or "slurmctld does not answer"
    raise RunFailed(f"the machines do not become ready: {seen}{_complaints()}", kind="launch")


def asked(*argv: str) -> list[str]:
    """The lines that a Slurm command prints; none when slurmctld does not answer, for which the command would wait
    long."""
    try:
        answer = ask([tool(argv[0]), *argv[1:]], env={"SLURM_CONF": str(CONF)}, timeout_s=_PATIENCE_S)
    except RunFailed:
        return []
    return answer.out.splitlines() if answer.ok else []


def node_states() -> dict[str, str]:
    """As Slurm sees the machines: idle, allocated, down*, ...; empty when slurmctld does not answer."""
    return dict(line.split("|", 1) for line in asked("sinfo", "-h", "-N", "-p", "main", "-o", "%N|%T"))


def _complaints() -> str:
    """The last errors in the daemons' logs: what a person would look for, before `down` takes the logs away."""
    errors: list[str] = []
    for file in [*sorted(FOLDER.glob("*.log")), _MUNGE / "log"]:
        lines = file.read_text(errors="replace").splitlines() if file.exists() else []
        bad = [line for line in lines if re.search("error|fatal", line, re.I) and not re.search(_HARMLESS, line)]
        errors += [f"{file.name}: {line.strip()[:200]}" for line in bad[-2:]]
    return "; " + "; ".join(errors) if errors else "; the daemons' logs name no error"
