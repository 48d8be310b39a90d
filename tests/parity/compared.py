"""Cases trained on ranks and beside a plain loop (`any_ranks.py`): started, and read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
GATE = 1e-10  # of weights, in fp64
_SCORES = 1e-9
_PATIENCE_S = 900


@dataclass(frozen=True, slots=True)
class Case:
    """`refused`: by which sentence, before anything was trained."""

    task: str
    settings: dict[str, Any]
    refused: str = ""
    error: str = ""
    weights: float = 0.0
    scores: dict[str, list[float | None]] | None = None
    warnings: Sequence[str] = ()
    graph: bool = False
    unknown: str | None = None

    @property
    def wrong(self) -> str | None:
        """In what it differs from the plain loop; None for nothing."""
        if not self.weights <= GATE:  # nor no number
            return f"weights differ by {self.weights:.1e}"
        for name, (got, wanted) in (self.scores or {}).items():
            if got is None or wanted is None or not (_near(got, wanted) or _rounded(got) == wanted):
                return f"{name} is {got}, and {wanted} in the plain loop"
        return None

    def __str__(self) -> str:
        return f"{self.task} {self.settings}"


def _near(got: float, wanted: float) -> bool:
    return abs(got - wanted) <= _SCORES * max(1.0, abs(wanted))


def _rounded(value: float) -> float:
    """As a task has it that rounds its score to single precision by itself."""
    return float(np.float32(value))


def compared(cases: Sequence[tuple[str, dict[str, Any]]], folder: Path, size: int) -> list[Case]:
    """`cases`: (file and class in this folder, settings and parameters). What was found out about a task is kept in `folder`."""
    for left in (f"store{size}", f"{size}.jsonl"):  # of another call: ranks would look for each other in it
        (folder / left).unlink(missing_ok=True)
    (folder / "cases.json").write_text(json.dumps([[str(HERE / task), settings] for task, settings in cases]))
    found = subprocess.run(
        [sys.executable, HERE / "any_ranks.py", folder, str(size)], capture_output=True, text=True, timeout=_PATIENCE_S,
        check=False, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    rows = [Case(**json.loads(line)) for line in (folder / f"{size}.jsonl").read_text().splitlines()]
    assert found.returncode == 0 and len(rows) == len(cases), (
        f"{len(rows)} of {len(cases)} cases\n{found.stderr[-3000:]}"
    )
    for row in rows:
        assert not row.error, f"{row}\n{row.error}"
    return rows
