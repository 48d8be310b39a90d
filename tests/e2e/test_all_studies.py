"""`paceline study all`: every shipped study in one go, through the command that a user types."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.commands.study import shipped
from paceline.study.reports import parts


def paceline(*words: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "paceline", *words], capture_output=True, text=True, timeout=timeout_s)


def test_it_says_what_it_would_run() -> None:
    done = paceline("study", "all", "--quick", "--dry-run", timeout_s=120)
    assert done.returncode == 0 and all(f"{name}-quick: " in done.stdout for name in shipped()), done.stderr


@pytest.mark.parametrize("option", [["--budget", "1h"], ["--detach"]])
def test_what_is_for_one_study_is_refused(option: list[str]) -> None:
    done = paceline("study", "all", *option, timeout_s=60)
    assert done.returncode == 2 and "is for one study" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_quick_studies_run(tmp_path: Path) -> None:
    done = paceline("study", "all", "--quick", "--json", "--out", str(tmp_path), timeout_s=3600)
    assert done.returncode == 0, done.stderr[-2000:]
    told: dict[str, Any] = json.loads(done.stdout)
    assert [one["study"] for one in told["studies"]] == list(shipped())
    assert not [one["why"] for one in told["studies"] if one["why"]]
    waiting = sum(len(part.claims) + len(part.facts) for part in parts())
    claims = sum(len(file.reference.conclusions) for file in shipped().values() if file.reference)
    assert len(told["claims"]) == claims + waiting
    judged = {one["verdict"] for one in told["claims"] if one["study"]}
    assert judged == {"not tested"}, "a quick study gives no verdict"
    page = (tmp_path / "studies-quick.html").read_text()
    assert all(f'href="{name}-quick/report.html"' in page for name in shipped())
