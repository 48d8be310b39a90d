"""Each launcher's command as text, against a golden file; `PACELINE_GOLDEN=write` rewrites it. And torchrun's last words."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from paceline.launch.plan import LAUNCHERS, Launcher
from paceline.launch.torchrun import Torchrun
from paceline.records.layout import RunDir
from paceline.spec.run import Spec

GOLDEN = Path(__file__).parents[2] / "golden" / "plans"


@pytest.mark.parametrize("name", LAUNCHERS.names())
def test_the_command_is_the_golden_one(name: str) -> None:
    spec = Spec(task="features", on="1x2", launcher=name, threads=3)  # type: ignore[arg-type]
    launcher: Launcher = LAUNCHERS.load(name)()
    plan = launcher.plan(spec, RunDir(Path("/runs/x")))
    text = "".join(f"{process.who}: {process.command()}\n" for process in plan.processes).replace(
        sys.executable, "python"
    )
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("PACELINE_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


LAST_WORDS = """\
worker FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-15_10:00:00
  host      : vm
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 4711)
"""


def test_torchruns_table_is_read() -> None:
    found = Torchrun().last_words(LAST_WORDS.format(code=-9))
    assert found is not None and found.kind == "killed" and str(found.why).startswith("rank 1 was killed by SIGKILL")
    assert Torchrun().last_words(LAST_WORDS.format(code=1)) is None, "a rank that left by itself has said why"
    assert Torchrun().last_words("") is None
