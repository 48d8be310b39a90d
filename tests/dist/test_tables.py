"""Cut tables and cut layers against one process, at 2 and 3 ranks: `table_ranks.py` has the cases, one start runs them all."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

RANKS = Path(__file__).parent / "table_ranks.py"
PATIENCE_S = 400
SIZES = (2, 3)

pytestmark = pytest.mark.timeout(420)


def _cases() -> list[str]:
    """The names in CASES, read and not imported: this process makes no process group."""
    for node in ast.parse(RANKS.read_text()).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "CASES":
            assert isinstance(node.value, ast.Tuple)
            names = [
                ast.unparse(item) for star in node.value.elts for item in ast.walk(star) if isinstance(item, ast.Name)
            ]
            return [name for name in names if name not in ("case", "split", "sparse", "partial")]
    raise AssertionError("table_ranks.py has no CASES")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the ranks of both sizes have said what they found."""
    folder = tmp_path_factory.mktemp("tables")
    done = subprocess.run([sys.executable, RANKS, folder], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    missing = [f"{size} ranks: {rank}" for size in SIZES for rank in range(size) if not _file(folder, size, rank).exists()]
    assert not missing, f"{missing} said nothing: {done.stderr[-2000:]}"
    return folder


def _file(folder: Path, size: int, rank: int) -> Path:
    return folder / str(size) / f"rank_{rank}.json"


@pytest.fixture(params=SIZES)
def told(request: pytest.FixtureRequest, folder: Path) -> list[dict[str, str]]:
    """What each rank says of each case."""
    return [json.loads(_file(folder, request.param, rank).read_text()) for rank in range(request.param)]


@pytest.mark.parametrize("case", _cases())
def test_every_rank_passes(case: str, told: list[dict[str, str]]) -> None:
    """The cases of tables are told by how they are cut: four names for one function."""
    for rank in told:
        verdicts = {
            name: said
            for name, said in rank.items()
            if name == case or (case == "tables" and name.startswith("tables by"))
        }
        assert len(verdicts) == (4 if case == "tables" else 1), rank.keys()
        assert set(verdicts.values()) == {"passed"}, "\n".join(verdicts.values())
