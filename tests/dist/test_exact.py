"""Every test sample is scored exactly once and every training sample seen exactly once, whatever the ranks and the lengths."""

from __future__ import annotations

from pathlib import Path

import pytest

import paceline

COUNTED = str(Path(__file__).parent / "counted.py")

# ranks, training samples, test samples, batch, test batch, kind of data: ranks without a sample are among them
SHAPES = [
    (1, 10, 5, 4, 2, "tensors"),
    (2, 11, 1, 4, 2, "tensors"),
    (3, 7, 2, 3, 128, "tensors"),
    (4, 9, 3, 4, 1, "tensors"),
    (4, 9, 3, 4, 1, "dataset"),
    (3, 10, 7, 3, 2, "stream"),
    (2, 20, 9, 3, 2, "shuffling"),
    (2, 1, 3, 4, 2, "tensors"),  # the second rank never gets a training sample
]


@pytest.mark.parametrize(("ranks", "train", "test", "batch", "test_batch", "kind"), SHAPES)
def test_each_sample_once(
    ranks: int, train: int, test: int, batch: int, test_batch: int, kind: str, tmp_path: Path
) -> None:
    record = paceline.run(
        COUNTED, on=f"1x{ranks}", out=tmp_path / "run", batch=batch, test_batch=test_batch, epochs=2, threads=1,
        num_train=train, num_test=test, kind=kind,
    )  # fmt: skip
    assert record.completed, record.why
    assert record.test["evaluated"] == record.test["of"] == test
    assert record.train["seen"] == record.train["of"] == train
    for split, num in ((record.test, test), (record.train, train)):
        assert split["id"] * num == pytest.approx(sum(range(num)))
        assert split["square"] * num == pytest.approx(sum(i * i for i in range(num)))
    assert sum(row["test"]["num"] for row in record["ranks"]) == test
    assert len(record["ranks"]) == ranks


def test_loader_processes_give_the_same(tmp_path: Path) -> None:
    """`workers` changes who loads, never what is trained."""
    runs = [
        paceline.run(
            COUNTED, on="1x2", out=tmp_path / str(workers), workers=workers, kind="dataset", num_train=50, epochs=2
        )
        for workers in (0, 2)
    ]
    assert [run.why for run in runs] == [None, None]
    assert runs[0]["weights_hash"] == runs[1]["weights_hash"]
