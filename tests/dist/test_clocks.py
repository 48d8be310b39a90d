"""Arrivals on machines whose clocks do not agree: one offset, measured and interpolated, makes them comparable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

RANKS = Path(__file__).parent / "clock_ranks.py"

# Microseconds between two processes: nothing beside them.
pytestmark = pytest.mark.alone


@pytest.mark.timeout(60)
def test_a_clock_five_seconds_ahead_and_drifting(tmp_path: Path) -> None:
    ranks = [subprocess.Popen([sys.executable, RANKS, str(rank), tmp_path]) for rank in range(2)]
    assert [rank.wait() for rank in ranks] == [0, 0]
    first, second = (json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2))
    # Half a round trip is the most an offset can be wrong by; five seconds would be the clock itself.
    assert second["off_s"] <= second["trip_s"] / 2 + 1e-4, (
        "a wrong offset, or drift not interpolated (half a millisecond)"
    )
    assert second["last"] == second["of"] == 10 and first["last"] == 0
    assert first["waiting"] == pytest.approx(second["slept_s"], rel=0.15)
    assert second["waiting"] <= 0.1 * first["waiting"]
    assert first["ahead_s"] == 0 and abs(second["ahead_s"] - 1.5) < 0.01, "the time of day, wrong by 1.5 s"
    assert second["lag_s"] == pytest.approx(second["slept_s"], rel=0.15) and second["behind"] == 10
    assert first["transfer"] >= 0 and second["transfer"] > 0
    for rank in (first, second):
        assert (
            rank["silent"]
            == "2 ranks trained and met 1 times, but only 0 messages went between them: they may have trained 2 models"
        )
