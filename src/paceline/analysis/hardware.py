"""What hardware a claim speaks of and the runs of two cells did not have.

Devices are those of the resolved spec, which every rank checks; machines and cores are what the ranks recorded.
"""

from __future__ import annotations

from paceline.records.record import Record
from paceline.records.study import CellRecord
from paceline.spec.conclusion import Needs

_DEVICES = {"cuda": "an NVIDIA GPU for each rank", "cpu": "runs on a CPU"}


def lacking(needs: Needs, baseline: CellRecord, candidate: CellRecord) -> tuple[str, ...]:
    """Machines and cores are those of the larger cell: the other one is one machine, or one core, on purpose."""
    records = [record for cell in (baseline, candidate) for _, record in cell.completed]
    found: list[str] = []
    devices = sorted({str(record.spec.get("device")) for record in records})
    if needs.device is not None and devices != [needs.device]:
        found.append(f"{_DEVICES[needs.device]} (these ran on {' and '.join(devices)})")
    if (machines := max(map(_machines, records), default=1)) < needs.machines:
        found.append(f"{needs.machines} machines (these ranks shared {machines})")
    cores = max((num for record in records if (num := _cores(record)) is not None), default=None)
    if cores is not None and cores < needs.cores:
        found.append(f"{needs.cores} cores (here were {cores})")
    return tuple(found)


def _machines(record: Record) -> int:
    """Real ones: nodes of a cluster in a box have names of their own, and share a kernel."""
    return max(1, len({rank.machine or rank.host for rank in record.ranks}))


def _cores(record: Record) -> int | None:
    """Of all machines of a run together; None where a rank has not told."""
    by_machine = {rank.machine or rank.host: rank.machine_cores for rank in record.ranks}
    known = [num for num in by_machine.values() if num is not None]
    return sum(known) if known and len(known) == len(by_machine) else None
