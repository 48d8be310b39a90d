"""launcher=spawn: one mother process that starts the ranks with torch.multiprocessing. Pure: it renders the plan."""

from __future__ import annotations

from paceline.launch import dialect
from paceline.launch.plan import Plan, Process, shared_env, worker_argv
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome
from paceline.spec.run import Spec


class Spawn:
    def plan(self, spec: Spec, run: RunDir) -> Plan:
        mother = Process(who="spawn", argv=worker_argv("spawn", run), env=shared_env(spec))
        return Plan("spawn", spec.topology.world_size, (mother,), said=dialect.sentence(spec))

    def last_words(self, log: str) -> Outcome | None:
        return None
