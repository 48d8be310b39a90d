"""launcher=mpirun: Open MPI or MPICH starts the ranks of this machine. Pure: it renders the command and reads mpirun's last words."""

from __future__ import annotations

import re

from paceline.launch import dialect
from paceline.launch.plan import Plan, Process, shared_env, worker_argv
from paceline.records.judge import by_signal
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome, failed
from paceline.spec.run import Spec

_OPEN_MPI = re.compile(r"noticed that process rank (\d+).*?exited on\s+signal (\d+)", re.DOTALL)
_MPICH = re.compile(r"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES.*?KILLED BY SIGNAL: (\d+)", re.DOTALL)
_SLOTS = re.compile(r"not enough slots available|exceed the number of available (?:slots|processors)")
_MISSING = re.compile(r"mpirun was unable to (?:find|launch) the specified application")


def mpirun_words(log: str) -> Outcome | None:
    if match := _OPEN_MPI.search(log):
        return by_signal(f"rank {match[1]}", -int(match[2]))
    if match := _MPICH.search(log):
        return by_signal("a rank", -int(match[1]))
    if _SLOTS.search(log):
        return failed(
            "launch", "mpirun has fewer slots than ranks were asked for; ask for fewer, or allow more in its hostfile"
        )
    if _MISSING.search(log):
        return failed("launch", "mpirun could not start python on one of the machines; see its log")
    return None


class Mpirun:
    def plan(self, spec: Spec, run: RunDir) -> Plan:
        argv = ("mpirun", *dialect.mpirun(spec), *worker_argv("train", run))
        return Plan(
            "mpirun",
            spec.topology.world_size,
            (Process("mpirun", argv, shared_env(spec)),),
            said=dialect.sentence(spec),
        )

    def last_words(self, log: str) -> Outcome | None:
        return mpirun_words(log)
