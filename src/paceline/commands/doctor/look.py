"""Looking at the machine: files of the system, programs asked for their version, one short worker job. It judges nothing.

A program that does not answer in time is told so in a row; it never holds the doctor up.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import sysconfig
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from paceline.base import powercap
from paceline.base.errors import RunFailed
from paceline.base.files import read_json, scratch
from paceline.cluster import needs, state
from paceline.commands.doctor.seen import Box, Disk, Interface, Partition, Program, Seen, Slurm, Tried
from paceline.launch.command import ask
from paceline.launch.plan import SAFE, Plan, Process, worker_argv
from paceline.launch.slurm import queue
from paceline.launch.supervise import Tick, supervise
from paceline.records.gather import by_signal
from paceline.records.layout import RunDir
from paceline.spec import host as hosts
from paceline.study.execute import tail

_ANSWER_S = 3.0
# A torch on a cold network disk is slow, not broken: much longer than the seconds it usually takes.
_TRY_S = 60.0
_VERSION: dict[str, tuple[str, ...]] = {
    "mpirun": ("--version",), "g++": ("--version",), "clang++": ("--version",), "nvcc": ("--version",),
    "ninja": ("--version",), "nvidia-smi": ("--query-gpu=driver_version", "--format=csv,noheader"),
}  # fmt: skip


def look() -> Seen:
    """Everything. The questions go out while the worker job imports torch, and not before it has started: supervise prepares a
    child in Python, which is safe only as long as there is one thread."""
    host, name = hosts.here(), socket.gethostname()
    with ThreadPoolExecutor(max_workers=16) as pool:
        asked: dict[str, Future[Any]] = {}

        def ask_all(*_: object) -> None:
            if not asked:
                asked.update({one: pool.submit(_program, one, words) for one, words in _VERSION.items()})
                asked["addresses"], asked["box"] = pool.submit(_addresses, name), pool.submit(_box)
                asked["slurm"] = pool.submit(_slurm if hosts.program("sbatch") else lambda: None)

        tried = _tried(ask_all) if host.torch else Tried(why="it is not installed in this Python")
        ask_all()  # where nothing was tried, or it was over at once
    cpu, flags = _cpu()
    limit = _first_number(Path("/sys/fs/cgroup/memory.max"))
    return Seen(
        host=host, tried=tried, cpu=cpu, flags=flags, all_cores=os.cpu_count() or 1, quota_cores=_quota(),
        free_bytes=psutil.virtual_memory().available, limit_bytes=int(limit) if limit else None, disk=_disk(Path.cwd() / "runs"),
        python=platform.python_version(), python_path=sys.executable, headers=_headers(),
        system=f"{platform.system()} {platform.release()}", name=name, addresses=asked["addresses"].result(),
        programs={one: program for one in _VERSION if (program := asked[one].result())},
        packages={one: version for one in hosts.PACKAGES if (version := hosts.installed(one))}, interfaces=_interfaces(),
        slurm=asked["slurm"].result(), box=asked["box"].result(), rapl=powercap.look(),
    )  # fmt: skip


def _program(name: str, words: Sequence[str]) -> Program | None:
    path = hosts.program(name)
    if path is None:
        return None
    try:
        answer = ask((path, *words), timeout_s=_ANSWER_S)
    except (RunFailed, OSError) as error:  # silent; or no program at all, for all its name
        return Program(path, why=str(error))
    return Program(path, said=answer.out.strip()) if answer.ok else Program(path, why=answer.words)


def _cpu() -> tuple[str, frozenset[str]]:
    """Model and flags; ARM calls its flags Features and gives no model."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine(), frozenset()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    flags = fields.get("flags") or fields.get("Features", "")
    return fields.get("model name") or platform.machine(), frozenset(flags.split())


def _first_number(path: Path) -> float | None:
    """A container's limit; None where there is none ("max"), or no such file."""
    try:
        word = path.read_text().split()[0]
    except (OSError, IndexError):
        return None
    return float(word) if word.isdigit() else None


def _quota() -> float | None:
    """The file holds the quota and the period: 100000 of 50000 microseconds are two cores."""
    path = Path("/sys/fs/cgroup/cpu.max")
    quota = _first_number(path)
    return quota / float(path.read_text().split()[1]) if quota else None


