"""Every launcher: a pure plan, the same model, the same words when a rank breaks. A new one is covered by being registered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import paceline
from adds_up import explained
from paceline.launch.plan import LAUNCHERS, Launcher
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.spec.settings import Settings

ROOT = Path(__file__).parents[2]


def plan_twice(name: str) -> list[dict[str, object]]:
    spec = Spec(task="mnist-convnet", on="1x3", launcher=name, threads=1, cpus_per_task=1)  # type: ignore[arg-type]
    launcher: Launcher = LAUNCHERS.load(name)()
    return [launcher.plan(spec, RunDir(Path("/nowhere"))).plain() for _ in range(2)]


def test_settings_and_registry_agree() -> None:
    schema = Settings.model_json_schema()["properties"]["launcher"]["enum"]
    assert schema == LAUNCHERS.names()


@pytest.mark.parametrize("name", LAUNCHERS.names())
def test_a_plan_is_pure(name: str) -> None:
    first, second = plan_twice(name)
    assert first == second
    assert first["world_size"] == 3
    assert not Path("/nowhere").exists()


# Those that start on this machine; the others need a cluster, and have tests/e2e/test_slurm.py.
HERE = [name for name in LAUNCHERS.names() if not name.startswith("slurm+")]


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("launchers")
    found: dict[str, str] = {}
    for name in HERE:
        record = paceline.run("mnist-convnet", on="1x2", launcher=name, out=folder / name, steps=5, threads=1)
        assert record.completed, f"{name}: {record.why}"
        assert record["applied"]["world_size"] == 2
        explained(record)
        found[name] = record["weights_hash"]
    return found


@pytest.mark.timeout(300)  # for all of them together
def test_every_launcher_trains_the_same_model(hashes: dict[str, str]) -> None:
    assert len(set(hashes.values())) == 1, hashes


@pytest.mark.parametrize("name", [name for name in LAUNCHERS.names() if name.startswith("slurm+")])
def test_every_slurm_launcher_is_in_the_box_test(name: str) -> None:
    assert f'"launcher={name}"' in (ROOT / "tests" / "e2e" / "test_slurm.py").read_text()


@pytest.mark.parametrize("name", LAUNCHERS.names())
def test_what_on_means_is_said_before_it_starts(name: str) -> None:
    """The world size, whatever the launcher counts in."""
    assert "3 ranks" in str(plan_twice(name)[0]["said"])


@pytest.mark.parametrize("processes", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_mpi_and_gloo_give_one_model(processes: int, tmp_path: Path) -> None:
    """Bit for bit at two ranks, where a sum has one order; within 1e-6 beyond."""
    found: list[paceline.Record] = []
    for backend in ("gloo", "mpi"):
        record = paceline.run(
            "mnist-convnet", on=f"1x{processes}", launcher="mpirun", backend=backend, out=tmp_path / backend, steps=30, threads=1
        )  # fmt: skip
        assert record.completed and record["applied"]["backend"] == backend, record.why
        explained(record)
        found.append(record)
    gloo, mpi = found
    assert processes > 2 or gloo["weights_hash"] == mpi["weights_hash"]
    assert gloo.test["accuracy"] == mpi.test["accuracy"]
    left, right = (load_file(record["weights"]) for record in found)
    for name in left:
        assert np.linalg.norm(left[name] - right[name]) <= 1e-6 * np.linalg.norm(left[name]), name
