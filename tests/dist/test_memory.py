"""`messages=memory`: sums through memory that ranks share are right to the last bit, and nobody waits for a rank that is gone.

`memory_ranks.py` does the sums, once for this file; here is what must hold of them. Then whole runs: messages, pin, and data that a
machine holds once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import paceline
from adds_up import explained

pytestmark = pytest.mark.timeout(420)

RANKS = Path(__file__).parent / "memory_ranks.py"
COUNTED = str(Path(__file__).parent / "counted.py")
SIZES = (2, 3, 4)
Seen = dict[str, Any]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Seen]]:
    """By world size, for each rank."""
    folder = tmp_path_factory.mktemp("memory")
    done = subprocess.run([sys.executable, RANKS, folder], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    found = {size: [json.loads((folder / f"{size}-{rank}.json").read_text()) for rank in range(size)] for size in SIZES}
    broken = [rank["broke"] for ranks in found.values() for rank in ranks if "broke" in rank]
    assert not broken, broken[0]
    return found


@pytest.mark.parametrize("size", SIZES)
def test_sums_are_those_of_the_ranks_in_order(seen: dict[int, list[Seen]], size: int) -> None:
    for rank in seen[size]:
        row = rank["sums"]
        assert all(one["exact"] for one in row["sums"]), row["sums"]
        assert all(one["from_gloo"] < (1e-12 if "64" in one["dtype"] else 1e-5) for one in row["sums"])
        assert row["carried"] == "memory"
        num, nbytes, by_ring, by_backend = row["sent"]
        assert (num, by_backend) == (len(row["sums"]), 0) and row["num"] == num + 1, (
            "the first sum is the board's own trial"
        )
        assert nbytes == sum(one["num"] * (8 if "64" in one["dtype"] else 4) for one in row["sums"])
        assert by_ring == nbytes, "a rank writes its message once, and the others read it"
        assert rank["in_a_row"] == 3_000 * sum(range(size))
    assert len({rank["sums"]["digest"] for rank in seen[size]}) == 1, "every rank has the same bits"


@pytest.mark.parametrize("size", SIZES)
def test_a_short_word_goes_through_memory_and_is_the_same_to_the_bit(seen: dict[int, list[Seen]], size: int) -> None:
    for rank in seen[size]:
        words = rank["words"]
        assert words["wrong"] == [] and words["long"]
        assert words["through_memory"] == words["after_long"] == 3 * size, "the long one went through the backend"


@pytest.mark.parametrize("size", SIZES)
def test_messages_are_read_where_they_were_written(seen: dict[int, list[Seen]], size: int) -> None:
    """By whoever sums them by itself, beside ranks that make an ordinary sum; through memory, in pieces, and through gloo."""
    for rank in seen[size]:
        assert rank["met"] == [[]] * 6
        assert rank["met_sent"] == [2_440, 0]


@pytest.mark.parametrize("size", SIZES)
def test_names_of_scores_are_agreed_on_once_and_again_when_they_change(seen: dict[int, list[Seen]], size: int) -> None:
    mean = (size + 1) / 2
    for rank in seen[size]:
        names = rank["names"]
        assert names["same"] == {"a": mean} and names["changed"] == {"a": mean, "b": mean}


@pytest.mark.parametrize("size", SIZES)
def test_gradients_are_those_through_gloo(seen: dict[int, list[Seen]], size: int) -> None:
    for rank in seen[size]:
        memory, gloo = rank["exchanges"]["memory"], rank["exchanges"]["gloo"]
        assert memory["sparse"] and gloo["sparse"]
        for ours, theirs in zip(memory["rows"], gloo["rows"], strict=True):
            assert ours["unused.weight"] is None and ours["unused.bias"] is None, "no rank used it: no gradient"
            assert ours["first.weight"] is not None, "one rank used it: everybody has its gradient"
            for name, numbers in ours.items():
                if numbers is not None:
                    flat = [x for row in numbers for x in (row if isinstance(row, list) else [row])]
                    wanted = [x for row in theirs[name] for x in (row if isinstance(row, list) else [row])]
                    assert flat == pytest.approx(wanted, rel=1e-12, abs=1e-300)
                else:
                    assert theirs[name] is None
    assert all(rank["exchanges"]["memory"] == seen[size][0]["exchanges"]["memory"] for rank in seen[size])


@pytest.mark.parametrize("size", SIZES)
def test_a_message_of_another_size_is_a_sentence(seen: dict[int, list[Seen]], size: int) -> None:
    assert seen[size][0]["sizes"] == (
        "mismatch: rank 0 gave 8 numbers of 4 bytes to a sum over ranks, and rank 1 9 numbers of 4 bytes: they do not compute the "
        "same thing"
    )
    assert all(rank["sizes"].startswith("mismatch: ") for rank in seen[size])


@pytest.mark.parametrize("size", SIZES)
def test_nobody_waits_for_ever(seen: dict[int, list[Seen]], size: int) -> None:
    for rank in seen[size][1:]:
        assert rank["late"] == "peer: another rank went away (timed out after 0.3 s of waiting for other ranks)"
        assert rank["dying"] == "peer: another rank went away (connection closed by rank 0: its process is over)"
        assert rank["shared"] == ["/memfd:paceline (deleted)"], "it has no name on any disk"


def test_training_through_memory_is_training(tmp_path: Path) -> None:
    """Local SGD averages through it too. Two ranks have one order of summation: there the weights are gloo's, bit for bit."""
    runs = [
        paceline.run(
            "mnist-convnet", on="1x2", out=tmp_path / messages, steps=20, threads=1, sync_every=2, messages=messages
        )
        for messages in ("memory", "backend")
    ]  # fmt: skip
    for run, messages in zip(runs, ("memory", "backend"), strict=True):
        assert run.completed, run.why
        explained(run)
        assert run["applied"]["messages"] == messages and run["applied"]["backend"] == "gloo"
    assert runs[0]["traffic"] == runs[1]["traffic"]
    assert runs[0]["weights_hash"] == runs[1]["weights_hash"]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux binds processes to cores")
