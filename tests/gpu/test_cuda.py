"""One GPU: `auto` finds it, the record says what ran there, and the same mathematics comes out as on the CPU.

Never in CI: `pytest -m gpu tests/gpu` on a machine that has one. Several GPUs cannot be had here.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from safetensors.torch import load_file

import paceline

with_accelerate = pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed")


def test_auto_takes_the_gpu_and_says_so(tmp_path: Path) -> None:
    record = paceline.run("mnist-convnet", out=tmp_path / "run", epochs=2)
    assert record.completed, record.why
    assert record.spec["device"] == record["applied"]["device"] == "cuda"
    assert record.test["evaluated"] == record.test["of"] == 2000
    assert record.test["accuracy"] > 0.85
    assert record["memory"]["peak_bytes"] > 0
    parts = record.time["parts"]
    assert parts["step"] is None and parts["forward"] > 0 and parts["backward"] > 0, (
        "told apart by events on the device"
    )


def test_a_gpu_computes_what_the_cpu_computes(tmp_path: Path) -> None:
    weights = {}
    for device in ("cpu", "cuda"):
        record = paceline.run("mnist-convnet", out=tmp_path / device, device=device, precision="fp64", steps=50)
        assert record.completed, record.why
        weights[device] = load_file(record["weights"])
    for name, values in weights["cpu"].items():
        far = (values - weights["cuda"][name]).norm() / values.norm()
        assert float(far) < 1e-9, name


def test_more_ranks_than_gpus_are_refused() -> None:
    from paceline.base.errors import BadInput

    with pytest.raises(BadInput, match="a-gpu-each"):
        paceline.run("mnist-convnet", device="cuda", on="1x9")


def test_features_and_a_study_of_one_cell(tmp_path: Path) -> None:
    record = paceline.run("features", out=tmp_path / "run", epochs=1, num_train=10_000)
    assert record.completed, record.why
    assert record["applied"]["device"] == "cuda"


def test_nccl_is_what_carries_the_messages(tmp_path: Path) -> None:
    """One rank is all that one GPU allows: the group is made of NCCL and read back as such; messages between ranks are not shown."""
    record = paceline.run("mnist-convnet", out=tmp_path / "run", backend="nccl", steps=20)
    assert record.completed, record.why
    assert record["applied"]["backend"] == "nccl"


@with_accelerate
@pytest.mark.parametrize(("precision", "dtype"), [("fp16", "float16"), ("bf16", "bfloat16"), ("fp32", "float32")])
def test_accelerate_applies_what_is_asked(precision: str, dtype: str, tmp_path: Path) -> None:
    """On a GPU fp16 through accelerate is really fp16: the dtypes are those that the layers gave."""
    record = paceline.run("mnist-convnet", out=tmp_path / "run", wrap="accelerate", precision=precision, steps=50)
    assert record.completed, record.why
    assert record["applied"]["precision"] == precision
    assert dtype in record["applied"]["dtypes"]["compute"]
    assert record["applied"]["dtypes"]["parameters"] == ["float32"]


@pytest.mark.parametrize("launcher", ["torchrun", pytest.param("accelerate", marks=with_accelerate)])
def test_launchers_on_a_gpu(launcher: str, tmp_path: Path) -> None:
    record = paceline.run("mnist-convnet", out=tmp_path / "run", launcher=launcher, steps=20)
    assert record.completed, record.why
    assert record["applied"]["device"] == "cuda"
