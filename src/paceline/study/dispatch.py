"""One run to its record, wherever it runs: here, as one machine of several, or in a Slurm job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from paceline.launch.supervise import Tick
from paceline.launch.warm import Warm
from paceline.study import queued
from paceline.study.execute import RenderedRun, Since, help_out, run_here

if TYPE_CHECKING:
    from paceline.records.record import Record


def run_to_record(
    rendered: RenderedRun, *, tick: Tick | None = None, since: Since | None = None, warm: Warm | None = None
) -> Record:
    """What cannot be started has a record too; only an interruption leaves none."""
    spec, run = rendered.spec, rendered.run
    if spec.in_queue:
        if not queued.waits_for(run, spec) and queued.submit([rendered]) is None:
            from paceline.records.record import load

            return load(run.path)
        return queued.wait(run, tick=tick)
    if spec.machine:
        return help_out(rendered, tick=tick)
    return run_here(rendered, tick=tick, since=since, warm=warm)
