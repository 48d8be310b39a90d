"""`paceline profile` as a user has it: what it prints and leaves, that its figures add up, and that none of them passes for a timing."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from conftest import Command
from paceline.commands import report, runs, show
from paceline.records.record import load

TASKS = Path(__file__).parent / "tasks"
SMALL = ("steps=20", "num_train=1000", "num_test=1000", "threads=1")


def by_module(profile: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in profile["modules"]}


def test_training(paceline: Command, tmp_path: Path) -> None:
    done = paceline("profile", "features", *SMALL, "--json", "--out", "run")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    profile = record["profile"]
    assert (profile["pass"], profile["num_batches"], profile["batch"], profile["device"]) == ("training", 20, 32, "cpu")
    assert record["spec"]["epochs"] is None

    modules = by_module(profile)
    assert list(modules) == ["(model)", "linear1", "norm", "activation", "linear2"], "in the model's order"
    assert {row["calls"] for row in modules.values()} == {20}
    assert sum(row["own_forward_s"] for row in modules.values()) == pytest.approx(
        profile["model"]["forward_s"], rel=0.05
    )
    assert profile["explained"] == pytest.approx(1, abs=0.05)
    assert modules["(model)"]["forward_s"] == pytest.approx(profile["model"]["forward_s"], rel=0.05)
    inside = sum(row["own_backward_s"] for row in modules.values())
    assert all(row["own_backward_s"] > 0 for name, row in modules.items() if name != "(model)")
    assert inside + profile["outside"]["backward_s"] == pytest.approx(profile["model"]["backward_s"])
    assert profile["types"]["Linear"]["calls"] == 40

    clean = profile["clean"]
    assert set(clean["parts"]) == {"data", "forward", "loss", "backward", "optimizer"}
    assert sum(clean["parts"].values()) == pytest.approx(clean["total_s"])
    assert clean["data_share"] + clean["model_share"] == pytest.approx(1)
    assert profile["slowed"] == pytest.approx(profile["traced_s"] / clean["total_s"])
    self_times = [row["self_s"] for row in profile["operators"]]
    assert self_times == sorted(self_times, reverse=True)
    assert {phase["name"] for phase in profile["tree"]["children"]} >= {"forward", "backward", "optimizer"}

    # It can be read as a profile and as nothing else.
    for name in ("time", "throughput", "train", "test", "memory", "steady", "weights_hash"):
        assert record[name] is None, name
    row = runs.summary(load(tmp_path / "run"), tmp_path)
    assert (row["profile"], row["training_s"], row["score"]) == ("training", None, None)
    assert runs.compare(tmp_path / "run", tmp_path / "run")["metrics"] == {}

    # The files, and the page again from what is on disk.
    events = json.loads(gzip.decompress((tmp_path / "run" / profile["trace"]).read_bytes()))["traceEvents"]
    assert {"module::linear1|Linear", "phase::backward", "aten::addmm"} <= {event.get("name") for event in events}
    read = paceline("report", "run", "--html", "again.html")
    assert read.returncode == 0 and "linear1" in read.stdout and "batch assembly" in read.stdout
    assert (tmp_path / "again.html").read_text() == (tmp_path / "run" / "profile.html").read_text()
    assert show.plain(report.read(tmp_path / "run"))["profile"] == profile, "what report --json prints"


def test_inference_has_the_report_s_calls_and_bytes(paceline: Command, tmp_path: Path) -> None:
    """As often as report A, but for the number of batches; sample by sample, as it fed its model."""
    done = paceline("profile", "features", *SMALL, "loader=dataset", "--inference", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert "profile.html" in done.stdout and "rank_00000.json.gz" in done.stdout
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    profile, types = record["profile"], record["profile"]["types"]
    assert {name: row["calls"] for name, row in types.items()} == {"Linear": 40, "BatchNorm1d": 20, "ReLU": 20}
    assert (types["Linear"]["bytes"], types["ReLU"]["bytes"]) == (20 * 6656, 20 * 4096)
    assert profile["by_name"]["linear1"]["bytes"] == 20 * 4096
    assert set(profile["clean"]["parts"]) == {"data", "forward"}
    assert record["applied"]["data"]["test"] == "dataset"
    assert {row["backward_s"] for row in profile["modules"]} == {0}
    assert profile["explained"] == pytest.approx(1, abs=0.05)


def test_a_user_s_model_with_a_layer_used_twice(paceline_here: Command) -> None:
    """`paceline profile` is `paceline run` with a setting; 9 batches of 8 from 32 samples start over."""
    done = paceline_here("run", f"{TASKS / 'odd_model.py'}:Shared", "profile=training", "steps=9", "batch=8", "--json")
    assert done.returncode == 0, done.stderr
    modules = by_module(json.loads(done.stdout)["profile"])
    assert {name: row["calls"] for name, row in modules.items()} == {"(model)": 9, "layer": 18, "head": 9}
    assert modules["(model)"]["own_backward_s"] > 0, "its own relu"


def test_a_model_that_breaks_is_a_sentence(paceline_here: Command) -> None:
    done = paceline_here("profile", f"{TASKS / 'odd_model.py'}:Breaks", "steps=3")
    assert done.returncode == 1
    assert re.search(r"this layer is not written yet \(odd_model.py, line \d+, in forward\)", done.stderr)
    assert "Traceback" not in done.stderr + done.stdout


def test_what_cannot_be_profiled_is_refused(paceline_here: Command) -> None:
    """Before anything is started, and the command's own word may not be given twice."""
    done = paceline_here("profile", "features", "epochs=2", "on=1x2")
    assert done.returncode == 2
    assert "give steps=N" in done.stderr and "looks into one process" in done.stderr
    assert paceline_here("profile", "features", "profile=inference").returncode == 2
