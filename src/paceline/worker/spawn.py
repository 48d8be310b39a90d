"""The mother process of `launcher=spawn`: torch.multiprocessing starts the ranks, as report C did. It trains nothing itself."""

from __future__ import annotations

import socket
import sys

import torch.multiprocessing as mp
from torch.multiprocessing.spawn import ProcessExitedException

from paceline.base.files import read_json
from paceline.base.lifeline import die_with_parent
from paceline.records.events import Broke, EventLog
from paceline.records.judge import by_signal
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.worker.measure.clock import wall
from paceline.worker.rank import train_job
from paceline.worker.world.env import Identity, supervisor


def _rank(rank: int, run: RunDir, world_size: int) -> None:
    die_with_parent(supervisor())
    train_job(run, Identity(rank, world_size, rank, "spawn", socket.gethostname()), own_log=True)


def spawn(run: RunDir) -> None:
    world_size = Spec.model_validate(read_json(run.spec)).topology.world_size
    try:
        mp.spawn(_rank, args=(run, world_size), nprocs=world_size)  # pyright: ignore[reportPrivateImportUsage]
    except ProcessExitedException as error:
        # A rank that broke by itself has said so in its own events; only a signal leaves no word.
        if error.exit_code < 0:
            outcome = by_signal(f"rank {error.error_index}", error.exit_code)
            EventLog(run.launcher_events()).write(
                Broke(kind=outcome.kind or "", why=outcome.why or "", rank=error.error_index, t=wall())
            )
        sys.exit(1)
