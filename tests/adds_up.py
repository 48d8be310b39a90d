"""Must hold of every completed run, whatever it was made for: each rank's parts add up to the wall time, and the rest is small."""

from __future__ import annotations

import paceline

LEAST_EXPLAINED = 0.97


def explained(record: paceline.Record) -> None:
    wall = record.time["wall_s"]
    for parts in (record.time["parts"], *(rank["time"] for rank in record["ranks"])):
        told = {name: seconds for name, seconds in parts.items() if seconds is not None}
        assert abs(sum(told.values()) - wall) < 1e-6
        assert all(seconds >= 0 for name, seconds in told.items() if name != "other"), told
        assert abs(told["other"]) <= (1 - LEAST_EXPLAINED) * wall, told
    assert abs(sum(record.time["startup"].values()) - record.time["parts"]["startup"]) < 1e-6
    if len(record["ranks"]) > 1:
        assert record.time["parts"]["transfer"] > 0
    memory = record["memory"]
    if memory["peak_bytes"] is None:
        known = ("counted less than the model's own tensors", "the step is one graph, and on a host")
        assert any(why in memory["why"] for why in known), memory
    else:
        counted = [part for part in memory["parts"].values() if part is not None]
        assert sum(counted) == memory["peak_bytes"]
        assert all(part >= 0 for part in counted), memory
        assert memory["step_bytes"] == memory["peak_bytes"] - memory["parts"]["data"]
