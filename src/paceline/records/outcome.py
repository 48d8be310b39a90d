"""How a run ended. Failure is data: it has a kind that scripts read and a sentence that people read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Status = Literal["completed", "failed", "skipped"]

# Failures that say nothing about the spec: the same command runs them again.
TRANSIENT = frozenset({"killed", "lost", "preempted", "queue"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """completed; failed(kind, why); skipped(why) when a rule refused it before launch.

    Kinds of failure: task (the user's code raised), nonfinite, data, mismatch (asked != got), inexact (a sample was
    missed or counted twice), exit (a process left early), killed (by a signal, or scancel), timeout, launch (the
    launcher itself failed), queue (Slurm could not be asked, or takes no more jobs now), preempted (Slurm's time
    limit, or another job), memory, crash (a signal of the process's own making, as SIGSEGV), disk, lost (a machine or a
    link, or no trace of why), internal (a mistake of ours).
    """

    status: Status
    kind: str | None = None
    why: str | None = None
    rank: int | None = field(default=None, compare=False)  # whose log says more, where it is one rank's


COMPLETED = Outcome("completed")


def failed(kind: str, why: str, rank: int | None = None) -> Outcome:
    return Outcome("failed", kind, why, rank)


def under_cap(outcome: Outcome, cap: str | None) -> Outcome:
    """A process that dies without a word under a memory_cap died of it: libraries that find no memory for a thread or a buffer abort."""
    if cap is None or outcome.kind not in ("crash", "exit"):
        return outcome
    return failed(
        "memory",
        f"{outcome.why}: memory_cap={cap} is all a rank may take beside its libraries, and one that finds no memory in the middle of "
        "them ends like that; raise it, use a smaller batch or model, or cut the model over more ranks",
        outcome.rank,
    )
