"""A plan: the processes to start for a run, as plain data that can be printed, stored and compared. It starts nothing."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from typing import Any, Protocol

from paceline.base.registry import Registry
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome
from paceline.spec.run import Spec


@dataclass(frozen=True, slots=True)
class Process:
    """One process: `who` names it and its log; a variable set to None is taken out of the inherited environment."""

    who: str
    argv: tuple[str, ...]
    env: dict[str, str | None]
    rank: int | None = None

    def command(self) -> str:
        """As a user would type it."""
        shown = " ".join(f"{name}={shlex.quote(value)}" for name, value in self.env.items() if value is not None)
        return f"{shown} {shlex.join(self.argv)}".strip()


@dataclass(frozen=True, slots=True)
class Plan:
    launcher: str
    world_size: int
    processes: tuple[Process, ...] = field(default_factory=tuple[Process, ...])

    def plain(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "launcher": self.launcher,
            "world_size": self.world_size,
            "processes": [{"who": p.who, "rank": p.rank, "argv": list(p.argv), "env": p.env} for p in self.processes],
        }


class Launcher(Protocol):
    """One pure method, and the launcher's own last words where it has any."""

    def plan(self, spec: Spec, run: RunDir) -> Plan: ...

    def last_words(self, log: str) -> Outcome | None: ...


LAUNCHERS = Registry(
    "launcher",
    {
        "local": "paceline.launch.local:Local",
        "torchrun": "paceline.launch.torchrun:Torchrun",
        "spawn": "paceline.launch.spawn:Spawn",
    },
)
ABOUT = {
    "local": "our own processes on this machine, one log per rank, nothing between them and us",
    "torchrun": "torch's own launcher (python -m torch.distributed.run), one agent that starts the ranks",
    "spawn": "one mother process that starts the ranks with torch.multiprocessing.spawn",
}


# `python -m` puts the current folder first on the path: a user's own queue.py would break every rank.
_SAFE: dict[str, str | None] = {"PYTHONSAFEPATH": "1"}


def worker_argv(job: str, run: RunDir) -> tuple[str, ...]:
    return (sys.executable, "-m", "paceline.worker", job, str(run.path))


def shared_env(spec: Spec) -> dict[str, str | None]:
    """What every rank needs before its first line: thread pools are sized when torch is imported."""
    env: dict[str, str | None] = {**_SAFE, "OMP_NUM_THREADS": str(spec.threads), "MKL_NUM_THREADS": str(spec.threads)}
    if spec.topology.machines == 1:
        # The host name of a laptop often resolves to an address it does not have; ranks of one machine need only loopback.
        env["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    return env


def describe_plan(run: RunDir) -> Plan:
    """The short job that imports a user's task."""
    return Plan("local", 1, (Process("describe", worker_argv("describe", run), dict(_SAFE)),))
