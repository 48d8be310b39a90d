"""The mpi backend under a real mpirun: every collective against arithmetic or gloo, training against gloo, and every way to end."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest

from paceline.worker.world.mpi import short

pytestmark = [
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun here: install Open MPI"),
    pytest.mark.skipif(find_spec("mpi4py") is None, reason="no mpi4py here: pip install 'paceline[mpi]'"),
]

RANKS = Path(__file__).parent / "mpi_ranks.py"
PATIENCE_S = 20.0  # for a job to be over once one rank is gone


def _checks() -> list[str]:
    """The names in mpi_ranks.py's CHECKS, read and not imported: this process has no part in MPI."""
    for node in ast.parse(RANKS.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CHECKS":
            return [ast.unparse(name) for name in node.value.elts]
    raise AssertionError("mpi_ranks.py has no CHECKS")


@dataclass(frozen=True)
class Job:
    code: int
    out: str
    err: str
    ended: float
    folder: Path

    @property
    def after_strike_s(self) -> float:
        return self.ended - (self.folder / "struck").stat().st_mtime


def mpirun(scenario: str, folder: Path, *, ranks: int, timeout_s: float = 100) -> Job:
    folder.mkdir(exist_ok=True)
    command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", "--allow-run-as-root"]
    environment = {
        **os.environ, "OMP_NUM_THREADS": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_btl_vader_backing_directory": str(folder),  # a killed rank leaves its shared memory behind
    }  # fmt: skip
    with subprocess.Popen(
        [*command, sys.executable, str(RANKS), scenario, str(folder)], env=environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=timeout_s)
        except BaseException as error:  # a timeout, or pytest-timeout's own: the whole family goes
            with contextlib.suppress(psutil.NoSuchProcess):
                for member in psutil.Process(process.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        member.kill()
            process.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            out, err = process.communicate()
            pytest.fail(f"{scenario} at {ranks} ranks was not over after {timeout_s} s\n{out}\n{err}")
    return Job(process.returncode, out, err, time.time(), folder)


@pytest.fixture(scope="module", params=[2, 3])
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, int]:
    """All checks in one job: starting ranks is what takes the time."""
    return mpirun("check", tmp_path_factory.mktemp("mpi"), ranks=request.param), request.param


def passed(job: Job, rank: int) -> dict[str, object]:
    file = job.folder / f"rank_{rank}.json"
    return json.loads(file.read_text()) if file.exists() else {}


@pytest.mark.parametrize("check", _checks())
def test_every_rank_passes(check: str, checked: tuple[Job, int]) -> None:
    job, ranks = checked
    assert [passed(job, rank).get(check) for rank in range(ranks)] == ["passed"] * ranks, job.err


def test_normal_end_is_silent(checked: tuple[Job, int]) -> None:
    job, _ = checked
    assert (job.code, job.out, job.err) == (0, "", "")


def test_the_record_names_the_library(checked: tuple[Job, int]) -> None:
    found = passed(checked[0], 0)
    assert found["backend"] == "mpi4py"
    library = found["library"]
    assert isinstance(library, dict)
    assert set(library) == {"library", "mpi4py", "threads"} and library["threads"] == "multiple"
    assert any(library["library"].startswith(name) for name in ("Open MPI ", "MPICH ", "Intel")), library


@pytest.mark.parametrize("scenario", ["raise", "exit", "kill"])
def test_one_rank_gone_ends_the_job(scenario: str, tmp_path: Path) -> None:
    job = mpirun(scenario, tmp_path / "job", ranks=2)
    assert job.code != 0
    assert job.after_strike_s < PATIENCE_S
    told = {"raise": "ValueError: this rank fails on purpose", "exit": "SystemExit: 3", "kill": "signal 9"}[scenario]
    assert told in job.err


def test_an_error_in_the_thread_ends_the_job_with_a_traceback(tmp_path: Path) -> None:
    job = mpirun("truncate", tmp_path / "job", ranks=2)
    assert job.code != 0
    assert job.after_strike_s < PATIENCE_S
    assert "Traceback" in job.err and "MPI_ERR_TRUNCATE" in job.err


def test_forgetting_to_leave_is_forgiven(tmp_path: Path) -> None:
    job = mpirun("forget", tmp_path / "job", ranks=2)
    assert (job.code, job.err) == (0, "")


def test_a_world_of_one_is_a_mismatch(tmp_path: Path) -> None:
    job = mpirun("alone", tmp_path / "job", ranks=1)
    assert (job.code, job.err) == (0, "")
    found = json.loads((job.folder / "why.json").read_text())
    assert found["kind"] == "mismatch"
    assert "asked for 2 processes" in found["why"] and "--mpi=pmix" in found["why"] and "mpirun" in found["why"]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022\0", "Open MPI 4.1.4"),
        ("MPICH Version:      4.0.2\nMPICH Release date: Thu Apr  7 12:34:45 CDT 2022\n", "MPICH 4.0.2"),
        ("Intel(R) MPI Library 2021.10 for Linux* OS\n", "Intel(R) MPI Library 2021.10 for Linux* OS"),
        ("MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Release date :\n", "MVAPICH2 2.3.7"),
        ("", "unknown"),
    ],
)
def test_short_names(said: str, kept: str) -> None:
    assert short(said) == kept


def test_importing_the_backend_does_not_start_mpi() -> None:
    """mpi4py's import is MPI_Init, and loader processes import what their parent has imported."""
    code = (
        "import sys, paceline.worker.world.mpi as mpi; mpi.register(); mpi.finalize(); print('mpi4py' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
