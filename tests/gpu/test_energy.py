"""A real GPU's energy counter: it goes up by as much as such a GPU can draw. Never in CI; several GPUs cannot be had here."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

LEAST_W, MOST_W = 20.0, 1500.0  # an idle card, and more than any one draws


def test_work_takes_a_gpus_power() -> None:
    pytest.importorskip("pynvml", reason="the GPU's counter is read through nvidia-ml-py, which is not installed")
    import torch

    from paceline.records.cost import GPU
    from paceline.worker.measure.energy import Meter

    device = torch.device("cuda", 0)
    a = torch.randn(4096, 4096, device=device)
    meter = Meter(device, leads=True)
    meter.start()
    began = time.perf_counter()
    while time.perf_counter() - began < 1.5:
        for _ in range(20):
            a = (a @ a).clamp_(-1, 1)
        torch.cuda.synchronize()
    said = meter.stop()
    seconds = time.perf_counter() - began
    joules = said["joules"][GPU]
    assert joules is not None, said["why"]
    assert LEAST_W < joules / seconds < MOST_W


def test_the_record_of_a_run_has_it(tmp_path: Path) -> None:
    pytest.importorskip("pynvml", reason="the GPU's counter is read through nvidia-ml-py, which is not installed")
    import paceline

    record = paceline.run("mnist-convnet", out=tmp_path / "run", device="cuda", epochs=8, price=4.0)
    assert record.completed, record.why
    found, seconds = record["energy"], record.time["training_s"]
    assert found["joules"] is not None, found["why"]
    assert LEAST_W < found["joules"] / seconds < MOST_W
    assert found["joules_per_sample"] == pytest.approx(found["joules"] / record["samples"])
    assert record["cost"]["total"] == pytest.approx(4.0 * record.time["wall_s"] / 3600)
