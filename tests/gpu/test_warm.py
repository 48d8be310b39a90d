"""A real GPU in a forked rank: the warm process has not touched it, so the rank can. Never in CI."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.commands import run
from paceline.launch.supervise import warmed


def test_forked_ranks_use_the_gpu_one_run_after_the_other(tmp_path: Path) -> None:
    with warmed() as warm:
        records = [
            run.start(
                run.ready("mnist-convnet", {"device": "cuda", "steps": 3}, out=tmp_path / name, warm=warm), warm=warm
            )
            for name in ("first", "second")
        ]
    assert [(record.outcome, record["ranks"][0]["start"]) for record in records] == [("completed", "forked")] * 2
    losses = [record.test["loss"] for record in records]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4), "cuDNN adds up in any order: not the same bits"
