"""What a run took: joules from the counters its ranks read, and money from the price of a device. A part is never called the whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paceline.spec.run import Spec

if TYPE_CHECKING:  # every rank reads the names of the sources, and no record
    from paceline.records.spent import Cost, Energy

# The sources by their names in the record. The last two count a whole machine, whatever else runs on it.
GPU = "GPU energy (NVML)"
PACKAGE = "package energy of the machine (RAPL)"
PLATFORM = "platform energy of the machine (RAPL psys)"


def energy(rows: Sequence[Mapping[str, Any]], samples: int) -> Energy:
    """From what each rank read, in the order of the ranks, to one figure; a rank that left nothing has an empty row.

    `joules` of a row has a key for every source the rank had to read, and null where it could not. On GPUs all of these must have
    been read; the machines' own processors are added where all of them were, and else left out and named in `why`.
    On CPUs the processors are all there is, so every machine must have been read.
    """
    from paceline.records.spent import Energy

    silent = [rank for rank, row in enumerate(rows) if "joules" not in row]
    if silent or not rows:
        return Energy(why=f"rank {silent[0] if silent else 0} left no reading of its energy counters")
    gpus: list[float | None] = [row["joules"][GPU] for row in rows if GPU in row["joules"]]
    machines = _machines(rows)
    complete = bool(machines) and None not in machines.values()
    if None in gpus or not (gpus or complete):
        some = any(value is not None for value in (*gpus, *machines.values()))
        said = "not every energy counter could be read, and a part is not the whole" if some else "no energy counter"
        return Energy(why=f"{said}: {_sentences(rows, by_rank=some)}")
    parts = {GPU: gpus} if gpus else {}
    for (_, source), value in machines.items() if complete else ():
        parts.setdefault(source, []).append(value)
    joules = sum(value for values in parts.values() for value in values if value is not None)
    left_out = f"the machines' own processors are not in it: {_sentences(rows, by_rank=len(machines) > 1)}"
    each = joules / samples if samples else None
    return Energy(joules=joules, joules_per_sample=each, sources=(*parts,), why=None if complete else left_out)


def _machines(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[Any, str], float | None]:
    """(machine, source) -> joules. Machines of a cluster in a box, or containers, are one machine with one counter: it counts once."""
    readings: dict[tuple[Any, str], float | None] = {}
    for rank, row in enumerate(rows):
        for source in (PACKAGE, PLATFORM):
            if source in row["joules"]:
                key, value = (row.get("machine", rank), source), row["joules"][source]
                before = readings.get(key, value)
                # Two readings of one counter over nearly the same time: the longer one.
                readings[key] = None if value is None or before is None else max(before, value)
    return readings


def _sentences(rows: Sequence[Mapping[str, Any]], *, by_rank: bool) -> str:
    """Each reason once; with the first rank that gave it where the ranks do not all have the same."""
    first: dict[str, int] = {}
    for rank, row in enumerate(rows):
        for sentence in row["why"]:
            first.setdefault(sentence, rank)
    return "; ".join(f"rank {rank}: {sentence}" if by_rank else sentence for sentence, rank in first.items())


def cost(spec: Spec, wall_s: float) -> Cost | None:
    """None without a price. A device is a GPU, one for each rank, or on CPUs a machine: what is rented."""
    from paceline.records.spent import Cost

    if spec.price is None:
        return None
    devices = spec.topology.world_size if spec.device == "cuda" else spec.topology.machines
    hours = devices * wall_s / 3600
    return Cost(device_hours=hours, price=spec.price, total=hours * spec.price)
