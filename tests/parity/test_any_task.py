"""Tasks that once completed with wrong numbers: at every world size, cut and graph each ends with the weights and scores of its plain loop
(fp64, 1e-10), or is refused before anything trains. Nothing else may happen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parity.compared import Case, compared

pytestmark = pytest.mark.timeout(1000)

CUTS: dict[str, dict[str, dict[str, Any]]] = {
    "eager": {"": {}, "a": {"accumulate": 4}},
    "step": {"g": {"graph": "compile", "graph_of": "step"}},
}
SIZES = (1, 2, 3)

ALL = "1 1a 1g 2 2a 2g 3 3a 3g"
EAGER = "1 1a 2 2a 3 3a"
IN_ONE_PIECE = "1 1g 2 3"  # the outputs of all ranks are gathered before the loss, which no graph of the step does
# task -> where it must be computed: ranks; a: accumulate=4; g: the whole step as a graph. Anywhere else it must be refused.
COMPUTED = {
    "VaePair": "",
    "VaeTerms": ALL,
    "PrecisionRecall": "",
    "VaeSummed": ALL,
    "Weighted": IN_ONE_PIECE,
    "WeightedRatio": ALL,
    "Contrastive": IN_ONE_PIECE,
    "F1": ALL,
    "R2": ALL,
    "Tokens": IN_ONE_PIECE,
    "Stream": ALL,
    "ShufflingStream": ALL,
    "EndlessStream": ALL,
    "Annealed": "1",
    "AnnealedByStep": EAGER,
    "Normed": "1 1g",
    "NormedTogether": "1 1g 2 3",
    "Own": ALL,
    "OwnThatCounts": EAGER,
    "OwnWithAHook": EAGER,
    "OwnThatDraws": "1 1a",
    "SetAtRandom": "",
    "Unfrozen": EAGER,
    "LearnedLoss": ALL,
    "Foreign": "",
    "Objects": ALL,
    "Transposed": "",
    "Column": ALL,
    "Spread": IN_ONE_PIECE,
    "RunningCentre": "1 1g",
    "Flooded": IN_ONE_PIECE,
    "MetricTerm": "",
    "TotalAmongTerms": "",
    "HardestHalf": IN_ONE_PIECE,
    "RiskSets": IN_ONE_PIECE,
    "FewOtherwise": IN_ONE_PIECE,
    "RareMask": IN_ONE_PIECE,
    "Physics": ALL,
    "MovingBaseline": "1",
    "ModelOfData": ALL,
    "ClippedByHook": "1",
    "ClippedInPlace": "1",
    "HalvedByHook": EAGER,
    "SeededInside": "1",
    "Counted": "1 1a 1g",
    "KeptOutputs": "1 1a 1g 2 2a 2g 3 3a 3g",
    "OneOfManyParts": "",
    "Lazy": "",
    "Detached": "",
    "RunningScore": "",
    "Queue": "",
    "Closures": "",
    "WholeScores": ALL,
    "Named": ALL,
    "NamedArrays": ALL,
    "Gan": "1 2 3",
}
# What is computed, and is another model than on one process: a warning says so.
WARNED = {"Normed": ("batchnorm", "2 2g"), "Counted": ("draws", "2 2a 2g 3 3a 3g")}
MORE: dict[str, dict[str, Any]] = {"NormedTogether": {"buffers": "sync"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("any_task")


@pytest.mark.parametrize(
    ("size", "cuts"),
    [
        *((size, cuts) for size in SIZES for cuts in ("eager", "step") if (size, cuts) != (3, "step")),
        pytest.param(3, "step", marks=pytest.mark.slow),
    ],
)
def test_equal_to_the_plain_loop_or_refused(folder: Path, size: int, cuts: str) -> None:
    asked = [(task, cut) for task in COMPUTED for cut in CUTS[cuts]]
    cases = [(f"ten_tasks.py:{task}", {**CUTS[cuts][cut], **MORE.get(task, {})}) for task, cut in asked]
    rows = compared(cases, folder, size)
    judgements = [
        judged(row, task, f"{size}{cut}", graph=cut == "g") for row, (task, cut) in zip(rows, asked, strict=True)
    ]
    problems = [problem for problem in judgements if problem]
    assert not problems, "\n".join(problems)


def judged(row: Case, task: str, where: str, *, graph: bool) -> str | None:
    kind, places = WARNED.get(task, ("", ""))
    if where in places.split():
        return None if kind in row.warnings else f"{row}: no warning of the kind {kind} ({row.refused[:200]})"
    if where not in COMPUTED[task].split():
        return None if row.refused else f"{row}: was computed ({row.wrong or 'right'}), and must be refused"
    if row.refused:
        return f"{row}: {row.refused}"
    if row.unknown:
        return f"{row}: {row.unknown}"
    if graph and not row.graph:
        return f"{row}: no graph was made"
    return f"{row}: {row.wrong}" if row.wrong else None
