"""The record of a run that was profiled: what the profiler saw, and nothing that could be taken for a timing or a result.

A profiler slows what it watches, so such a run must not stand in a table, a comparison or an estimate beside runs that were timed.
"""

from __future__ import annotations

from typing import Any

from paceline.base.files import read_json
from paceline.records.layout import RunDir
from paceline.records.record import Record

# Figures of a run that trained undisturbed.
_OF_A_TIMING = (
    "train", "test", "score", "time", "throughput", "steady", "memory", "energy", "cost", "weights", "weights_hash",
)  # fmt: skip


def filed(document: dict[str, Any], run: RunDir) -> dict[str, Any]:
    """The record with its `profile`: null for every run but a profile, which keeps that and loses its timings.

    `took_s` is there to plan the rest of a study with; no metric reads it.
    """
    if document["spec"]["profile"] == "none":
        return {**document, "profile": None}
    ranks = [{**dict.fromkeys(row), "rank": row["rank"], "host": row["host"]} for row in document["ranks"]]
    took_s = document["time"]["wall_s"]
    seen = read_json(run.profile) if run.profile.exists() else None
    return {**document, **dict.fromkeys(_OF_A_TIMING), "history": [], "ranks": ranks, "took_s": took_s, "profile": seen}


def seen(record: Record) -> dict[str, Any] | None:
    """What the profiler saw in this run; None for a run that trained, or that failed before it had seen anything."""
    return record.plain.get("profile")


def took_s(record: Record) -> float:
    """How long any run took, from its first process to the end of its last: for estimates of what is still to come."""
    return float(record.time["wall_s"] if record.time else record.plain["took_s"])
