"""Events survive a killed writer, TensorBoard reads our files, and a lock is a lock."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from paceline.base.errors import BadInput
from paceline.base.files import Lines, locked, read_json, read_lines, write_json
from paceline.records.events import Broke, EventLog, Mark, read
from paceline.records.tensorboard import ScalarFile


def test_events_come_back_as_they_were(tmp_path: Path) -> None:
    events = [Mark(0, 5, {"loss": 0.25, "none": None}, 1, 2, 0.5, False, 9.0), Broke("task", "no", 1.0, rank=3)]
    log = EventLog(tmp_path / "e.jsonl")
    for event in events:
        log.write(event)
    log.close()
    assert list(read(tmp_path / "e.jsonl")) == events


def test_an_unfinished_last_line_is_dropped_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    path.write_bytes(b'{"a":1}\n{"b"')
    assert list(read_lines(path)) == [{"a": 1}]
    path.write_bytes(b'{"a"\n{"b":2}\n')
    with pytest.raises(BadInput, match="line 1"):
        list(read_lines(path))


def test_a_nan_never_reaches_a_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "x.json", {"loss": math.nan})
    assert list(tmp_path.iterdir()) == [], "not even a temporary file stays"
    lines = Lines(tmp_path / "x.jsonl")
    with pytest.raises(ValueError, match="Out of range"):
        lines.append({"loss": math.inf})
    lines.close()


@pytest.mark.parametrize("text", ["", "{", "\x00"])
def test_damaged_json_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(BadInput, match="not valid JSON"):
        read_json(tmp_path / "x.json")


def test_the_real_tensorboard_reads_our_files(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    scalars = ScalarFile(tmp_path, t=1000.0)
    for step in (1, 200, 70_000):
        scalars.add({"train/loss": step / 2, "train/none": None}, step=step, t=1000.0 + step)
    scalars.close()
    found = EventAccumulator(str(tmp_path))
    found.Reload()
    assert [(e.step, e.value, e.wall_time) for e in found.Scalars("train/loss")] == [
        (1, 0.5, 1001.0), (200, 100.0, 1200.0), (70_000, 35_000.0, 71_000.0),
    ]  # fmt: skip
    assert found.Tags()["scalars"] == ["train/loss"]


def test_a_lock_is_held_once(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock", why="mine"),
        pytest.raises(BadInput, match="mine"),
        locked(tmp_path / "lock", why="mine"),
    ):
        pass
    with locked(tmp_path / "lock", why="free again"):
        pass
