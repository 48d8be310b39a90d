"""launcher=torchrun: torch's agent starts the ranks of this machine. Pure: it renders the command and reads the agent's last words."""

from __future__ import annotations

import re
import sys

from paceline.launch.plan import Plan, Process, shared_env
from paceline.records.gather import by_signal
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome
from paceline.spec.run import Spec

# The agent's failure table: "rank : 1 (local_rank: 1)" and, below it, "exitcode : -9 (pid: 123)".
_FIRST_FAILURE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)\s.*?exitcode\s*:\s*(-?\d+)", re.DOTALL)


class Torchrun:
    def plan(self, spec: Spec, run: RunDir) -> Plan:
        argv = (
            sys.executable, "-m", "torch.distributed.run",
            "--standalone",  # one machine: a rendezvous of its own on a free port
            "--local-addr=127.0.0.1",
            f"--nproc-per-node={spec.topology.processes}",
            "--max-restarts=0",
            "-m", "paceline.worker", "train", str(run.path),
        )  # fmt: skip
        inherited = dict.fromkeys(("PACELINE_RANK", "PACELINE_WORLD_SIZE", "PACELINE_LOCAL_RANK"))
        process = Process(who="torchrun", argv=argv, env={**shared_env(spec), **inherited})
        return Plan("torchrun", spec.topology.world_size, (process,))

    def last_words(self, log: str) -> Outcome | None:
        match = _FIRST_FAILURE.search(log)
        if match is None or int(match[2]) >= 0:
            return None  # a rank that left by itself has said why in its own events
        return by_signal(f"rank {match[1]}", int(match[2]))
