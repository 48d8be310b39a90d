"""From what was seen to the one row about energy: which counters this machine has, and what stands in the way of the others. Pure."""

from __future__ import annotations

from typing import Any

from paceline.commands.doctor.seen import Row, Seen

_GPU_FIX = (
    "pip install nvidia-ml-py, if it is missing; a GPU that shows no counter, or a part of one (MIG), stays uncounted"
)
_READ_FIX = "let everybody read it until the next start: sudo chmod a+r /sys/class/powercap/*rapl*/energy_uj (for good: docs/energy.md)"
_NO_FIX = (
    "nothing to mend in a virtual machine: a record's joules are then null; on a real one: sudo modprobe intel_rapl_msr"
)


def energy(seen: Seen) -> Row:
    """`yes` where the processors and every GPU can be counted; `partly` where some can."""
    gpus: list[dict[str, Any]] = seen.tried.facts.get("gpus", [])
    has = [f"cuda:{number} (NVML)" for number, one in enumerate(gpus) if not one["no_energy"]]
    lacks: list[str] = [f"cuda:{number}: {one['no_energy']}" for number, one in enumerate(gpus) if one["no_energy"]]
    fixes = [_GPU_FIX] if lacks else []
    if not seen.rapl.why:
        has.insert(0, f"{', '.join(zone.name for zone in seen.rapl.zones)} (RAPL)")
    else:
        lacks.append(seen.rapl.why)
        fixes.append(_READ_FIX if seen.rapl.zones else _NO_FIX)
    counted = [f"counters of {', '.join(has)}"] if has else []
    state = "yes" if not lacks else "partly" if has else "no"
    return Row("machine", "energy", state, "; ".join([*counted, *lacks]), "; ".join(fixes))
