"""Ranks of a BatchNorm model see different samples and still score one model, reconciled by the recorded rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import paceline
from adds_up import explained
from paceline.base.errors import BadInput


def train(tmp_path: Path, buffers: str) -> paceline.Record:
    record = paceline.run(
        "features", on="1x2", out=tmp_path / buffers, steps=20, buffers=buffers, num_train=1000, num_test=101, threads=1
    )
    assert record.completed, record.why  # ranks with different weights or buffers fail the run
    explained(record)
    return record


def test_buffers_follow_the_rule(tmp_path: Path) -> None:
    mean, first = train(tmp_path, "mean"), train(tmp_path, "rank0")
    assert (mean["applied"]["buffers"], first["applied"]["buffers"]) == ("mean", "rank0")
    left, right = load_file(mean["weights"]), load_file(first["weights"])
    name = next(key for key in left if key.endswith("running_mean"))
    assert not left[name].equal(right[name]), "the two rules must differ where the ranks' samples do"
    assert left["linear1.weight"].equal(right["linear1.weight"]), "running statistics take no part in training"
    assert mean.test["evaluated"] == 101


def test_one_sample_for_batch_norm_is_explained(tmp_path: Path) -> None:
    record = paceline.run("features", on="1x2", out=tmp_path / "run", batch=32, epochs=1, num_train=33, num_test=10)
    assert record.outcome == "failed"
    assert "BatchNorm" in str(record.why) and "choose another batch" in str(record.why)


def test_loaded_model_scores_what_the_record_says(tmp_path: Path) -> None:
    """`paceline.load` gives back the very model: scored here, in this process, on the same test set."""
    import torch

    from paceline.worker.tasks.features import Features

    record = train(tmp_path, "mean")
    model = paceline.load(record.run_dir)
    x, y = Features(num_train=1000, num_test=101).test_data()
    with torch.no_grad():
        accuracy = (model(x).argmax(dim=1) == y).double().mean().item()
    assert accuracy == pytest.approx(record.test["accuracy"], abs=1e-9)


@pytest.mark.parametrize("more", [{"on": "1x1"}, {"on": "1x2", "sync_every": 2}])
def test_a_run_that_stops_in_the_middle_leaves_what_was_scored(more: dict[str, Any], tmp_path: Path) -> None:
    """Ranks go back to statistics and parameters of their own after such an evaluation, but not after the one that ends the run: with
    those they would end with different models, and the run would fail."""
    from paceline.worker.trained import load_trained

    record = paceline.run(
        "features", out=tmp_path / "run", steps=60, evaluate_every=5, stop_at="target", target=0.01, num_train=1000, num_test=101,
        threads=1, **more,
    )  # fmt: skip
    assert record.completed, record.why
    explained(record)
    assert record["stopped"] == {"by": "target", "iteration": 5, "epoch": 0}
    assert [row["iteration"] for row in record["evaluations"]] == [5]
    assert (record.steps, record.samples, record.train["seen"], record.train["of"]) == (5, 5 * 32, 5 * 32, 1000)
    assert record.time["to_target_s"] == record["evaluations"][0]["t_s"] == record["history"][0]["t_s"]
    means = load_trained(record.run_dir).evaluate().means()
    assert means["accuracy"] == pytest.approx(record.test["accuracy"], abs=0 if more["on"] == "1x1" else 1e-12)
    assert means["loss"] == pytest.approx(record.test["loss"], rel=0 if more["on"] == "1x1" else 1e-6)


def test_the_best_weights_score_what_the_record_says(tmp_path: Path) -> None:
    from paceline.worker.trained import load_trained

    record = paceline.run(
        "features", on="1x2", out=tmp_path / "run", epochs=9, evaluate_every=5, stop_at="plateau:3", keep="best", lr=0.05, num_train=200,
        num_test=301, threads=1,
    )  # fmt: skip
    assert record.completed, record.why
    found = {row["iteration"]: row["test"]["accuracy"] for row in record["evaluations"]}
    best = record["best"]
    assert best["value"] == max(found.values()) == found[best["iteration"]] > record.test["accuracy"]
    assert list(found)[-4] == best["iteration"] and record["stopped"]["by"] == "plateau"
    assert Path(best["weights"]).name == "best.safetensors"
    moved = record.run_dir.rename(tmp_path / "moved")
    for weights, wanted in (("best", best["value"]), ("last", record.test["accuracy"])):
        means = load_trained(moved, weights=weights).evaluate().means()
        assert means["accuracy"] == pytest.approx(wanted, abs=1e-12), weights
    assert paceline.load(moved, weights="best").training is False
    (moved / "checkpoints" / "best.safetensors").unlink()
    with pytest.raises(BadInput, match="best weights of this run were removed"):
        paceline.load(moved, weights="best")


def test_best_weights_that_nobody_kept(tmp_path: Path) -> None:
    record = train(tmp_path, "mean")
    with pytest.raises(BadInput, match="a run with keep=best leaves the best as well"):
        paceline.load(record.run_dir, weights="best")
    with pytest.raises(BadInput, match="must be 'last' or 'best'"):
        paceline.load(record.run_dir, weights="first")


def test_a_trained_model_is_scored_without_a_training_run(tmp_path: Path) -> None:
    """Two ranks scored it; here one process does, with no world, sharding or optimizer: the same figures, every sample once."""
    from paceline.worker.trained import load_trained

    record = train(tmp_path, "mean")
    total = load_trained(record.run_dir).evaluate()
    means = total.means()
    assert total.num == record.test["evaluated"] == 101
    assert means["accuracy"] == pytest.approx(record.test["accuracy"], abs=1e-12)
    assert means["loss"] == pytest.approx(record.test["loss"], rel=1e-6)
