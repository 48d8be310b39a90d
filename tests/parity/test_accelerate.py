"""wrap=accelerate computes what wrap=none computes, in fp64 to 1e-12 per tensor; bf16 is bf16; what it cannot do it says.

Compared at the same number of ranks: BatchNorm sees other batches on two ranks than on one, whoever wraps the model.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import paceline
from paceline.base.errors import BadInput
from paceline.worker.world.seed import seed_everything

pytest.importorskip("accelerate")

UNEVEN = Path(__file__).parent / "uneven.py"
GATE = 1e-12

# 157 samples: in batches of 32 the last has 29; in batches of 22 it has 3, one for each of three ranks.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "own-count": (str(UNEVEN), {"optimizer": "adamw", "weight_decay": 0.1, "lr": 0.01, "epochs": 2}),
    "one-sample-each": (str(UNEVEN), {"optimizer": "sgd", "momentum": 0.9, "lr": 0.1, "batch": 22, "epochs": 2}),
    "batch-norm": ("features", {"num_train": 200, "num_test": 50, "epochs": 2, "optimizer": "sgd", "lr": 0.05}),
}


def train(task: str, out: Path, **settings: Any) -> paceline.Record:
    record = paceline.run(task, out=out, **{"threads": 1, "device": "cpu", **settings})
    assert record.completed, record.why
    return record


def distances(one: paceline.Record, other: paceline.Record) -> dict[str, float]:
    """||difference|| / ||tensor|| of every tensor, running statistics included."""
    left, right = load_file(one["weights"]), load_file(other["weights"])
    assert left.keys() == right.keys()
    return {
        name: float((left[name].double() - right[name].double()).norm() / left[name].double().norm().clamp_min(1e-300))
        for name in left
    }


def distance(one: paceline.Record, other: paceline.Record) -> float:
    return max(distances(one, other).values())


@pytest.mark.parametrize(
    ("case", "ranks"),
    [
        ("own-count", 1),
        ("own-count", 2),
        ("one-sample-each", 3),
        ("batch-norm", 2),
        ("batch-norm", 3),
    ],
)
def test_accelerate_trains_the_same_model(case: str, ranks: int, tmp_path: Path) -> None:
    task, settings = CASES[case]
    ours, theirs = (
        train(task, tmp_path / wrap, wrap=wrap, on=f"1x{ranks}", precision="fp64", **settings)
        for wrap in ("none", "accelerate")
    )
    assert distance(ours, theirs) <= GATE
    assert theirs.train == pytest.approx(ours.train, rel=1e-10) and theirs.test == pytest.approx(ours.test, rel=1e-10)
    assert ours["applied"]["wrap"] == "none" and "accelerate" not in ours["applied"]
    applied = theirs["applied"]
    assert applied["wrap"] == "accelerate" and applied["world_size"] == ranks and applied["precision"] == "fp64"
    assert applied["dtypes"] == {"parameters": ["float64"], "compute": ["float64"]}
    assert applied["accelerate"]["distributed_type"] == ("NO" if ranks == 1 else "MULTI_CPU")
    assert applied["optimizer"] == ours["applied"]["optimizer"], "the real one, not its wrapper"
    parts = theirs.time["parts"]
    assert parts["backward"] > 0 and parts["step"] is None
    assert (parts["transfer"] is None) == (ranks == 1), "from DDP's last bucket on there is nothing to compute"
    if ranks > 1:
        assert parts["transfer"] > 0 and parts["waiting"] >= 0 and theirs.time["hidden_s"] >= 0


def test_adam_makes_a_step_of_rounding_where_the_gradient_is_nothing(tmp_path: Path) -> None:
    """BatchNorm takes away whatever a bias in front of it adds, so that bias has a true gradient of 0 and a computed one of about
    1e-17, which differs with the order of summation; Adam divides it by its own size. Seen at 3 ranks: 7e-10 in the bias and 1e-10
    in the running mean that it shifts, and 3e-16 in all else. With SGD, above, the gate holds for them too."""
    task, settings = "features", {"num_train": 200, "num_test": 50, "epochs": 2, "optimizer": "adam"}
    ours, theirs = (
        train(task, tmp_path / wrap, wrap=wrap, on="1x3", precision="fp64", **settings)
        for wrap in ("none", "accelerate")
    )
    far = distances(ours, theirs)
    assert max(far.pop("linear1.bias"), far.pop("norm.running_mean")) < 1e-8
    assert max(far.values()) <= GATE, far


def test_torchrun_and_variables_that_ask_for_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """accelerate takes what is not said from the environment; the spec says everything."""
    task, settings = CASES["own-count"]
    ours = train(task, tmp_path / "none", wrap="none", on="1x2", precision="fp64", **settings)
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_DYNAMO_BACKEND", "EAGER")
    theirs = train(
        task, tmp_path / "wrap", wrap="accelerate", launcher="torchrun", on="1x2", precision="fp64", **settings
    )
    assert distance(ours, theirs) <= GATE


def test_decaying_learning_rates_keep_the_record_of_the_first(tmp_path: Path) -> None:
    record = train("features", tmp_path / "run", wrap="accelerate", num_train=64, num_test=8, epochs=2, lr_decay=1.0)
    assert record["applied"]["optimizer"]["lr"] == record.spec["lr"]
    assert [row["lr"] for row in record["history"]] == [record.spec["lr"], record.spec["lr"] / 2]


def _by_hand(steps: int, *, batch: int, lr: float) -> dict[str, torch.Tensor]:
    """Mixed precision without accelerate: torch's autocast around the forward, the loss in fp32 outside of it.

    SGD is written out: stepping torch's own imports its compiler, which writes into this process's environment.
    """
    spec = importlib.util.spec_from_file_location("uneven", UNEVEN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    task = module.Uneven()
    seed_everything(123)
    model = task.model()
    x, y = task.train_data()
    for step in range(steps):
        part = (x[step * batch : (step + 1) * batch], y[step * batch : (step + 1) * batch])
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            outputs = task.forward(model, part)
        total, count = task.loss(outputs.float(), part)
        (total / count).backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= lr * parameter.grad
    return model.state_dict()


def test_bf16_is_bf16(tmp_path: Path) -> None:
    """The record says so, the weights are those of autocast by hand (bf16 rounds at 4e-3), and not those of fp32."""
    words = {"wrap": "accelerate", "shuffle": False, "optimizer": "sgd", "lr": 0.5, "steps": 4}
    half = train(str(UNEVEN), tmp_path / "bf16", precision="bf16", **words)
    full = train(str(UNEVEN), tmp_path / "fp32", precision="fp32", **words)
    assert half["applied"]["precision"] == "bf16" and half["applied"]["accelerate"]["mixed_precision"] == "bf16"
    assert half["applied"]["dtypes"] == {"parameters": ["float32"], "compute": ["bfloat16"]}
    assert full["applied"]["precision"] == "fp32" and full["applied"]["dtypes"]["compute"] == ["float32"]
    assert distance(half, full) > 1e-4
    weights = load_file(half["weights"])
    for name, values in _by_hand(4, batch=32, lr=0.5).items():
        assert float((weights[name] - values).norm() / values.norm()) < 1e-6, name


def test_bf16_on_two_ranks_trains_one_model(tmp_path: Path) -> None:
    record = train(
        "features", tmp_path / "run", wrap="accelerate", precision="bf16", on="1x2", num_train=200, num_test=50, steps=5
    )
    assert "bfloat16" in record["applied"]["dtypes"]["compute"] and record["applied"]["precision"] == "bf16"
    assert record.test["evaluated"] == 50


ODD = """
import torch

