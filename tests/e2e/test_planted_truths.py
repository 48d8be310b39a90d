"""Time that was put somewhere on purpose is found there, within 10 % of what the task itself measured. Run alone: it is timed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import paceline
from adds_up import explained
from paceline.analysis.attribution import stragglers

pytestmark = pytest.mark.alone
PLANTED = str(Path(__file__).parent / "tasks" / "planted.py")
STEPS = 60


def planted(tmp_path: Path, *, on: str, **asked: Any) -> tuple[paceline.Record, list[dict[str, float]]]:
    record = paceline.run(PLANTED, out=tmp_path / "run", notes=str(tmp_path), on=on, steps=STEPS, threads=1, **asked)
    assert record.completed, record.why
    size = len(record["ranks"])
    return record, [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(size)]


def test_loader_optimizer_and_start_up(tmp_path: Path) -> None:
    record, (slept,) = planted(tmp_path, on="1x1", batch_ms=5, update_ms=20, load_s=1.5)
    parts, startup = record.time["parts"], record.time["startup"]
    assert slept["data"] >= 0.005 * STEPS and slept["load"] >= 1.5
    assert parts["data"] == pytest.approx(slept["data"], rel=0.1)
    assert parts["optimizer"] == pytest.approx(slept["update"], rel=0.1)
    assert startup["data"] == pytest.approx(slept["load"], rel=0.1)
    assert parts["startup"] == pytest.approx(sum(startup.values()), abs=1e-6)
    explained(record)


@pytest.mark.parametrize("wrap", ["none", "accelerate"])
def test_a_late_rank_makes_the_other_wait_and_is_named(wrap: str, tmp_path: Path) -> None:
    record, slept = planted(tmp_path, on="1x2", late_ms=20, batch=64, wrap=wrap)
    waiting = [rank["time"]["waiting"] for rank in record["ranks"]]
    assert waiting[0] == pytest.approx(slept[1]["late"], rel=0.1)
    assert waiting[1] < waiting[0] / 10, "the late one waits for nobody"
    late = record["ranks"][1]["late"]
    assert late["lag_s"] == pytest.approx(slept[1]["late"], rel=0.1)
    assert late["last"] >= (0.9 if wrap == "none" else 0.6) * late["of"], "a step through DDP has two collectives"
    (named,) = stragglers(record)
    assert named.rank == 1
    explained(record)


def test_an_outside_clock_agrees(tmp_path: Path) -> None:
    """Around the whole command, interpreter, look into the task and all: what it took is what the record says it took."""
    words = ["run", PLANTED, f"notes={tmp_path}", "steps=5", "threads=1", "--out", str(tmp_path / "run"), "--json"]
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "paceline", *words], capture_output=True, text=True, timeout=60)
    took = time.monotonic() - began
    found = json.loads(done.stdout)
    assert 0 <= took - found["time"]["wall_s"] <= 0.3
    assert found["time"]["startup"]["plan"] > 0 and found["time"]["startup"]["describe"] > 0
