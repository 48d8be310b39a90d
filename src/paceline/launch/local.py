"""launcher=local: one process a rank, started by us. Pure: it renders the plan."""

from __future__ import annotations

from paceline.launch import dialect
from paceline.launch.plan import Plan, Process, shared_env, worker_argv
from paceline.records.layout import RunDir
from paceline.records.outcome import Outcome
from paceline.spec.run import Spec


class Local:
    def plan(self, spec: Spec, run: RunDir) -> Plan:
        world_size = spec.topology.world_size
        processes = tuple(
            Process(
                who=f"rank_{rank:05d}",
                rank=rank,
                argv=worker_argv("train", run),
                env={
                    **shared_env(spec),
                    "PACELINE_RANK": str(rank),
                    "PACELINE_WORLD_SIZE": str(world_size),
                    "PACELINE_LOCAL_RANK": str(rank),
                },
            )
            for rank in range(world_size)
        )
        return Plan("local", world_size, processes, said=dialect.sentence(spec))

    def last_words(self, log: str) -> Outcome | None:
        return None
