"""The comparison with other loops: its arithmetic, and that its contestants really train the same model on the same batches. No timing."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """benchmarks/train.py, found as when it is started."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("train")


def test_the_interval_of_paired_ratios(train: ModuleType) -> None:
    """Three pairs: t(0.975, 2) = 4.3027, on logarithms."""
    found = train.ratio([100.0, 200.0, 400.0], [200.0, 400.0, 1600.0])
    logs = [math.log(2), math.log(2), math.log(4)]
    mean = sum(logs) / 3
    half = 4.302653 * math.sqrt(sum((log - mean) ** 2 for log in logs) / 2 / 3)
    assert found["ratio"] == pytest.approx(2 ** (4 / 3)) and found["n"] == 3
    assert (found["low"], found["high"]) == pytest.approx((math.exp(mean - half), math.exp(mean + half)), rel=1e-5)
    assert train.ratio([1.0], [3.0]) == {"ratio": pytest.approx(3.0), "low": None, "high": None, "n": 1}


def test_a_summary_pairs_by_repeat_and_says_when_compiling_is_paid_back(train: ModuleType) -> None:
    run = {"accuracy": 0.9, "loss": 0.3, "wall_s": 5.0, "seconds": 2.0, "steps": 100, "test_num": 10}
    plain = [{**run, "rate": 1000.0}, {**run, "rate": 2000.0}]
    quick = [{**run, "rate": 4000.0, "compile_s": 6.0}, {**run, "rate": 8000.0, "compile_s": 1.0}]
    row = train.summary(quick, plain, batch=30)
    assert (row["ratio"], row["low"], row["high"]) == pytest.approx((4.0, 4.0, 4.0))
    # A step of 30 samples takes 20 ms at 1500 samples/s and 5 ms at 6000: 15 ms saved, 6 s of the first compilation paid.
    assert (row["compile_s"], row["compile_cached_s"], row["breakeven_steps"]) == pytest.approx((6.0, 1.0, 400.0))
    assert "ratio" not in train.summary(plain, plain, batch=30)
    slow = [{**run, "rate": 500.0, "compile_s": 6.0}] * 2
    assert train.summary(slow, plain, batch=30)["breakeven_steps"] is None


def test_the_order_turns(train: ModuleType) -> None:
    names = ["a", "b", "c", "d"]
    planned_runs = [train.order(names, planned) for planned in range(4)]
    assert all(sorted(planned) == names for planned in planned_runs)
    assert (
        len({planned[0] for planned in planned_runs}) > 1 and len({"".join(planned) for planned in planned_runs}) == 4
    )


@pytest.mark.slow
def test_all_contestants_train_the_same() -> None:
    """Few steps of the real thing: same weights at the start, same batches, same update, or the test loss would not be the same."""
    words = ["--tasks", "mnist-convnet", "--steps", "20", "--repeats", "1", "--settings", "graph=eager", "--json"]
    done = subprocess.run([sys.executable, str(BENCHMARKS / "train.py"), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    rows = found["tasks"]["mnist-convnet"]
    assert set(rows) == {"plain", "accelerate", "lightning", "paceline"}
    took_part = {name: row for name, row in rows.items() if "skipped" not in row}
    assert {"plain", "paceline"} <= set(took_part)
    for row in took_part.values():
        assert row["losses"] == pytest.approx(rows["plain"]["losses"], rel=1e-5)
        assert (row["accuracy"], row["steps"], row["test_num"]) == (rows["plain"]["accuracy"], 20, 2000)
        assert row["rate"] > 0
    assert rows["paceline"]["ratio"] == pytest.approx(rows["paceline"]["rate"] / rows["plain"]["rate"])
    assert found["hardware"]["cores"] and found["versions"]["torch"] and found["n"] == 1


def test_interrupted_it_keeps_the_repeats_in_which_everybody_ran(
    train: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = train.arguments(["--repeats", "3", "--contestants", "plain,paceline"])
    coming = iter([100.0, 300.0, 100.0])  # the fourth run, Paceline's second, is interrupted

    def run(name: str, task: str, *_: object) -> dict[str, object]:
        rate = next(coming, None)
        if rate is None:
            raise KeyboardInterrupt
        return {"rate": rate, "accuracy": 0.5, "loss": 1.0, "steps": 9, "seconds": 1.0, "test_num": 10, "wall_s": 1.0}

    monkeypatch.setattr(train, "train", run)
    with pytest.raises(train.Interrupted) as caught:
        train.compare("features", asked, tmp_path)
    assert caught.value.rows["paceline"]["ratio"] == pytest.approx(3.0)
    assert [caught.value.rows[name]["n"] for name in ("plain", "paceline")] == [1, 1]
    with pytest.raises(train.Interrupted) as caught:
        train.compare("features", asked, tmp_path)
    assert caught.value.rows is None


def test_tables_hold_what_is_there_and_what_is_not(train: ModuleType) -> None:
    row = {"rate": 1234.5, "accuracy": 0.951, "ratio": 4.2, "low": 4.0, "high": 4.4, "settings": ["graph=auto"]}
    rows = {
        "plain": row, "accelerate": {"failed": "exit 1"}, "lightning": {"skipped": "not installed"},
        "paceline": {**row, "compile_s": 6.0, "breakeven_steps": 1234.5},
    }  # fmt: skip
    result = {
        "tasks": {"features": rows}, "hardware": {"gpu": None, "cpu": "a CPU", "cores": 2, "system": "Linux"},
        "versions": {"torch": "2.13.0", "lightning": None}, "n": 3, "batch": 32, "threads": 1, "python": "3.11",
    }  # fmt: skip
    text = train.markdown(result)
    header, _, line = text.splitlines()[:3]
    assert header.count("|") == line.count("|")
    for words in ("features", "failed", "skipped", "4.20x [4.00, 4.40]", "95.10 %", "1,234 steps", "graph=auto"):
        assert words in text