def test_pinned_ranks_have_cores_of_their_own(tmp_path: Path) -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core cannot be shared out")
    run = paceline.run(COUNTED, on="1x2", out=tmp_path / "run", steps=2, threads=1, pin="cores", batch=4)
    assert run.completed, run.why
    assert run["applied"]["pin"] == "cores"
    assert [rank["cores"] for rank in run["ranks"]] == [cores[:1], cores[1:2]]


@pytest.mark.alone
def test_a_machine_holds_data_once(tmp_path: Path) -> None:
    """Four ranks with 123 MB of features and with hardly any: what all of them hold grows by the data once, not four times. With nothing
    beside them: of torch's own pages each has a share, which other processes that have torch make smaller."""
    runs = {
        num: paceline.run(
            "features", on="1x4", out=tmp_path / str(num), steps=2, threads=1, num_train=num, num_test=100
        )
        for num in (60_000, 100)
    }
    for run in runs.values():
        assert run.completed, run.why
        assert all(rank["memory"]["data_shared"] for rank in run["ranks"])
    data = runs[60_000]["memory"]["sizes"]["data"] - runs[100]["memory"]["sizes"]["data"]
    held = [sum(rank["memory"]["pss_bytes"] or 0 for rank in runs[num]["ranks"]) for num in (60_000, 100)]
    assert data > 100e6
    assert 0.9 * data < held[0] - held[1] < 1.3 * data, "four copies would be 4 times the data"


@pytest.mark.parametrize("held", [False, True])
def test_model_and_step_need_the_same_on_one_rank_as_on_two(held: bool, tmp_path: Path) -> None:
    """The same batch a rank. One rank alone has the data set from its allocator, two have it from memory they share: the peaks are apart
    by the data set, and what is compared is not. A task that holds on to its data has it on every rank, and that is measured."""
    (tmp_path / "own.py").write_text(HOLDS)
    task: Any = str(tmp_path / "own.py") if held else "mnist-convnet"
    memory = {
        on: paceline.run(task, on=on, out=tmp_path / on, steps=4, threads=1, batch_per_rank=256)["memory"]
        for on in ("1x1", "1x2")
    }
    one, two = memory["1x1"], memory["1x2"]
    noise = 200_000 + 0.04 * one["step_bytes"]  # and messages have buffers
    assert abs(one["step_bytes"] - two["step_bytes"]) < noise, memory
    data = one["sizes"]["data"]
    assert data > 10e6 and abs(one["parts"]["data"] - data) < 200_000
    assert abs(two["parts"]["data"] - (data if held else 0)) < 200_000
    assert abs(one["peak_bytes"] - two["peak_bytes"] - (0 if held else data)) < noise
    for row in memory.values():
        assert sum(row["parts"].values()) == row["peak_bytes"] == row["step_bytes"] + row["parts"]["data"]
        assert all(part >= 0 for part in row["parts"].values())


HOLDS = """
import torch

class Own:
    def model(self):
        return torch.nn.Sequential(torch.nn.Linear(512, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def train_data(self):
        self.x = torch.arange(10_000 * 512.0).reshape(-1, 512) / 5e6
        self.y = torch.arange(10_000) % 10
        return self.x, self.y

    def test_data(self):
        return self.x[:500], self.y[:500]

    def forward(self, model, batch):
        return model(batch[0])
"""

OWN = """
import os
import numpy as np
import torch

class Own:
    def __init__(self, how: str = "same"):
        self.how = how

    def model(self):
        return torch.nn.Linear(3, 2)

    def _data(self):
        x = np.full((40, 3), np.nan) if self.how == "nan" else np.arange(120.0).reshape(40, 3)
        if self.how == "other":
            x = x + int(os.environ.get("PACELINE_RANK", "0"))
        return x.astype("float32"), np.arange(40) % 2

    def train_data(self):
        return self._data()

    test_data = train_data

    def forward(self, model, batch):
        return model(torch.nan_to_num(batch[0]))
"""


@pytest.mark.parametrize("how", ["same", "nan", "other"])
def test_users_data_is_compared_and_shared(how: str, tmp_path: Path) -> None:
    """NaN is equal to itself here: it is what the file holds."""
    (tmp_path / "own.py").write_text(OWN)
    run = paceline.run(str(tmp_path / "own.py"), on="1x2", out=tmp_path / "run", steps=2, threads=1, batch=4, how=how)
    if how == "other":
        assert run.outcome == "failed" and run["kind"] == "data", run.why
        assert run.why is not None and "train_data() gave other numbers on rank 1" in run.why
        return
    assert run.completed, run.why
    assert [rank["memory"]["data_shared"] for rank in run["ranks"]] == [True, True]
