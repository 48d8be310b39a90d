"""The moving line: where a run is, its loss and its last score, read from what rank 0 has written so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.records.events import Epoch, EventLog, Mark
from paceline.records.layout import RunDir
from paceline.report.words.progress import Glimpse, batch_in_words, words
from paceline.spec.run import Spec
from paceline.study.progress import Progress, peek

T0 = 1000.0


def mark(iteration: int, loss: float) -> Mark:
    return Mark(iteration // 100, iteration, {"loss": loss}, 100, 200, 2.0, False, T0)


def epoch(split: str, **total: float) -> Epoch:
    means: Any = total
    return Epoch(split, 0, 100, means, 5, means, 10, 10, 0.1, 1.0, T0)


def written(folder: Path, *events: Any) -> RunDir:
    run = RunDir(folder)
    log = EventLog(run.events(0))
    for event in events:
        log.write(event)
    log.close()
    return run


def test_the_last_mark_and_the_last_evaluation(tmp_path: Path) -> None:
    run = written(
        tmp_path, mark(50, 2.0), epoch("test", loss=1.5, accuracy=0.5), mark(100, 1.0), epoch("train", loss=1.5, accuracy=0.4),
        epoch("test", loss=0.9, accuracy=0.75), mark(150, 0.5),
    )  # fmt: skip
    assert peek(run) == Progress("training", 2, 150, 100.0, 0.5, ("accuracy", 0.75))
    with run.events(0).open("ab") as file:
        file.write(b'{"event": "mark", "epo')
    assert peek(run).iteration == 150, "a line that is half written"


def test_a_run_without_an_evaluation_or_a_score(tmp_path: Path) -> None:
    assert peek(RunDir(tmp_path / "none")) == Progress("starting")
    assert peek(written(tmp_path / "first", epoch("train", loss=1.0), mark(50, 2.0))).score is None
    run = written(tmp_path / "loss", epoch("test", **{"loss": 0.5, "loss.part": 0.25}), mark(50, 2.0))
    assert peek(run).score == ("loss", 0.5), "terms of a loss are no scores"


def test_the_line() -> None:
    said = words(Glimpse("training", 2, 3, 150, None, 1234.0, loss=0.51234, score=("accuracy", 0.75)), 12.0)
    assert said == "epoch 2/3, loss 0.5123, test accuracy 0.7500, 1,234 samples/s, 12.0 s"
    assert words(Glimpse("training", 1, None, 7, 10, None), 12.0) == "step 7/10, 12.0 s"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"batch": 32}, None),
        ({"batch": 64, "batch_per_rank": 64}, None),
        ({"batch": 64, "batch_per_rank": 32, "on": "1x2"}, "effective batch 64 = 2 ranks x 32"),
        ({"batch": 256, "batch_per_rank": 32, "on": "1x2", "accumulate": 4}, "effective batch 256 = 2 ranks x 32 x 4"),
        (
            {"batch": 32, "accumulate": 4},
            "effective batch 32 = 1 rank x 8 x 4: accumulate=4 cuts batch=32; to multiply instead, batch_per_rank=32 makes it 128",
        ),
        (
            {"batch": 30, "accumulate": 4, "on": "1x2"},
            "effective batch 30 = 2 ranks x about 4 x 4: accumulate=4 cuts batch=30; to multiply instead, batch_per_rank=30 makes it 240",
        ),
        (
            {"batch": 64, "batch_per_rank": 32, "on": "1x2", "sharding": "tensor"},
            "effective batch 64 = 1 rank x 64, each of the ranks sees all of it",
        ),
    ],
)  # fmt: skip
def test_what_a_batch_is_made_of(asked: dict[str, Any], said: str | None) -> None:
    assert batch_in_words(Spec(task="features", **asked)) == said
