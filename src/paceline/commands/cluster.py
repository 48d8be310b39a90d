"""`paceline cluster`: a Slurm cluster in a box on this machine - up, down, status, a cable cut, a command on a machine.
It connects `cluster/` to the user's words; making namespaces and daemons is not done here."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import psutil

from paceline.base.errors import BadInput
from paceline.cluster import life, machines, needs, processes, status
from paceline.cluster.box import CONF, described

Say = Callable[[str], None]


def up(*, num_machines: int, cores: int, link: str | None, delay: str | None, say: Say) -> dict[str, Any]:
    """The status of the cluster that is up afterwards, with the time it took; `started` is False when it was up before."""
    processes.check_outside()
    box = described(
        machines=num_machines, cores=cores, link=link, delay=delay, host_cores=_host_cores(),
        memory_mb=psutil.virtual_memory().total // 2**20,
    )  # fmt: skip
    needs.check(link=box.link_bps is not None, delay=box.delay_us is not None)
    began = time.monotonic()
    started = life.up(box, say)
    return {**status.status(), "started": started, "took_s": round(time.monotonic() - began, 2)}


def _host_cores() -> list[int]:
    """The cores we may use: a container may have fewer than the machine. On other systems than Linux a cluster is
    refused anyway."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def down() -> bool:
    needs.check_root()
    return life.down()


def look() -> dict[str, Any]:
    return status.status()


def cut(name: str) -> None:
    needs.check_root()
    machines.cut(name)


def mend(name: str) -> None:
    needs.check_root()
    machines.mend(name)


def on(name: str, command: Sequence[str]) -> NoReturn:
    """Replaces this process by the command on that machine, so that its terminal, signals and exit code are ours."""
    needs.check_root()
    if not command:
        raise BadInput(f"no command was given; for example: paceline cluster on {name} -- ip address")
    argv = [*machines.enter(name, cwd=Path.cwd()), *command]
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and what is ignored stays so in the command
    os.execvp(argv[0], argv)


def shown(cluster: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The machines as a table."""
    head = ["machine", "address", "cores", "on real cores", "Slurm says", "cable"]
    cable = {True: "cut", False: "in", None: "?"}
    rows = [
        [m["name"], m["address"], str(m["cores"]), ", ".join(map(str, m["pinned"])), m["slurm"], cable[m["cut"]]]
        for m in cluster["machines"]
    ]
    return head, rows


def shown_jobs(cluster: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    head = ["job", "name", "state", "partition", "machines", "why", "time"]
    return head, [list(job.values()) for job in cluster["jobs"]]


def remarks(cluster: dict[str, Any]) -> list[str]:
    """What a table does not say."""
    if cluster["state"] == "down":
        return ["no cluster is up on this machine; start one: paceline cluster up --machines 2 --cores 1"]
    if cluster["state"] == "stale":
        lost = f" (ended: {', '.join(cluster['lost'])})" if cluster.get("lost") else ""
        return [f"what is left of a cluster is here, but it is not alive{lost}; paceline cluster down takes it away"]
    limits = [f"{word} {cluster[word]}" for word in ("link", "delay") if cluster[word]]
    said = [f"each machine's link: {', '.join(limits)}"] if limits else []
    if cluster["shares_cores"]:
        said.append(
            "machines share cores: together they have more than the real machine, so times are not those of a cluster"
        )
    return [*said, f"for squeue, sinfo and sbatch by hand: export SLURM_CONF={CONF}"]
