"""Two machines on a slow cable: what the cable takes is found as transfer, and the report says so in words. Real Slurm, real packets."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.box import aside, command, needed
from e2e.processes import marked
from paceline.cluster import machines

pytestmark = [pytest.mark.alone, pytest.mark.timeout(240)]

TIMED = Path(__file__).with_name("timed_allreduce.py")
HIDDEN, STEPS = 256, 30
NUMBERS = 512 * HIDDEN + 3 * HIDDEN + HIDDEN * 20 + 20  # of the features model at this width


@pytest.fixture(scope="module", autouse=True)
def slow_box() -> Iterator[None]:
    needed()
    with aside():
        command("up", "--machines", "2", "--cores", "1", "--link", "50mbit")
        yield


def paceline(*words: str, folder: Path) -> dict[str, Any]:
    argv = [sys.executable, "-m", "paceline", *words, "--json"]
    done = subprocess.run(argv, cwd=folder, env={**os.environ, **marked(folder)}, capture_output=True, text=True, timeout=200)  # fmt: skip
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    return json.loads(done.stdout)


def by_itself(folder: Path) -> float:
    """Seconds an all-reduce of the same size takes on this cable, without Paceline: the median of fifteen."""
    result = folder / "allreduce.json"
    ranks: list[subprocess.Popen[bytes]] = []
    for rank in range(2):
        words = [str(rank), "node0", "29777", str(NUMBERS), "15", str(result)]
        env = {**os.environ, **marked(folder), "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen([*machines.enter(f"node{rank}"), sys.executable, str(TIMED), *words], env=env))
    assert [rank.wait(timeout=60) for rank in ranks] == [0, 0]
    return statistics.median(json.loads(result.read_text()))


def test_a_slow_cable_is_transfer(tmp_path: Path) -> None:
    """Both ways of timing see the same cable; a figure of the kernel's shaper is not trusted, only compared."""
    before = by_itself(tmp_path)
    record = paceline(
        "run", "features", f"hidden={HIDDEN}", "on=2x1", "launcher=slurm+torchrun", f"steps={STEPS}", "num_train=2000", "num_test=100",
        "threads=1", "--out", "run", folder=tmp_path,
    )  # fmt: skip
    after = by_itself(tmp_path)
    parts, wall = record["time"]["parts"], record["time"]["wall_s"]
    assert before > 0.05, "50 Mbit/s are not felt: the cable is not throttled"
    assert parts["transfer"] / STEPS == pytest.approx((before + after) / 2, rel=0.1)
    assert parts["waiting"] < 0.2 * parts["transfer"]
    assert abs(parts["other"]) <= 0.03 * wall and sum(v for v in parts.values() if v) == pytest.approx(wall, abs=1e-6)
    assert {rank["host"] for rank in record["ranks"]} == {"node0", "node1"}


@pytest.mark.slow
def test_the_report_says_what_is_missing(tmp_path: Path) -> None:
    """The shipped study, made short: on this cable two machines lose, and the words name the cause with figures."""
    words = ("on=1x1,2x1", "launcher=slurm+torchrun", "epochs=1", "num_train=2000", "num_test=100", "--repeats", "3")
    found = paceline("study", "torchrun-scaling", *words, "--out", "study", folder=tmp_path)
    (row,) = [row for row in found["missing"] if row["label"] != row["baseline"]]
    largest = max(row["parts"], key=lambda name: row["parts"][name]["mean"])
    assert largest == "transfer" and row["parts"]["transfer"]["mean"] > 0.5 * row["missing"]["mean"]
    assert "Mostly transfer" in row["words"] and "transfer " in row["words"] and "[" in row["words"], row["words"]
    assert row["words"] in (tmp_path / "study" / "report.html").read_text().replace("&#39;", "'")
