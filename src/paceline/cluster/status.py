"""The present state of a box as plain data: its machines as Slurm and the network see them, and its jobs. It changes
nothing."""

from __future__ import annotations

from typing import Any

from paceline.cluster import daemons, network, state
from paceline.cluster.box import CONF, Box, delay_text, rate_text
from paceline.cluster.needs import is_root

_JOB = {"id": "%i", "name": "%j", "state": "%T", "partition": "%P", "machines": "%N", "why": "%r", "time": "%M"}


def status() -> dict[str, Any]:
    saved, condition = state.read(), state.condition()
    answer: dict[str, Any] = {"schema": 1, "state": condition, "conf": None, "shape": None, "machines": [], "jobs": []}
    if saved is None or condition == "down":
        return answer
    box = saved.box
    answer |= {
        "shape": box.shape, "shares_cores": box.shares_cores, "lost": saved.lost,
        "link": rate_text(box.link_bps) if box.link_bps else None,
        "delay": delay_text(box.delay_us) if box.delay_us else None,
    }  # fmt: skip
    if condition == "up":
        answer |= {"conf": str(CONF), "machines": _machines(box), "jobs": _jobs()}
    return answer


def _machines(box: Box) -> list[dict[str, Any]]:
    states = daemons.node_states()
    cut = network.cut_off() if is_root() else None  # the switch is root's to look at
    return [
        {
            "name": machine.name, "address": machine.address, "cores": box.cores, "pinned": list(machine.cores),
            "memory_mb": box.machine_memory_mb, "slurm": states.get(machine.name, "unknown"),
            "cut": machine.name in cut if cut is not None else None,
        }
        for machine in box.members
    ]  # fmt: skip


def _jobs() -> list[dict[str, str]]:
    # A job's name may hold the mark between two fields; it is the second, so the others are counted from the ends.
    rows = [line.split("|") for line in daemons.asked("squeue", "-h", "-o", "|".join(_JOB.values()))]
    return [dict(zip(_JOB, [row[0], "|".join(row[1:-5]), *row[-5:]], strict=True)) for row in rows]