def _disk(path: Path) -> Disk:
    standing = next(place for place in (path, *path.parents) if place.exists())
    return Disk(str(path), shutil.disk_usage(standing).free, os.access(standing, os.W_OK))


def _headers() -> str | None:
    path = Path(sysconfig.get_path("include"), "Python.h")
    return str(path) if path.is_file() else None


def _addresses(name: str) -> tuple[str, ...] | str:
    """Looked up in a process of its own: a name server that does not answer would block us for half a minute."""
    code = "import socket, sys; print(*{a[4][0] for a in socket.getaddrinfo(sys.argv[1], None)})"
    try:
        answer = ask((sys.executable, "-I", "-S", "-c", code, name), timeout_s=_ANSWER_S)
    except RunFailed:
        return f"no answer within {_ANSWER_S:g} s"
    if not answer.ok:
        return answer.err.strip().splitlines()[-1].rpartition("] ")[2] if answer.err.strip() else "no address"
    return tuple(sorted(answer.out.split(), key=lambda one: (":" in one, one)))


def _interfaces() -> tuple[Interface, ...]:
    stats, by_interface = psutil.net_if_stats(), psutil.net_if_addrs()
    rows: list[Interface] = []
    for name, one in stats.items():
        kinds = {
            family: [a.address for a in by_interface.get(name, []) if a.family == family]
            for family in (socket.AF_INET, socket.AF_INET6)
        }
        # Link-local IPv6 (fe80::) is on every interface and says nothing.
        addresses = (*kinds[socket.AF_INET], *(a for a in kinds[socket.AF_INET6] if not a.startswith("fe80")))
        rows.append(Interface(name, addresses, one.isup, "loopback" in one.flags or name.startswith("lo"), one.speed))
    return tuple(rows)


def _slurm() -> Slurm:
    try:
        answer = ask(("sinfo", "--noheader", "--format=%P|%a|%l"), unless_set=queue.cluster(), timeout_s=_ANSWER_S)
        if not answer.ok:  # the last line is the one that ended it
            return Slurm(why=(answer.err.strip().splitlines() or [answer.words])[-1])
        rows = [line.strip().split("|") for line in answer.out.splitlines() if line.count("|") == 2]
        return Slurm(tuple(_partition(*row) for row in rows))
    except (RunFailed, OSError) as error:
        return Slurm(why=str(error))


def _partition(marked: str, word: str, limit: str) -> Partition:
    """The star marks the default one. Which machines are usable is asked as a run would ask it."""
    name = marked.rstrip("*")
    usable, broken = queue.usable(name, cpus=1) or (0, [])
    return Partition(name, marked.endswith("*"), word, limit, usable, usable + len(broken), tuple(broken))


def _box() -> Box | str:
    """What is missing for any cluster, and what is missing in addition for links of a chosen speed or delay."""
    try:
        base = needs.missing(needs.look(link=False, delay=False))
        more = [
            () if base else tuple(needs.missing(needs.look(link=link, delay=not link)))
            for link in (True, False)
        ]  # fmt: skip
        return Box(state.condition(), tuple(base), *more)
    except (RunFailed, OSError) as error:
        return str(error)


def _tried(meanwhile: Tick) -> Tried:
    """The short worker job, answered through facts.json; a torch that cannot be imported is an answer too."""
    try:
        with scratch() as folder:
            run = RunDir(folder / "doctor")
            plan = Plan("local", 1, (Process("doctor", worker_argv("doctor", run), dict(SAFE)),))
            ended = supervise(plan, run, timeout_s=_TRY_S, tick=meanwhile)
            facts: dict[str, Any] = read_json(run.facts) if run.facts.exists() else {}
            last = tail(run.log("doctor", "err")).strip().splitlines()[-1:]
    except (RunFailed, OSError) as error:
        return Tried(why=str(error))
    if "problems" in facts:
        return Tried(why="; ".join(facts["problems"]))
    how = f"it did not end within {_TRY_S:g} s" if ended.timeout_s else _how(ended.exits[0].code, last)
    return Tried(facts, ended=how) if facts else Tried(why=how or "it said nothing")


def _how(code: int, last: list[str]) -> str:
    if code < 0:
        return by_signal("the process that tried it", code).why or ""
    return "" if code == 0 else f"the process that tried it left with exit code {code}{': ' + last[0] if last else ''}"
