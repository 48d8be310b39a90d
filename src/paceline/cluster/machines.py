"""One machine of the box: the command prefix that runs a program on it, and its network link cut and restored.

It runs no command itself; it returns the prefix.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import psutil

from paceline.cluster import network, state
from paceline.cluster.box import CONF
from paceline.cluster.daemons import core_list
from paceline.cluster.needs import tool


def enter(name: str, *, cwd: Path | None = None) -> list[str]:
    """The prefix that makes a command run on that machine: in its network, host name and file system, and on its
    cores."""
    living = state.living()
    machine, daemon = living.box.member(name), living.daemons[name]
    # Entering another view of the disk leaves one at its root: the folder has to be gone to again, inside.
    folder = [f"--chdir={cwd}"] if cwd is not None else []
    return [
        tool("nsenter"), f"--target={daemon.pid}", "--net", "--mount", "--uts",
        tool("taskset"), "-c", core_list(machine), "env", *folder, f"SLURM_CONF={CONF}",
    ]  # fmt: skip


def cut(name: str) -> None:
    state.living().box.member(name)
    network.cut(name)


def mend(name: str) -> None:
    """Its slurmd is told to report at once: by itself, slurmctld takes up to two minutes to ask a machine that was down."""
    living = state.living()
    living.box.member(name)
    network.mend(name)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(living.daemons[name].pid).send_signal(signal.SIGHUP)
