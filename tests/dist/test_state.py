"""Ranks that train together put their states back and go on to the same bits: every way of sharding, every optimizer, two ranks.

`state_ranks.py` does the trainings, once for this file; here is what must hold of each.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(200)

RANKS = Path(__file__).parent / "state_ranks.py"
NAMES = ("adam", "adamw", "sgd", "rmsprop")
TWO = [
    *(f"{way} {name}" for way in ("eager", "compiled", "model-graph", "ddp", "fsdp", "local", "accelerate", "tensor") for name in NAMES),
    "embedding adam", "embedding sgd",
]  # fmt: skip
ONE = [*(f"{way} {name}" for way in ("accelerate", "fsdp") for name in NAMES), "loader adam"]
Seen = dict[str, Any]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Seen]]:
    folder = tmp_path_factory.mktemp("state")
    done = subprocess.run([sys.executable, RANKS, folder], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    rows = {size: [json.loads((folder / f"{size}-{rank}.json").read_text()) for rank in range(size)] for size in (1, 2)}
    broken = [f"{name}: {row['broke']}" for ranks in rows.values() for rank in ranks for name, row in rank.items() if "broke" in row]
    assert not broken, broken[0]
    return rows


@pytest.mark.parametrize(("size", "case"), [*((1, case) for case in ONE), *((2, case) for case in TWO)])
def test_what_is_put_back_goes_on_to_the_same_bits(seen: dict[int, list[Seen]], size: int, case: str) -> None:
    for rank in seen[size]:
        row = rank[case]
        assert row["moved"] and row["put back"] and row["kept"]
        assert row["equal"] and not row["different"], row["different"]
        assert not row["disturbed"], "by an evaluation in the middle of an epoch"
        assert any(name.startswith("optimizer/") for name in row["names"]) or case == "embedding sgd", "plain SGD keeps nothing"
    way = case.partition(" ")[0]
    if way in ("compiled", "model-graph"):
        assert seen[size][0][case]["step"]["graph"] == "compile"
