"""Graphs on one GPU: a captured step makes the same model as an eager one, whatever moves in it; what cannot be captured says why.

Never in CI: `pytest -m gpu tests/gpu` on a machine that has one. Several GPUs cannot be had here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import paceline
from adds_up import explained
from paceline.base.errors import BadInput

BRANCHING = str(Path(__file__).parent / "tasks" / "branching.py")
# 1,000 samples in batches of 64: 15 whole ones and a short one, four times.
SMALL: dict[str, Any] = {"num_train": 1000, "num_test": 500, "batch": 64, "epochs": 4}
CLOSE = 1e-9
RATE = 1e-6  # where torch reads the learning rate as float32: its fused SGD


def train(folder: Path, **asked: Any) -> paceline.Record:
    record = paceline.run("features", out=folder, **{**SMALL, **asked})
    assert record.completed, record.why
    explained(record)
    return record


Train = Callable[..., paceline.Record]


@pytest.fixture(scope="module")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """The eager run that a graph is compared with, trained once for all tests that ask for the same."""
    done: dict[str, paceline.Record] = {}

    def call(**asked: Any) -> paceline.Record:
        key = str(sorted(asked.items()))
        if key not in done:
            done[key] = train(tmp_path_factory.mktemp("eager") / "run", **asked)
        return done[key]

    return call


def same(one: paceline.Record, other: paceline.Record, tolerance: float) -> None:
    for split in ("train", "test"):
        ours, theirs = one.plain[split], other.plain[split]
        assert abs(ours["loss"] - theirs["loss"]) < tolerance, (split, ours, theirs)
        assert ours["accuracy"] == theirs["accuracy"]
    weights, others = load_file(one["weights"]), load_file(other["weights"])
    for name, values in weights.items():
        far = (values.double() - others[name].double()).norm() / others[name].double().norm().clamp(min=1e-3)
        assert float(far) < max(tolerance, 1e-6), name  # a bias before BatchNorm moves by rounding alone


@pytest.mark.parametrize(
    ("asked", "tolerance"),
    [
        ({"optimizer": "adam"}, CLOSE),
        ({"optimizer": "adamw", "schedule": "onecycle"}, CLOSE),
        ({"optimizer": "adam", "clip": 0.5, "schedule": "cosine"}, CLOSE),
        ({"optimizer": "rmsprop", "momentum": 0.5, "schedule": "exponential", "schedule_factor": 0.5}, CLOSE),
        ({"optimizer": "sgd", "momentum": 0.9, "nesterov": True, "lr": 0.01, "schedule": "step"}, RATE),
    ],
)
def test_a_captured_step_trains_as_an_eager_one(
    asked: dict[str, Any], tolerance: float, eager: Train, tmp_path: Path
) -> None:
    graph = train(tmp_path / "graph", graph="captured", precision="fp64", **asked)
    plain = eager(precision="fp64", **asked)
    same(graph, plain, tolerance)
    applied, found, parts = graph["applied"], graph["graph"], graph.time["parts"]
    assert (applied["graph"], applied["graph_of"], applied["device"]) == ("captured", "step", "cuda")
    assert (found["graphs"], found["eager_steps"]) == (1, 3 + 4), "three first steps, and four short batches"
    assert graph["steps"] == 64
    assert parts["compile"] == found["compile_s"] > 0 and parts["step"] > 0
    assert parts["forward"] is parts["backward"] is parts["optimizer"] is None, "nothing inside is told apart"
    if "clip" in asked:
        assert applied["clip"]["steps"] == plain["applied"]["clip"]["steps"] > 0
        assert applied["clip"]["longest"] == pytest.approx(plain["applied"]["clip"]["longest"], rel=CLOSE)
    assert [row["lr"] for row in graph["history"]] == [row["lr"] for row in plain["history"]]


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "bf16-pure"])
def test_formats(precision: str, eager: Train, tmp_path: Path) -> None:
    graph = train(tmp_path / "graph", graph="captured", precision=precision)
    plain = eager(precision=precision)
    assert graph["applied"]["precision"] == precision
    assert graph["applied"]["dtypes"] == plain["applied"]["dtypes"]
    far = {"fp32": 1e-4, "tf32": 1e-2, "bf16": 2e-2, "bf16-pure": 5e-2}[precision]
    assert abs(graph.test["loss"] - plain.test["loss"]) < far


def test_running_statistics_and_memory_are_those_of_real_steps(tmp_path: Path) -> None:
    """Neither the warm-up nor the recording trains: BatchNorm has counted each of the 64 steps once."""
    graph = train(tmp_path / "graph", graph="captured")
    assert int(load_file(graph["weights"])["norm.num_batches_tracked"]) == 64
    memory = graph["memory"]
    assert memory["parts"]["activations"] is None and memory["peak_bytes"] > memory["parts"]["parameters"] > 0


def test_what_branches_on_a_number_is_not_captured(tmp_path: Path) -> None:
    record = paceline.run(BRANCHING, out=tmp_path / "run", graph="captured", steps=20, batch=32)
    assert (record.outcome, record.kind) == ("failed", "mismatch")
    assert "the step cannot be recorded as one CUDA graph" in str(record.why)
    assert "branching.py, line 16, in forward" in str(record.why)


def test_too_few_steps_are_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="step-graph-has-steps"):
        paceline.run("features", out=tmp_path / "run", graph="captured", steps=3, num_train=1000, num_test=500)


def test_what_python_draws_is_not_captured(tmp_path: Path) -> None:
    """From torch's generator of the host: a recording would hold the first number."""
    task = tmp_path / "drawing.py"
    task.write_text(Path(BRANCHING).read_text().replace("y.mean() > 0", "torch.rand(()) > 2"))
    record = paceline.run(str(task), out=tmp_path / "run", graph="captured", steps=20, batch=32)
    assert (record.outcome, record.kind) == ("failed", "mismatch")
    assert "draws random numbers or counts in Python" in str(record.why)


