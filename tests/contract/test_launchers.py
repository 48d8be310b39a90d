"""Every launcher: a pure plan, the same model, the same words when a rank breaks. A new one is covered by being registered."""

from __future__ import annotations

from pathlib import Path

import pytest

import paceline
from paceline.launch.plan import ABOUT, LAUNCHERS, Launcher
from paceline.records.layout import RunDir
from paceline.spec.run import Spec
from paceline.spec.settings import Settings

COUNTED = str(Path(__file__).parents[1] / "dist" / "counted.py")


def plan_twice(name: str) -> list[dict[str, object]]:
    spec = Spec(task="mnist-convnet", on="1x3", launcher=name, threads=1)  # type: ignore[arg-type]
    launcher: Launcher = LAUNCHERS.load(name)()
    return [launcher.plan(spec, RunDir(Path("/nowhere"))).plain() for _ in range(2)]


def test_settings_and_registry_agree() -> None:
    schema = Settings.model_json_schema()["properties"]["launcher"]["enum"]
    assert schema == LAUNCHERS.names() == list(ABOUT)


@pytest.mark.parametrize("name", LAUNCHERS.names())
def test_a_plan_is_pure(name: str) -> None:
    first, second = plan_twice(name)
    assert first == second
    assert first["world_size"] == 3
    assert not Path("/nowhere").exists()


@pytest.fixture(scope="module")
def hashes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("launchers")
    found: dict[str, str] = {}
    for name in LAUNCHERS.names():
        record = paceline.run("mnist-convnet", on="1x2", launcher=name, out=folder / name, steps=5, threads=1)
        assert record.completed, f"{name}: {record.why}"
        assert record["applied"]["world_size"] == 2
        found[name] = record["weights_hash"]
    return found


def test_every_launcher_trains_the_same_model(hashes: dict[str, str]) -> None:
    assert len(set(hashes.values())) == 1, hashes
