"""How a run is judged from what its ranks wrote and how their processes ended: the first cause wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.records.events import Applied, Broke, Epoch, EventLog, Finished, Mark, Started, Warned
from paceline.records.gather import Ended, Exit, gather
from paceline.records.layout import RunDir
from paceline.records.outcome import failed
from paceline.spec.run import Spec

SPEC = Spec(task="mnist-convnet", on="1x2", threads=1, device="cpu", weight_decay=0.0, target=0.9)
T0 = 1000.0


def epoch(number: int, accuracy: float, t: float) -> Epoch:
    means: Any = {"loss": 1 - accuracy, "accuracy": accuracy}
    return Epoch("test", number, number * 10, means, 5, means, 10, 10, 0.1, t - T0 - 0.1, t)


def write(run: RunDir, rank: int, *, last: object, world: int = 2, digest: str = "aa") -> None:
    log = EventLog(run.events(rank))
    log.write(Started(rank, "host", 1, T0 + 0.1))
    log.write(Applied({"world_size": world}, T0 + 1))
    log.write(Mark(0, 5, {"loss": 1.0}, 20, 40, 9.0, True, T0 + 2))
    log.write(Mark(0, 15, {"loss": 1.0}, 20, 80, 1.0, False, T0 + 3))
    for event in (epoch(0, 0.8, T0 + 4), epoch(1, 0.95, T0 + 6), epoch(2, 0.97, T0 + 8)):
        log.write(event)
    if last == "finished":
        parts = {"startup": 1.0, "forward": 3.0 + rank, "backward": 3.0}
        memory = {"rss_bytes": 100 + rank, "peak_bytes": None}
        log.write(Finished(parts, 6.0 + rank, memory, digest, 7, {"name": "accuracy", "better": "higher"}, T0 + 8.5))
    elif isinstance(last, Broke):
        log.write(last)
    log.close()


def measured(pss: int | None) -> dict[str, Any]:
    return {"rss_bytes": 100, "peak_bytes": None, "pss_bytes": pss, "kept": "as it was"}


@pytest.mark.parametrize(
    ("told", "most"),
    [
        ((("a", 10), ("a", 20), ("b", 25), ("b", 2)), 30),  # of each host the sum, of the hosts the largest
        ((("a", 10), ("a", None), ("b", 25), ("b", 2)), None),  # a part is no sum
        ((("a", 7),), 7),
    ],
)
def test_memory_of_a_machine_is_the_sum_over_its_ranks(
    tmp_path: Path, told: tuple[tuple[str, int | None], ...], most: int | None
) -> None:
    run = RunDir(tmp_path)
    for rank, (host, pss) in enumerate(told):
        log = EventLog(run.events(rank))
        log.write(Started(rank, host, 1, T0 + 0.1))
        log.write(Finished({}, 6.0, measured(pss), "aa", 7, {"name": "accuracy", "better": "higher"}, T0 + 8.5))
        log.close()
    spec = SPEC.model_copy(update={"on": f"1x{len(told)}"})
    memory = gather(run, spec, ended(*[0] * len(told)), fingerprint={}).plain["memory"]
    assert memory["machine_bytes"] == most and memory["kept"] == "as it was"


def judged(tmp_path: Path, lasts: list[object], ended: Ended, **more: Any) -> dict[str, Any]:
    run = RunDir(tmp_path)
    for rank, last in enumerate(lasts):
        write(run, rank, last=last, **more)
    return gather(run, SPEC, ended, fingerprint={}).plain


def ended(*codes: int, ours: bool = False, **more: Any) -> Ended:
    return Ended(
        T0, 9.0, tuple(Exit(f"rank_{i:05d}", i, code, ours and code != 0) for i, code in enumerate(codes)), **more
    )


@pytest.mark.parametrize(
    ("lasts", "codes", "written", "log"),
    [
        (
            ["finished", Broke("task", "x", T0 + 5, 1)],
            (0, 1),
            ("rank_00000.err", "rank_00001.err"),
            "logs/rank_00001.err",
        ),
        (["finished", "nothing"], (0, -9), ("rank_00000.err", "rank_00001.err"), "logs/rank_00001.err"),
        # It died without a word: what the launcher or another rank said.
        (["finished", "nothing"], (0, -9), ("rank_00000.err", "mpirun.err"), "logs/mpirun.err"),
        (["finished", "nothing"], (0, -9), ("rank_00000.err",), "logs/rank_00000.err"),
        (["finished", "nothing"], (0, -9), (), None),
        (["finished", "finished"], (0, 0), ("rank_00000.err",), None),  # nothing failed
    ],
)
def test_a_failed_run_names_the_log_that_says_more(
    tmp_path: Path, lasts: list[object], codes: tuple[int, ...], written: tuple[str, ...], log: str | None
) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "rank_00001.err").touch()  # an empty one says nothing
    for name in written:
        (tmp_path / "logs" / name).write_text("Traceback")
    assert judged(tmp_path, lasts, ended(*codes))["log"] == log


def test_warnings_are_in_the_record_once(tmp_path: Path) -> None:
    for rank in (0, 1):
        log = EventLog(RunDir(tmp_path).events(rank))
        log.write(Warned("leak", "3 samples", T0))
        log.close()
    found = judged(tmp_path, ["finished", "finished"], ended(0, 0))
    assert found["warnings"] == [{"kind": "leak", "text": "3 samples"}]


def test_a_completed_run_in_known_figures(tmp_path: Path) -> None:
    found = judged(tmp_path, ["finished", "finished"], ended(0, 0))
    assert (found["outcome"], found["why"]) == ("completed", None)
    assert found["throughput"] == 80.0, "80 samples in one second; the warm-up is dropped"
    assert found["time"]["to_target_s"] == pytest.approx(6.0), "the end of the first evaluation at or above 0.9"
    assert found["time"]["wall_s"] == 9.0
    assert sum(value or 0 for value in found["time"]["parts"].values()) == pytest.approx(9.0)
    assert found["time"]["training_s"] == 7.0, "the rank that trained longest"
    assert found["memory"]["rss_bytes"] == 101
    assert found["test"] == {"loss": pytest.approx(0.03), "accuracy": 0.97, "evaluated": 10, "of": 10}


def test_an_evaluation_in_the_middle_is_no_epoch(tmp_path: Path) -> None:
    """It brings the time to target forward, and stands among the evaluations alone."""
    middle: Any = {"loss": 0.1, "accuracy": 0.92}
    log = EventLog(RunDir(tmp_path).events(0))
    log.write(Epoch("test", 1, 15, middle, 5, middle, 10, 10, 0.1, 4.9, T0 + 5, middle=True))
    log.close()
    found = judged(tmp_path, ["finished", "finished"], ended(0, 0))
    assert [(row["epoch"], row["iteration"]) for row in found["history"]] == [(0, 0), (1, 10), (2, 20)]
    assert sorted((row["epoch"], row["iteration"]) for row in found["evaluations"]) == [
        (0, 0),
        (1, 10),
        (1, 15),
        (2, 20),
    ]
    assert found["time"]["to_target_s"] == pytest.approx(5.0)
    assert found["test"]["accuracy"] == 0.97


def test_how_it_ended_and_whose_weights_it_left(tmp_path: Path) -> None:
    """The file is told by its name: it lies where the folder lies."""
    run = RunDir(tmp_path)
    stopped = {"by": "plateau", "iteration": 20, "epoch": 2}
    best = {"iteration": 10, "epoch": 1, "score": "accuracy", "value": 0.95, "weights": "best.safetensors"}
    for rank in (0, 1):
        write(run, rank, last=None)
        log = EventLog(run.events(rank))
        log.write(
            Finished(
                {}, 6.0, {}, "aa", 7, {"name": "accuracy", "better": "higher"}, T0 + 8.5, stopped=stopped, best=best
            )
        )
        log.close()
    found = gather(run, SPEC, ended(0, 0), fingerprint={})
    assert found["stopped"] == stopped
    assert found["best"] == {**best, "weights": str(tmp_path / "checkpoints" / "best.safetensors")}
    plain = judged(tmp_path / "plain", ["finished", "finished"], ended(0, 0))
    assert plain["stopped"] is plain["best"] is None


PEER = Broke("peer", "another rank went away", T0 + 5)
TASK = Broke("task", "t.py: ValueError: no", T0 + 5.1)

ENDS: dict[str, tuple[list[object], Ended, str, str]] = {
    "timeout": ([None, None], ended(-15, -15, ours=True, timeout_s=5.0), "timeout", "timeout=5"),
    "a signal from outside": ([None, PEER], ended(-9, 1), "killed", "rank 0 was killed by SIGKILL"),
    "a crash": ([None, PEER], ended(-11, 1), "crash", "rank 0 crashed with SIGSEGV"),
    "the cause, not the consequence": ([PEER, TASK], ended(1, 1), "task", "ValueError"),
    "ended by us": ([TASK, None], ended(1, -15, ours=True), "task", "ValueError"),
    "an early exit": ([None, "finished"], ended(3, 0), "exit", "exit code 3"),
    "an early exit that says all is well": (["finished", None], ended(0, 0), "exit", "rank 1 left before"),
    "an early exit, after which we ended the others": (
        [None, None],
        Ended(T0, 9.0, (Exit("rank_00001", 1, 0), Exit("rank_00000", 0, -15, ours=True))),
        "exit",
        "rank 1 left before",
    ),
    "the launcher's word": ([PEER, None], ended(1, 0, said=failed("killed", "rank 1 was killed")), "killed", "rank 1"),
}


@pytest.mark.parametrize("what", ENDS)
def test_the_first_cause_wins(what: str, tmp_path: Path) -> None:
    lasts, end, kind, said = ENDS[what]
    found = judged(tmp_path, lasts, end)
    assert (found["outcome"], found["kind"]) == ("failed", kind)
    assert said in found["why"]
    assert found["weights_hash"] is None


def test_ranks_that_trained_different_models_fail(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write(run, 0, last="finished", digest="aa")
    write(run, 1, last="finished", digest="bb")
    found = gather(run, SPEC, ended(0, 0), fingerprint={}).plain
    assert found["kind"] == "mismatch" and "different weights" in found["why"]


def test_ranks_under_different_settings_fail(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    write(run, 0, last="finished")
    write(run, 1, last="finished", world=1)
    assert gather(run, SPEC, ended(0, 0), fingerprint={})["kind"] == "mismatch"


def test_a_rank_that_should_not_exist_is_heard(tmp_path: Path) -> None:
    """A launcher started three for two, and ended the two when the third said so: its word is the only one."""
    why = "asked for 2 processes (on=1x2), but torchrun started a world of 3: nothing was trained"
    found = judged(tmp_path, [None, None, Broke(kind="mismatch", why=why, rank=2, t=T0 + 5)], ended(1))
    assert (found["kind"], found["why"]) == ("mismatch", why)
