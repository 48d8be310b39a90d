"""Where time and memory went on one GPU. Never in CI; nccl with more than one rank cannot be run here, so one rank shows what it can."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import paceline

CIFAR_LIKE = str(Path(__file__).parent / "tasks" / "cifar_like.py")


def trained(folder: Path, **asked: object) -> tuple[paceline.Record, dict[str, float]]:
    folder.mkdir(exist_ok=True)
    notes = folder / "notes.json"
    record = paceline.run(
        CIFAR_LIKE, out=folder / "run", notes=str(notes), device="cuda", batch=64, test_batch=128, **asked
    )
    assert record.completed, record.why
    return record, json.loads(notes.read_text())


def test_the_split_adds_up_and_tells_phases_apart(tmp_path: Path) -> None:
    record, _ = trained(tmp_path, epochs=6)
    wall, parts = record.time["wall_s"], record.time["parts"]
    assert sum(value for value in parts.values() if value is not None) == pytest.approx(wall, abs=1e-6)
    assert abs(parts["other"]) <= 0.03 * wall, parts
    assert (
        all(parts[name] > 0 for name in ("data", "forward", "backward", "optimizer", "evaluation"))
        and parts["step"] is None
    )
    inside = sum(parts[name] or 0 for name in ("data", "forward", "backward", "optimizer", "evaluation", "logging"))
    assert inside == pytest.approx(record.time["training_s"], rel=0.03), (
        "the device's timeline against the host's clock"
    )


def test_device_memory_parts_add_up_to_what_torch_says(tmp_path: Path) -> None:
    record, notes = trained(tmp_path, steps=60)
    memory = record["memory"]
    assert memory["allocator"] == "cuda"
    assert sum(memory["parts"].values()) == pytest.approx(notes["max_allocated"], rel=0.02)
    assert memory["peak_bytes"] <= memory["reserved_bytes"]
    numbers = record["num_parameters"]
    assert memory["sizes"]["parameters"] == memory["sizes"]["gradients"] == 4 * numbers
    assert memory["sizes"]["optimizer"] == pytest.approx(8 * numbers, rel=0.02), "Adam"
    # 64 images; each block keeps its convolution's, its norm's and its ReLU's result, and the pool's with its indices (8 bytes).
    each = sum(4 * c * s * s * 3 + 12 * c * s * s // 4 for c, s in ((32, 32), (64, 16), (128, 8)))
    assert memory["sizes"]["activations"] == pytest.approx(64 * each, rel=0.3)
    assert memory["parts"]["activations"] > 0.5 * memory["sizes"]["activations"]


def test_a_device_that_stands_still_for_want_of_data(tmp_path: Path) -> None:
    """The host sleeps for 6 s in all; the device has nothing to do. That time is `data`, and nothing else's.

    No step takes the device near the 100 ms that it then waits, so it never catches up with work of the last one. What a first step
    pays once (a library is loaded, pinned memory is made) takes no half of the 6 s.
    """
    record, notes = trained(tmp_path, steps=60, batch_ms=100)
    parts = record.time["parts"]
    assert notes["took"] >= 6.0
    assert parts["data"] >= 0.98 * notes["took"], parts
    assert parts["forward"] + parts["backward"] + parts["optimizer"] < 0.5 * notes["took"], parts


def test_a_planted_wait_is_data_s() -> None:
    """Once everything has been used before, the device's clock gives the wait to nobody but `data`."""
    import torch

    from paceline.worker.measure.clock import Stopwatch
    from paceline.worker.measure.timeline import following

    device = torch.device("cuda", 0)
    a = torch.randn(1024, 1024, device=device)
    for _ in range(10):
        a @ a
    torch.cuda.synchronize()
    watch = following(Stopwatch("data"), device)
    for _ in range(20):
        time.sleep(0.05)
        watch.switch("forward")
        a @ a
        watch.switch("data")
    watch.settle()
    assert watch.parts["data"] >= 20 * 0.05 * 0.98
    assert watch.parts["forward"] < 0.1 * watch.parts["data"]


def test_a_planted_slow_step_is_backward_s() -> None:
    """Work queued without waiting is told apart by the device's own clock, in the right proportion."""
    import torch

    from paceline.worker.measure.clock import Stopwatch
    from paceline.worker.measure.timeline import following

    device = torch.device("cuda", 0)
    a = torch.randn(4096, 4096, device=device)
    for _ in range(10):
        a @ a
    torch.cuda.synchronize()
    watch = following(Stopwatch("data"), device)
    for _ in range(50):
        watch.switch("forward")
        a @ a
        watch.switch("backward")
        for _ in range(3):
            a @ a
        watch.switch("data")
    watch.settle()
    assert watch.parts["backward"] / watch.parts["forward"] == pytest.approx(3, rel=0.1)
    assert watch.parts["data"] < 0.05 * watch.parts["forward"]


def test_ddp_over_nccl_with_one_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that one GPU can show: buckets leave and arrive through our hook, moments are read, and the last one ends the backward pass."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # torch would set it, and leave it behind
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from paceline.records.split import COMMUNICATION
    from paceline.worker.measure.clock import Stopwatch
    from paceline.worker.measure.overlap import Overlap
    from paceline.worker.measure.timeline import following
    from paceline.worker.world.join import World

    device = torch.device("cuda", 0)
    dist.init_process_group("nccl", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        net = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8))).to(device)
        twin = torch.nn.Linear(4, 4).to(device)
        watch = following(Stopwatch("data"), device)
        world = World(rank=0, size=1, local_rank=0, host="here", device=device, backend="nccl")
        overlap = Overlap(watch, world)
        wrapped = DistributedDataParallel(net, device_ids=[0], bucket_cap_mb=20)
        wrapped.register_comm_hook(None, overlap.hook)
        for _ in range(5):
            watch.switch("forward")
            loss = wrapped(torch.randn(256, 2048, device=device)).square().mean()
            watch.switch("backward")
            loss.backward()
            watch.switch("optimizer")
            twin(torch.randn(4, 4, device=device))
        watch.switch("data")
        watch.settle()
        assert 0 < overlap.hidden_s() < watch.parts["backward"], "buckets leave while the rest is computed"
        assert world.sent.num >= 5 * 3
        assert watch.parts["backward"] > 0 and watch.parts[COMMUNICATION] > 0
        assert len(watch.collective_times) == 5, "one stay in communication a step"
    finally:
        dist.destroy_process_group()
