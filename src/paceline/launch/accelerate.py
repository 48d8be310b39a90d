"""launcher=accelerate: `accelerate launch` starts the ranks of this machine. Pure; the ranks themselves check that all came."""

from __future__ import annotations

import sys

from paceline.launch import dialect
from paceline.launch.plan import Plan, Process, by_hand
from paceline.launch.torchrun import agents_words
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome
from paceline.spec.run import Spec


class Accelerate:
    def plan(self, spec: Spec, run: RunDir) -> Plan:
        env, before = by_hand(spec, run)
        words = dialect.accelerate(
            spec, head=spec.head or "", port=str(spec.port or dialect.PORT), machine=str(spec.machine)
        )
        argv = (
            sys.executable, "-m", "accelerate.commands.launch", *words, "-m", "paceline.worker", "train", str(run.path),
        )  # fmt: skip
        who = "accelerate" if before is None else f"accelerate_{spec.machine}"
        return Plan(
            "accelerate",
            spec.topology.world_size,
            (Process(who, argv, env),),
            before=before,
            said=dialect.sentence(spec),
        )

    def last_words(self, log: str) -> Outcome | None:
        return agents_words(log)
