"""Tasks that once completed with wrong numbers: at every world size, cut and graph each ends with the weights and scores of its plain loop
(fp64, 1e-10), or is refused before anything trains. Nothing else may happen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TASKS = HERE / "ten_tasks.py"
GATE = 1e-10
PATIENCE_S = 900
STEP = {"graph": "compile", "graph_of": "step"}

pytestmark = pytest.mark.timeout(1000)

ALL = ("1", "1a", "2", "2a", "3", "3a")  # ranks; a: accumulate=4
ALONE = ("1",)
IN_ONE_PIECE = ("1", "2", "3")
# task -> where it must be computed, eagerly; anywhere else it must be refused. None: nowhere. A star: a warning says that parity does
# not hold.
EAGER: dict[str, Sequence[str] | None] = {
    "VaePair": None,
    "VaeTerms": ALL,
    "PrecisionRecall": None,
    "VaeSummed": ALL,
    "Weighted": IN_ONE_PIECE,
    "WeightedRatio": ALL,
    "Contrastive": IN_ONE_PIECE,
    "F1": ALL,
    "R2": ALL,
    "Tokens": IN_ONE_PIECE,
    "Stream": ALL,
    "ShufflingStream": (),
    "Annealed": ALONE,
    "AnnealedByStep": ALL,
    "Normed": ("1", "1a*", "2*", "2a*", "3*", "3a*"),
    "Own": ALL,
    "LearnedLoss": ALL,
    "Foreign": None,
    "Objects": ALL,
    "Transposed": None,
    "Column": ALL,
    "Spread": IN_ONE_PIECE,
    "RunningCentre": ALONE,
    "WholeScores": ALL,
    "Named": ALL,
    "Gan": IN_ONE_PIECE,
}
