"""`kernel=fused` in a real run: the same weights as torch's layers train, and the record says what computed them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import paceline

RUN: dict[str, Any] = {
    "steps": 20,
    "batch": 32,
    "threads": 1,
    "device": "cpu",
    "precision": "fp64",
    "optimizer": "sgd",
    "lr": 0.05,
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> paceline.Record:
    return paceline.run("mnist-convnet", out=tmp_path_factory.mktemp("torch") / "run", **RUN)


@pytest.mark.parametrize(
    "how", [{}, {"sharding": "ddp", "on": "1x2"}, {"remat": "selective"}], ids=["alone", "ddp", "remat"]
)
def test_the_weights_are_those_of_torchs_layers(plain: paceline.Record, how: dict[str, Any], tmp_path: Path) -> None:
    ours = paceline.run("mnist-convnet", out=tmp_path / "run", kernel="fused", **RUN, **how)
    assert ours.completed, ours.why
    assert (plain["applied"]["kernel"], ours["applied"]["kernel"]) == ("torch", "fused")
    assert ours["applied"]["fused"] == {"layers": 2, "of": 2}
    theirs, found = load_file(plain["weights"]), load_file(ours["weights"])
    assert list(theirs) == list(found)
    for name, values in theirs.items():
        assert float((found[name] - values).norm() / values.norm()) < 1e-12, name
    assert ours.test["loss"] == pytest.approx(plain.test["loss"], rel=1e-12)


def test_a_model_without_such_a_convolution_is_refused(tmp_path: Path) -> None:
    record = paceline.run("lenet", out=tmp_path / "run", kernel="fused", steps=1, device="cpu")
    assert record.why is not None and "conv1 is 5x5; use kernel=torch" in record.why