class Box:
    def __init__(self, value): self.value = value

class Odd:
    def __init__(self, kind: str = "boxed"): self.kind = kind
    def model(self): return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
    def _data(self, num): return torch.randn(num, 4, generator=torch.Generator().manual_seed(num)), torch.arange(num) % 2
    def train_data(self): return self._data(33)
    def test_data(self): return self._data(9)
    def forward(self, model, batch):
        if self.kind == "boxed":
            return Box(model(batch[0]))
        with torch.autocast("cpu", torch.bfloat16, enabled=self.kind == "casts"):
            return model(batch[0])
    def loss(self, outputs, batch):
        value = outputs.value if isinstance(outputs, Box) else outputs.float()
        return torch.nn.functional.cross_entropy(value, batch[1])
    def score(self, outputs, batch): return {}
"""


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"kind": "boxed", "on": "1x2"}, "torch's DDP cannot tell which parameters this model's outputs depend on"),
        ({"kind": "casts"}, "asked for precision fp32, but the model's layers gave bfloat16"),
        ({"kind": "stays", "precision": "bf16"}, "asked for precision bf16, but the model's layers gave float32"),
        ({"kind": "stays", "on": "1x2"}, "the last batch of an epoch has 1 of the 33 samples, too few for 2 ranks"),
    ],
    ids=["boxed-outputs", "half-not-asked-for", "half-not-got", "a-rank-without-a-sample"],
)
def test_what_it_cannot_do_is_one_sentence(settings: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    words = {"batch": 32, "epochs": 1} if settings["kind"] == "stays" else {"batch": 11, "steps": 2}
    record = paceline.run(
        str(tmp_path / "odd.py"), out=tmp_path / "run", wrap="accelerate", device="cpu", threads=1, **words, **settings
    )
    assert (record.outcome, record["kind"]) == ("failed", "mismatch")
    assert record.why is not None and sentence in record.why and "\n" not in record.why


def test_the_short_batch_is_no_reason_where_it_is_never_reached(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(ODD)
    train(str(tmp_path / "odd.py"), tmp_path / "run", kind="stays", wrap="accelerate", on="1x2", batch=32, steps=1)


def test_a_device_from_the_environment_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "meta")
    record = paceline.run("features", out=tmp_path / "run", wrap="accelerate", device="cpu", steps=1, num_train=64)
    assert record["kind"] == "mismatch" and "accelerate trains on meta, not on cpu" in (record.why or "")


def test_fp16_on_a_cpu_is_refused() -> None:
    with pytest.raises(BadInput, match="accelerate-drops-fp16"):
        paceline.run("features", wrap="accelerate", precision="fp16", device="cpu")
