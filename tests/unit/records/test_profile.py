"""A profiled run can be read as a profile and as nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.base.files import write_json
from paceline.records.gather import filed
from paceline.records.layout import RunDir
from paceline.records.record import parse


def document(profile: str) -> dict[str, Any]:
    return {
        "spec": {"task": "toy", "profile": profile}, "time": {"wall_s": 5.0, "training_s": 0.0}, "throughput": 7.0,
        "steady": {"steady": True}, "train": {"loss": 1.0}, "test": {"loss": 1.0}, "memory": {"rss_bytes": 9}, "score": {},
        "energy": {"joules": 1.0}, "cost": {"total": 2.0}, "weights": None, "weights_hash": "", "history": [{"epoch": 0}],
        "ranks": [{"rank": 0, "host": "a", "time": {"startup": 1.0}, "rss_bytes": 9}],
    }  # fmt: skip


COUNTS = ("schema", "restarts")  # no figures of a run


def numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [found for item in value.values() for found in numbers(item)]
    if isinstance(value, list):
        return [found for item in value for found in numbers(item)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_a_run_that_trained_has_no_profile_and_keeps_all_else(tmp_path: Path) -> None:
    before = document("none")
    record = filed(parse(before), RunDir(tmp_path))
    assert record.profile is None and record.plain == before
    assert record.duration_s == 5.0


def test_a_profile_keeps_no_timing(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write_json(run.profile, {"types": {}})
    record = filed(parse(document("training")), run)
    assert record["profile"] == {"types": {}}
    assert record.time is None and record.test == record.train == {}
    (rank,) = record["ranks"]
    assert {name: value for name, value in rank.items() if value is not None} == {"rank": 0, "host": "a"}
    assert (
        numbers({name: value for name, value in record.plain.items() if name not in ("took_s", "ranks", *COUNTS)}) == []
    )
    assert record.duration_s == 5.0, "known to whoever plans the rest of a study"


def test_a_profile_that_failed_has_seen_nothing(tmp_path: Path) -> None:
    record = filed(parse(document("inference")), RunDir(tmp_path))
    assert record.profile is None and record.time is None and record.duration_s == 5.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("by.layers.0.conv.s", 2.0),
        ("by.layers.0.s", 1.0),
        ("by.none.s", None),
        ("test.f1.macro", 0.5),
        ("by.lay.s", None),
    ],
)
def test_a_name_may_hold_dots(name: str, value: float | None) -> None:
    record = parse({"by": {"layers.0": {"s": 1.0}, "layers.0.conv": {"s": 2.0}}, "test": {"f1.macro": 0.5}})
    assert record.metric(name) == value


def test_its_files_are_a_run_s_own(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for path in (run.spec, run.profile, run.profile_page, run.trace(0)):
        write_json(path, {})
    assert not run.foreign()
