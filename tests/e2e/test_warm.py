"""Ranks forked from the warm process are as if they had been started, and nothing that one of them does reaches the next."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from adds_up import explained
from paceline.commands import run
from paceline.launch.supervise import warmed
from paceline.launch.warm import Warm
from paceline.records.record import Record

TASK = str(Path(__file__).with_name("tasks") / "unruly.py")
BAD = ("kills", "crashes", "dtype", "environ", "patches", "thread", "child", "daemon")


def trained(folder: Path, warm: Warm | None, task: str = TASK, *, look: Warm | None = None, **asked: Any) -> Record:
    """`look`: where the job that looks into the task is forked from, if it is another."""
    words = {"batch": 8, "steps": 3, "threads": 1, **asked}
    return run.start(run.ready(task, words, out=folder, warm=look or warm), warm=warm)


def how(record: Record) -> set[str]:
    return {rank["start"] for rank in record["ranks"]}


def log(record: Record, stream: str, rank: int = 0) -> str:
    return (Path(record.run_dir) / "logs" / f"rank_{rank:05d}.{stream}").read_text()


def left(warm: Warm) -> list[int]:
    assert warm.process is not None
    return [process.pid for process in warm.process.family()]


@pytest.fixture(scope="module")
def warm() -> Iterator[Warm]:
    with warmed() as found:
        found.start()
        yield found


@pytest.fixture(scope="module")
def cold(warm: Warm, tmp_path_factory: pytest.TempPathFactory) -> Record:
    return trained(tmp_path_factory.mktemp("cold") / "run", None, look=warm)


@pytest.mark.parametrize("bad", BAD)
def test_nothing_reaches_the_next_run(bad: str, warm: Warm, cold: Record, tmp_path: Path) -> None:
    assert how(cold) == {"started"}
    before = trained(tmp_path / "bad", warm, how=bad)
    assert how(before) == {"forked"}
    if bad in ("kills", "crashes"):
        assert before.kind == {"kills": "killed", "crashes": "crash"}[bad], before.why
    assert left(warm) == []
    forked_from = warm.process
    record = trained(tmp_path / "good", warm)
    assert (how(record), warm.process) == ({"forked"}, forked_from)
    assert record.completed
    assert record["weights_hash"] == cold["weights_hash"]
    assert record["applied"] == cold["applied"]
    explained(record)


def test_a_forked_rank_finds_what_a_started_one_finds(warm: Warm, tmp_path: Path) -> None:
    """Variables, folder, arguments, files, signals, session and threads; and its own random numbers, unless a seed says otherwise."""
    asked = {"on": "1x2", "threads": 2, "how": "tells"}
    started = trained(tmp_path / "run", None, look=warm, **asked)
    said = [json.loads(log(started, "out", rank)) for rank in (0, 1)]
    (tmp_path / "run").rename(tmp_path / "kept")  # so that both find the same names
    forked = trained(tmp_path / "run", warm, **asked)
    assert (how(started), how(forked)) == ({"started"}, {"forked"})
    drawn: list[float] = []
    for rank, cold in enumerate(said):
        found = json.loads(log(forked, "out", rank))
        drawn += [*cold.pop("drawn"), *found.pop("drawn")]
        assert found == cold
    assert len(set(drawn)) == 3  # by Python, numpy and torch, each seeded before the file is imported
    assert forked["weights_hash"] == started["weights_hash"]
    assert (log(forked, "err"), log(started, "err")) == ("", "")


def test_a_run_whose_warm_process_is_killed_fails_and_the_next_has_a_new_one(cold: Record, tmp_path: Path) -> None:
    with warmed() as warm:
        record = trained(tmp_path / "bad", warm, how="forker", on="1x2")
        assert (record.outcome, record.kind) == ("failed", "lost")
        assert "warm process" in (record.why or "")
        again = trained(tmp_path / "good", warm)
        assert (how(again), again["weights_hash"]) == ({"forked"}, cold["weights_hash"])
        assert left(warm) == []


def test_what_the_compiler_needs_is_imported_once_and_forks_all_the_same(warm: Warm, tmp_path: Path) -> None:
    warm.ready(graphs=True)
    record = trained(tmp_path / "run", warm, graph="compile", task="features", steps=3)
    assert record.completed, record.why
    assert how(record) == {"forked"}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="OpenBLAS makes no second thread on one core")
def test_a_warm_process_with_two_threads_is_refused_and_the_rank_started(
    warm: Warm, cold: Record, tmp_path: Path
) -> None:
    with Warm({**os.environ, "PYTHONSAFEPATH": "1", "OPENBLAS_NUM_THREADS": "2"}) as two:
        record = trained(tmp_path / "run", two, look=warm)
    assert (how(record), record["weights_hash"]) == ({"started"}, cold["weights_hash"])
    assert "started, not forked: the warm process has 2 threads" in log(record, "err")


def test_a_warm_process_that_cannot_import_torch_is_done_without(warm: Warm, cold: Record, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('broken')")
    with Warm({**os.environ, "PYTHONPATH": str(tmp_path)}) as broken:
        record = trained(tmp_path / "run", broken, look=warm)
    assert (how(record), record["weights_hash"]) == ({"started"}, cold["weights_hash"])
    assert "started, not forked: the warm process did not come up" in log(record, "err")
