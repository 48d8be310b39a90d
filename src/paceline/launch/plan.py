"""A plan: the processes to start for a run, as plain data that can be printed, stored and compared. It starts nothing."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from typing import Any, Protocol

from paceline.base.registry import Registry
from paceline.launch import dialect
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome
from paceline.spec.axes import launchers
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

    def plain(self) -> dict[str, Any]:
        return {"who": self.who, "rank": self.rank, "argv": list(self.argv), "env": self.env}


@dataclass(frozen=True, slots=True)
class Plan:
    """`before` must succeed before the others start. `script` is that of a Slurm job; then nothing else is started
    here."""

    launcher: str
    world_size: int
    processes: tuple[Process, ...] = field(default_factory=tuple[Process, ...])
    before: Process | None = None
    script: str | None = None
    said: str = ""

    def plain(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "launcher": self.launcher,
            "world_size": self.world_size,
            "said": self.said,
            "before": self.before.plain() if self.before else None,
            "processes": [process.plain() for process in self.processes],
            "script": self.script,
        }


class Launcher(Protocol):
    """One pure method, and the launcher's own last words where it has any."""

    def plan(self, spec: Spec, run: RunDir) -> Plan: ...

    def last_words(self, log: str) -> Outcome | None: ...


LAUNCHERS = Registry("launcher", {name: row.target for name, row in launchers.LAUNCHERS.items()})


# `python -m` puts the current folder first on the path: a user's own queue.py would break every rank.
SAFE: dict[str, str | None] = {"PYTHONSAFEPATH": "1"}
# Variables of other launchers, perhaps of the allocation we are called in: a rank must not take them for its own.
_FOREIGN = (
    "PACELINE_RANK",
    "PACELINE_WORLD_SIZE",
    "PACELINE_LOCAL_RANK",
    "PACELINE_HEAD",
    "PACELINE_PORT",
    "PACELINE_MACHINE",
)


def worker_argv(job: str, run: RunDir, *, python: str = sys.executable) -> tuple[str, ...]:
    return (python, "-m", "paceline.worker", job, str(run.path))


def shared_env(spec: Spec) -> dict[str, str | None]:
    """What every rank needs in its environment from the start: thread pools are sized when torch is imported."""
    env: dict[str, str | None] = {
        **dict.fromkeys(_FOREIGN),
        **SAFE,
        "OMP_NUM_THREADS": str(spec.threads),
        "MKL_NUM_THREADS": str(spec.threads),
        "PACELINE_DIALECT": spec.inner,
        "PACELINE_KEY": spec.key(),
        "PACELINE_MEET_WITHIN": f"{spec.meet_within:g}",
    }
    if spec.topology.machines == 1:
        # The host name of a laptop often resolves to an address it does not have; ranks of one machine need only loopback.
        env["GLOO_SOCKET_IFNAME"] = "lo0" if sys.platform == "darwin" else "lo"
    return env | dialect.environment(spec)


def by_hand(spec: Spec, run: RunDir) -> tuple[dict[str, str | None], Process | None]:
    """For a run that the user starts on each machine: where the ranks rendezvous, and the check that comes first."""
    if spec.topology.machines == 1:
        return shared_env(spec), None
    env: dict[str, str | None] = {
        **shared_env(spec),
        "PACELINE_HEAD": spec.head,
        "PACELINE_PORT": str(spec.port or dialect.PORT),
        "PACELINE_MACHINE": str(spec.machine),
    }
    return env, Process(f"preflight_{spec.machine}", worker_argv("preflight", run), env)


def describe_plan(run: RunDir) -> Plan:
    """The short job that imports a user's task."""
    return Plan("local", 1, (Process("describe", worker_argv("describe", run), dict(SAFE)),))
