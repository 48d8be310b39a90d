"""launcher=torchrun: torch's agent starts the ranks of this machine. Pure: it renders the command and reads the agent's last words."""

from __future__ import annotations

import re
import sys

from paceline.launch import dialect
from paceline.launch.plan import Plan, Process, by_hand
from paceline.records.judge import by_signal
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome
from paceline.spec.run import Spec

# The agent's failure table: "rank : 1 (local_rank: 1)" and, below it, "exitcode : -9 (pid: 123)".
_FIRST_FAILURE = re.compile(r"Root Cause.*?rank\s*:\s*(\d+)\s.*?exitcode\s*:\s*(-?\d+)", re.DOTALL)
_ANY_FAILURE = re.compile(r"\brank\s*:\s*(\d+)\s.*?exitcode\s*:\s*(-?\d+)", re.DOTALL)


def agents_words(log: str) -> Outcome | None:
    """What torch's agent reports of a rank that a signal ended; accelerate starts the same agent. It may be the rank
    that the agent calls the first failure or another one: the agent polls ten times a second, and a rank that lost its
    peer may have exited as early."""
    for match in (*_FIRST_FAILURE.finditer(log), *_ANY_FAILURE.finditer(log)):  # several agents may write one log
        if int(match[2]) < 0 and int(match[2]) != -15:  # an agent ends the other ranks with SIGTERM
            return by_signal(f"rank {match[1]}", int(match[2]))
    return None  # a rank that left by itself has said why in its own events


class Torchrun:
    def plan(self, spec: Spec, run: RunDir) -> Plan:
        env, before = by_hand(spec, run)
        words = dialect.torchrun(
            spec, head=spec.head or "", port=str(spec.port or dialect.PORT), machine=str(spec.machine),
            is_head=str(int(spec.machine == 0)), run_id=spec.key(),
        )  # fmt: skip
        argv = (sys.executable, "-m", "torch.distributed.run", *words, "-m", "paceline.worker", "train", str(run.path))
        who = "torchrun" if before is None else f"torchrun_{spec.machine}"
        return Plan(
            "torchrun", spec.topology.world_size, (Process(who, argv, env),), before=before, said=dialect.sentence(spec)
        )

    def last_words(self, log: str) -> Outcome | None:
        return agents_words(log)
