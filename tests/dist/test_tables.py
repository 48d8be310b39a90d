"""Cut tables and cut layers against one process, at 2 and 3 ranks: `table_ranks.py` has the cases, one start runs them all."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

RANKS = Path(__file__).parent / "table_ranks.py"
PATIENCE_S = 150


def _cases() -> list[str]:
    """The names in CASES, read and not imported: this process makes no process group."""
    for node in ast.parse(RANKS.read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "CASES":
            assert isinstance(node.value, ast.Tuple)
            found = [
                ast.unparse(item) for star in node.value.elts for item in ast.walk(star) if isinstance(item, ast.Name)
            ]
            return [name for name in found if name not in ("case", "split", "sparse", "partial")]
    raise AssertionError("table_ranks.py has no CASES")


@pytest.fixture(scope="module", params=[2, 3])
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """What each rank says of each case."""
    folder, size = tmp_path_factory.mktemp("tables"), request.param
    logs = [(folder / f"log_{rank}").open("w+") for rank in range(size)]
    started = [
        subprocess.Popen(
            [sys.executable, str(RANKS), str(rank), str(size), str(folder)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        for rank, log in enumerate(logs)
    ]  # fmt: skip
    try:
        for process in started:
            process.wait(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"{size} ranks were not over after {PATIENCE_S} s: {[file.name for file in folder.glob('*.json')]}")
    finally:
        for process in started:
            process.kill()
            process.wait()
        for log in logs:
            log.close()
    files = [folder / f"rank_{rank}.json" for rank in range(size)]
    missing = [(folder / f"log_{rank}").read_text()[-2000:] for rank, file in enumerate(files) if not file.exists()]
    assert not missing, missing
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize("case", _cases())
def test_every_rank_passes(case: str, told: list[dict[str, str]]) -> None:
    """The cases of tables are told by how they are cut: four names for one function."""
    for rank in told:
        found = {
            name: said
            for name, said in rank.items()
            if name == case or (case == "tables" and name.startswith("tables by"))
        }
        assert len(found) == (4 if case == "tables" else 1), rank.keys()
        assert set(found.values()) == {"passed"}, "\n".join(found.values())
