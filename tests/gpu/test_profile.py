"""The profiler on one GPU: kernels are booked on the modules that launched them, forward and backward."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.commands import run


@pytest.fixture(autouse=True)
def page_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page needs altair, which the lent machine has not got; everything the GPU has to do with it is in the record."""
    if importlib.util.find_spec("altair") is None:
        monkeypatch.setattr(run, "write_page", lambda record: None)


def by_module(profile: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in profile["modules"]}


def test_training_on_a_gpu(tmp_path: Path) -> None:
    record = paceline.run("mnist-convnet", out=tmp_path / "run", profile="training", steps=50, device="cuda")
    assert record.completed, record.why
    profile = record["profile"]
    assert profile["device"] == "cuda" and record["time"] is None
    modules = by_module(profile)
    layers = {name: row for name, row in modules.items() if row["type"] in ("Conv2d", "Linear")}
    assert layers and all(row["own_device_s"] > 0 and row["calls"] == 50 for row in layers.values())
    assert all(row["own_backward_s"] > 0 and row["bytes"] > 0 for row in layers.values()), "on the engine's own thread"

    forward = sum(row["own_forward_s"] for row in modules.values())
    assert forward == pytest.approx(profile["model"]["forward_s"], rel=0.05)
    assert profile["explained"] == pytest.approx(1, abs=0.05)
    kernels = sum(row["own_device_s"] for row in modules.values())
    assert kernels <= profile["model"]["device_s"] * 1.001
    assert kernels > 0.5 * profile["model"]["device_s"], "the loss's kernels are few"
    booked = sum(row["device_s"] for row in profile["operators"])
    assert booked >= profile["model"]["device_s"] * 0.999, "all phases, the optimizer's too"

    clean = profile["clean"]
    assert set(clean["parts"]) == {"data", "forward", "loss", "backward", "optimizer"}
    assert sum(clean["parts"].values()) == pytest.approx(clean["total_s"])
    assert (tmp_path / "run" / profile["trace"]).stat().st_size > 0


def test_inference_on_a_gpu(tmp_path: Path) -> None:
    record = paceline.run(
        "features", out=tmp_path / "run", profile="inference", steps=50, device="cuda", num_train=2000
    )
    assert record.completed, record.why
    modules = by_module(record["profile"])
    assert all(row["own_device_s"] > 0 for name, row in modules.items() if name != "(model)")
    assert modules["activation"]["bytes"] == 50 * 32 * 32 * 4, "512 is what the GPU's allocator rounds to"
    assert modules["(model)"]["device_s"] == pytest.approx(record["profile"]["model"]["device_s"], rel=0.05)