@pytest.mark.parametrize("of", ["model", "step"])
def test_compiled_on_a_gpu(of: str, eager: Train, tmp_path: Path) -> None:
    graph = train(tmp_path / "graph", graph="compile", graph_of=of, precision="fp64")
    same(graph, eager(precision="fp64"), CLOSE)
    found = graph["graph"]
    assert (graph["applied"]["graph"], graph["applied"]["graph_of"]) == ("compile", of)
    assert (found["graphs"], found["recompiles"], found["eager_steps"]) == ((2, 1, 0) if of == "model" else (1, 0, 5))
    assert found["breaks"] == 0 and graph.time["parts"]["compile"] == found["compile_s"]
    if of == "step":
        assert found["captured"], "a compiled step is recorded too"


IMAGES: dict[str, Any] = {"batch": 64, "epochs": 3, "precision": "fp64"}


@pytest.fixture(scope="module")
def eager_images(tmp_path_factory: pytest.TempPathFactory) -> paceline.Record:
    return paceline.run("cifar-cnn", out=tmp_path_factory.mktemp("eager") / "run", **IMAGES)


@pytest.mark.parametrize("graph", ["compile", "captured"])
def test_a_graph_on_a_gpu_fetches_and_augments_its_own_samples(
    graph: str, eager_images: paceline.Record, tmp_path: Path
) -> None:
    """The same pixels: 1,000 images in batches of 64 with a short last one, three times, in another order each time."""
    other = eager_images
    one = paceline.run("cifar-cnn", out=tmp_path / "graph", graph=graph, graph_of="step", **IMAGES)
    for record in (one, other):
        assert record.completed, record.why
        explained(record)
    assert abs(one.train["loss"] - other.train["loss"]) < RATE and abs(one.test["loss"] - other.test["loss"]) < RATE


def test_exported_on_a_gpu(eager: Train, tmp_path: Path) -> None:
    graph = train(tmp_path / "graph", graph="export", precision="fp64")
    same(graph, eager(precision="fp64"), CLOSE)
    assert graph["applied"]["graph"] == "export"
