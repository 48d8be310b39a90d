"""Ranks of a BatchNorm model see different samples and still score one model, reconciled by the recorded rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from safetensors.torch import load_file

import paceline
from adds_up import explained


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


def test_a_trained_model_is_scored_without_a_training_run(tmp_path: Path) -> None:
    """Two ranks scored it; here one process does, with no world, sharding or optimizer: the same figures, every sample once."""
    from paceline.worker.trained import load_trained

    record = train(tmp_path, "mean")
    total = load_trained(record.run_dir).evaluate()
    means = total.means()
    assert total.num == record.test["evaluated"] == 101
    assert means["accuracy"] == pytest.approx(record.test["accuracy"], abs=1e-12)
    assert means["loss"] == pytest.approx(record.test["loss"], rel=1e-6)
