"""Two hundred tasks put together at random, with settings drawn at random: none completes with other weights or scores than its plain loop
has (fp64, 1e-10), unless a warning says why. What cannot be right is refused, and what is ordinary is not."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from parity.compared import Case, compared
from parity.fuzzed import flags

pytestmark = pytest.mark.timeout(1000)

NUM = 200
MOST_SOAKED = 800
EXCUSES = {"batchnorm", "draws"}  # warnings: another model, other random numbers, than on one process
# Of these tasks every sample's loss stands by itself, whatever a batch is cut into.
ORDINARY = {"mean", "sum", "usual size", "said mean", "said total", "half a sum", "masked ratio", "pair", "two means", "mean and total",
            "bare mean and sum", "weighted ratio", "smooth", "margin"}  # fmt: skip


def settings(number: int, *, graphs: bool) -> dict[str, Any]:
    draw = random.Random(10_000 + number)
    has = flags(number)
    chosen: dict[str, Any] = {
        "number": number,
        "accumulate": draw.choice([1, 1, 2, 4]),
        "batch": draw.choice([12, 15, 20]),
        "test_batch": draw.choice([3, 5, 19]),
        "shuffle": draw.choice([True, False]) and has["data"] != "stream",
    }
    if has["optimizer"] is None:
        chosen["optimizer"] = draw.choice(["adam", "sgd", "adamw"])
    if has["norm"] == "batch" and chosen["accumulate"] == 1 and draw.random() < 0.5 and not graphs:
        chosen["buffers"] = "sync"
    if graphs:
        chosen |= {"graph": "compile", "graph_of": draw.choice(["step", "model"])}
    return chosen


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzzed")


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_task_completes_with_other_figures_than_its_plain_loop(folder: Path, size: int) -> None:
    check([settings(number, graphs=False) for number in range(NUM)], folder, size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3])
def test_more_of_them(folder: Path, size: int) -> None:
    check([settings(number, graphs=False) for number in range(NUM, MOST_SOAKED)], folder, size)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_in_graphs(folder: Path, size: int) -> None:
    check([settings(number, graphs=True) for number in range(NUM // 2)], folder, size)


def check(asked: list[dict[str, Any]], folder: Path, size: int) -> None:
    rows = compared([("fuzzed.py:Fuzzed", one) for one in asked], folder, size)
    problems = [problem for row in rows if (problem := judged(row, size))]
    assert not problems, "\n".join(problems)
    ends = Counter("refused" if row.refused else "equal" if row.wrong is None else "warned" for row in rows)
    assert ends["equal"] >= len(rows) // 5, ends  # or nothing was shown


def judged(row: Case, size: int) -> str | None:
    has = flags(row.settings["number"])
    wrong_score, wrong_loss = (str(has[part]).startswith("wrong") for part in ("score", "loss"))
    if row.refused:
        return f"{row} {has}: {row.refused}" if must_run(row, has, size) and not (wrong_score or wrong_loss) else None
    # a batch of a model that mixes its samples is never cut, so a form that its loss has is believed
    if wrong_score or (wrong_loss and has["state"] != "buffer"):
        return f"{row} {has}: was computed"
    if row.unknown:
        return f"{row} {has}: {row.unknown}"
    if EXCUSES & set(row.warnings):
        return None
    return f"{row} {has}: {row.wrong}" if row.wrong else None


def must_run(row: Case, has: dict[str, Any], size: int) -> bool:
    """Nothing is cut; or nothing minds."""
    asked = row.settings
    if "graph" in asked or asked.get("buffers") == "sync" or (has["loss"] is None and has["data"] == "dicts"):
        return False
    if size == 1 and asked["accumulate"] == 1:
        return has["norm"] != "batch"
    return has["loss"] in ORDINARY and has["state"] is None and has["norm"] != "batch"
