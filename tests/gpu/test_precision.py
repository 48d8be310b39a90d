"""Number formats on a GPU: fp32 is not TF32, half formats are what flowed, and fp8 is counted layer by layer.

fp8 needs torchao, which is an extra: without it those tests are skipped, with the reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import paceline
from paceline.base.errors import BadInput
from paceline.base.files import read_json
from paceline.spec.host import installed
from paceline.worker.tasks.load import load_task

PRODUCTS = str(Path(__file__).parent / "tasks" / "products.py")
TORCHAO = installed("torchao")
with_torchao = pytest.mark.skipif(TORCHAO is None, reason="torchao is not installed: pip install 'paceline[fp8]'")
OFF, ON = {"matmul": False, "convolution": False}, {"matmul": True, "convolution": True}


def train(task: str, out: Path, **settings: Any) -> paceline.Record:
    record = paceline.run(task, out=out, **{"device": "cuda", "threads": 2, **settings})
    assert record.completed, record.why
    return record


def distance(one: paceline.Record, other: paceline.Record) -> float:
    """The farthest tensor: ||difference|| / ||tensor||."""
    left, right = load_file(one["weights"]), load_file(other["weights"])
    return max(float((left[name].double() - right[name].double()).norm() / left[name].double().norm()) for name in left)


def test_fp32_is_fp32_and_tf32_is_not(tmp_path: Path) -> None:
    """Against fp64, after ten steps: torch lets cuDNN's convolutions use TF32 unless it is told not to."""
    records = {name: train(PRODUCTS, tmp_path / name, precision=name, steps=10) for name in ("fp64", "fp32", "tf32")}
    for name, record in records.items():
        assert record["applied"]["precision"] == name
        assert record["applied"]["tf32"] == (ON if name == "tf32" else OFF)
    assert records["tf32"]["applied"]["dtypes"] == records["fp32"]["applied"]["dtypes"], "the dtypes do not show it"
    exact, rounded = distance(records["fp64"], records["fp32"]), distance(records["fp64"], records["tf32"])
    assert exact < 1e-5
    assert rounded > 10 * exact and rounded > 1e-6, (exact, rounded)


@pytest.mark.parametrize(
    ("precision", "parameters", "computed"),
    [
        ("fp16", "float32", "float16"),
        ("bf16", "float32", "bfloat16"),
        ("bf16-pure", "bfloat16", "bfloat16"),
    ],
)
def test_half_formats_are_what_flowed(precision: str, parameters: str, computed: str, tmp_path: Path) -> None:
    applied = train("mnist-convnet", tmp_path / "run", precision=precision, steps=50)["applied"]
    assert applied["precision"] == precision and applied["tf32"] == OFF
    assert applied["dtypes"]["parameters"] == [parameters] and computed in applied["dtypes"]["compute"]
    if precision == "fp16":
        assert applied["scaler"]["steps"] == 50 and applied["scaler"]["skipped_steps"] < 10
    else:
        assert applied["scaler"] is None
    model = paceline.load(tmp_path / "run")
    assert {str(parameter.dtype) for parameter in model.parameters()} == {f"torch.{parameters}"}


def test_tf32_through_accelerate(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    applied = train("mnist-convnet", tmp_path / "run", precision="tf32", wrap="accelerate", steps=10)["applied"]
    assert applied["precision"] == "tf32" and applied["tf32"] == ON
    assert applied["accelerate"]["mixed_precision"] == "no"


@with_torchao
def test_fp8_is_really_fp8_where_layers_fit(tmp_path: Path) -> None:
    """512 x 64 fits, 64 x 20 does not; 1,000 samples in batches of 32 end with one of 8, which is no multiple of 16."""
    words = {"num_train": 1000, "num_test": 500, "hidden": 64}
    fp8 = train("features", tmp_path / "fp8", precision="fp8", epochs=2, **words)
    applied = fp8["applied"]
    assert applied["precision"] == "fp8"
    assert applied["fp8"] == {"linear_layers": 2, "converted": 1, "ran": 1, "share": 0.5}
    assert applied["dtypes"]["parameters"] == ["float32"] and "bfloat16" in applied["dtypes"]["compute"]
    facts = read_json(tmp_path / "fp8" / "facts.json")
    assert facts["capability"] >= [8, 9], "the describe job of a built-in task, which only fp8 needs"
    bf16 = train("features", tmp_path / "bf16", precision="bf16", epochs=2, **words)
    assert 1e-4 < distance(fp8, bf16) < 0.5, "another arithmetic, and still training the same thing"
    assert fp8.train["loss"] == pytest.approx(bf16.train["loss"], rel=0.1)
    # The scores are those of the weights in fp32, which is what `load` gives back: a plain model without torchao.
    model = paceline.load(tmp_path / "fp8")
    assert {type(layer).__name__ for layer in model.modules()} >= {"Linear"}
    x, y = load_task("features", words, None).test_data()[:2]
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(torch.as_tensor(x)), torch.as_tensor(y).long())
    assert fp8.test["loss"] == pytest.approx(float(loss), rel=1e-4)


@with_torchao
def test_every_layer_that_fits_the_first_and_the_last_too(tmp_path: Path) -> None:
    applied = train(PRODUCTS, tmp_path / "run", precision="fp8", steps=10)["applied"]
    assert applied["fp8"] == {"linear_layers": 2, "converted": 2, "ran": 2, "share": 1.0}


def test_fp8_is_refused_before_the_launch_where_no_layer_fits(tmp_path: Path) -> None:
    """392 x 10: decided by a describe job, in one sentence. Without torchao there is another sentence."""
    with pytest.raises(BadInput, match="fp8-has-layers" if TORCHAO else "torchao-installed") as caught:
        paceline.run("mnist-convnet", out=tmp_path / "run", precision="fp8", device="cuda")
    assert len(caught.value.problems) == 1 and not (tmp_path / "run").exists()
