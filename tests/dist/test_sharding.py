"""Every way to spread a model trains the model of one process: in fp64 to 1e-12, with clipping, accumulation and a short last batch.

`sharding_ranks.py` does the trainings, once for this file; here is what must hold of each.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import paceline
from adds_up import explained

pytestmark = pytest.mark.timeout(420)

RANKS = Path(__file__).parent / "sharding_ranks.py"
GATE = 1e-12
SIZES = (2, 3)
PARITY = (
    "none-sgd", "ddp-sgd", "ddp-adamw", "ddp-options", "fsdp-sgd", "fsdp-adamw", "fsdp-fused", "fsdp-one-unit", "fsdp-nested",
)  # fmt: skip
Seen = dict[str, Any]


def traffic(messages: float, given: float, sent: float) -> Any:
    return pytest.approx(
        {"messages_per_step": messages, "bytes_per_step": given, "sent_bytes_per_step": sent}, rel=1e-12
    )


def summed(size: int) -> float:
    """What a ring sends of a byte that is given to a sum over ranks: 1 at two ranks, 4/3 at three."""
    return 2 * (size - 1) / size


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Seen]]:
    """By world size, for each rank."""
    folder = tmp_path_factory.mktemp("sharding")
    done = subprocess.run([sys.executable, RANKS, folder], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    found = {
        size: [json.loads((folder / f"{size}-{rank}.json").read_text()) for rank in range(size)] for size in (1, *SIZES)
    }
    broken = [row["broke"] for ranks in found.values() for rank in ranks for row in rank.values() if "broke" in row]
    assert not broken, broken[0]
    return found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", PARITY)
def test_the_model_of_one_process(seen: dict[int, list[Seen]], case: str, size: int) -> None:
    for rank in seen[size]:
        row = rank[case]
        assert row["distance"] <= GATE
        assert row["loss"][1] == pytest.approx(row["loss"][0], rel=1e-12)
        assert row["clip"][1]["steps"] == row["clip"][0]["steps"] == 6
        assert row["clip"][1]["longest"] == pytest.approx(row["clip"][0]["longest"], rel=1e-12)
        assert row["unused"], "a layer nobody uses keeps no gradient: weight decay must not touch it"
        assert row["moved"] > 0.01, "a training that did nothing would be equal as well"
        assert row["applied"]["sharding"] == case.partition("-")[0]
        assert row["cut"] == (row["of"] if case.startswith("fsdp") else 0), (
            "after an evaluation all parameters are parts again"
        )
        assert row["met"] > 0 and row["sent"] >= row["met"] and row["communication_s"] > 0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", ["none-compile", "ddp-compile", "none-export"])
def test_a_graph_trains_the_model_of_one_process(seen: dict[int, list[Seen]], case: str, size: int) -> None:
    for rank in seen[size]:
        row = rank[case]
        assert row["applied"]["graph"] == case.partition("-")[2] and row["applied"]["graph_of"] == "model"
        assert row["distance"] <= GATE and row["moved"] > 0.01
        assert row["loss"][1] == pytest.approx(row["loss"][0], rel=1e-12)


@pytest.mark.parametrize("case", ["ddp-sgd", "fsdp-sgd", "fsdp-adamw"])
def test_alone_it_is_the_same_code(seen: dict[int, list[Seen]], case: str) -> None:
    row = seen[1][0][case]
    assert row["distance"] <= GATE and row["unused"] and row["traffic"] == {} and row["sent"] == 0
    assert row["cut"] == (row["of"] if case.startswith("fsdp") else 0)


@pytest.mark.parametrize("size", SIZES)
def test_options_are_read_back_from_the_objects(seen: dict[int, list[Seen]], size: int) -> None:
    rank = seen[size][0]
    plain, options = rank["ddp-sgd"]["exchange"], rank["ddp-options"]["exchange"]
    assert (plain["bucket_mb"], plain["bucket_view"], plain["compress"]) == (25.0, False, "none")
    assert options["bucket_view"] is True and options["bucket_mb"] == pytest.approx(1e-4, rel=0.01)
    assert plain["find_unused_parameters"] is True and plain["broadcast_buffers"] is False
    assert len(plain["buckets"]) == 1 < len(options["buckets"]) and sum(plain["buckets"]) == sum(options["buckets"])
    assert [rank[case]["exchange"]["reshard"] for case in ("fsdp-sgd", "fsdp-adamw")] == [True, False]
    assert [rank[case]["exchange"]["units"] for case in ("fsdp-sgd", "fsdp-one-unit")] == [3, 1]
    assert rank["fsdp-nested"]["exchange"]["units"] == 4, "a unit all of whose parameters are in others is none"
    assert [rank[case]["recomputed"] for case in ("ddp-adamw", "fsdp-fused", "fsdp-sgd")] == [3, 3, None]
    assert [rank[case]["applied"]["remat"] for case in ("ddp-adamw", "fsdp-fused", "fsdp-sgd")] == [
        "selective",
        "full",
        "none",
    ]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("case", "tolerance"), [("ddp-bf16", 5e-3), ("ddp-fp16", 1e-3)])
def test_compressed_gradients_are_rounded_and_smaller(
    seen: dict[int, list[Seen]], case: str, tolerance: float, size: int
) -> None:
    """bf16 has 8 bits, fp16 11. Messages are a quarter of fp64's."""
    row, plain = seen[size][0][case], seen[size][0]["ddp-sgd"]
    assert GATE < row["distance"] < tolerance
    assert row["exchange"]["compress"] == case.removeprefix("ddp-")
    buckets, others = sum(plain["exchange"]["buckets"]), 4 * row["of"] + 8
    assert plain["traffic"]["bytes_per_step"] == buckets + others
    assert row["traffic"]["bytes_per_step"] == buckets / 4 + others
    assert row["traffic"]["sent_bytes_per_step"] == pytest.approx((buckets / 4 + others) * summed(size), rel=1e-12)


@pytest.mark.parametrize("size", SIZES)
def test_local_sgd_is_what_it_says(seen: dict[int, list[Seen]], size: int) -> None:
    """6 steps in 2 epochs: averaged after 2 and 5, and before the two evaluations, which are no part of a step."""
    for rank in seen[size]:
        row = rank["local"]
        assert row["distance"] <= GATE
        assert row["exchange"] == {"sync_every": 2, "averaged": 4} and row["met"] == 4, "and two sums of an epoch"
        given = 8 * row["numbers"] * 2 / 6
        assert row["traffic"] == traffic(2 / 6, given, given * summed(size))
        smallest, largest = rank["local-idle"]["one"]
        assert smallest == largest, "ranks without a sample in the last batch end with the same model"


@pytest.mark.parametrize("size", SIZES)
def test_fsdp_holds_a_part(seen: dict[int, list[Seen]], size: int) -> None:
    """Parameters and optimizer state, within 10 % of the world's share, on every rank."""
    for rank in seen[size]:
        whole, part = rank["large"]["none"]["sizes"], rank["large"]["fsdp"]["sizes"]
        for name in ("parameters", "optimizer"):
            assert part[name] == pytest.approx(whole[name] / size, rel=0.1), name
        assert rank["large"]["ddp"]["sizes"] == whole


@pytest.mark.parametrize("size", SIZES)
def test_what_is_sent_is_counted(seen: dict[int, list[Seen]], size: int) -> None:
    """The formulas of docs/sharding.md, in fp64. FSDP cuts the first dimension; 3 outputs are cut as if they were 4 on two ranks."""
    row = seen[size][0]["large"]
    numbers, tensors = row["none"]["numbers"], row["none"]["tensors"]
    given = {"none": 8 * (numbers + tensors + 1), "ddp": 8 * numbers + 4 * tensors + 8}
    assert row["none"]["traffic"] == traffic(1, given["none"], given["none"] * summed(size))
    assert row["ddp"]["traffic"] == traffic(3, given["ddp"], given["ddp"] * summed(size))

    def up(rows: int) -> int:
        return -(-rows // size) * size

    units = 4 * (up(64) * 64 + up(64))
    rest = up(64) * 7 + up(64) + up(3) * 64 + up(3)
    gradients, words = units + rest, tensors + 1
    once, twice = (units + rest) / size, (2 * units + rest) / size
    for name, messages, fetched in (("kept", 5 + 5 + 1, once), ("fsdp", 9 + 5 + 1, twice)):
        sent = fetched * (size - 1) + gradients * (size - 1) / size + words * summed(size)
        assert row[name]["traffic"] == traffic(messages, 8 * (fetched + gradients + words), 8 * sent), name


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("word", "dtype", "tolerance"), [("bf16", "bfloat16", 0.1), ("fp16", "float16", 0.02)])
def test_fsdps_policy_is_the_format_asked_for(
    seen: dict[int, list[Seen]], word: str, dtype: str, tolerance: float, size: int
) -> None:
    row = seen[size][0][f"fsdp-{word}"]
    assert row["precision"] == word and row["dtypes"] == {"parameters": ["float32"], "compute": [dtype]}
    assert row["exchange"]["policy"] == [dtype] and row["exchange"]["statistics"] == 3, (
        "BatchNorm keeps its numbers in fp32"
    )
    assert row["state"] == ["torch.float32"]
    assert row["distance"] < tolerance, "beside autocast, which may round at other places"
    assert row["loss"][1] == pytest.approx(row["loss"][0], rel=tolerance)


@pytest.mark.parametrize("size", [1, *SIZES])
@pytest.mark.parametrize(("word", "tolerance"), [("bf16", 0.03), ("fp16", 0.004)])
def test_updates_in_half_formats_are_those_of_one_process(
    seen: dict[int, list[Seen]], word: str, tolerance: float, size: int
) -> None:
    """In three micro-batches, clipped, with a loss that counts tokens, and layers that some micro-batches or nobody uses."""
    for rank in seen[size]:
        row = rank[f"half-{word}"]
        assert row["moved"] > 0.01
        assert max(row[name] for name in ("accumulate", "none", "ddp", "fsdp")) < tolerance
        clips = row["clip"].values()
        assert {clip["steps"] for clip in clips} == {3}
        assert [clip["longest"] for clip in clips] == pytest.approx(
            [row["clip"]["alone"]["longest"]] * 5, rel=tolerance
        )
        skipped = [scaler and scaler["skipped_steps"] for scaler in row["scaler"].values()]
        assert skipped == [None if word == "bf16" else 0] * 5, "what one process can update with, all can"


@pytest.mark.parametrize("size", SIZES)
def test_a_sequence_that_is_gone_through_is_no_unit(seen: dict[int, list[Seen]], size: int) -> None:
    row = seen[size][0]["fsdp-walked"]
    assert row["distance"] <= GATE and row["exchange"]["units"] == 1 and row["moved"] > 0.01


@pytest.mark.parametrize("size", SIZES)
def test_weights_in_bf16_are_summed_in_fp32(seen: dict[int, list[Seen]], size: int) -> None:
    row = seen[size][0]["bf16-pure"]
    assert row["dtypes"] == [["bfloat16"]] * 3
    assert max(row["distance"]) < 0.01, "a rounding here and there: bf16 has 8 bits"
    assert row["bytes"] == 4 * row["numbers"] + 4 * row["tensors"] + 8


@pytest.mark.parametrize("size", SIZES)
def test_what_cannot_be_done_is_said(seen: dict[int, list[Seen]], size: int) -> None:
    said = [rank["refusals"] for rank in seen[size]]
    assert all(row == said[0] for row in said)
    assert "torch cannot cut this model (fully_shard doesn't support scalar parameters" in said[0]["scalar"]
    assert "sharding=ddp: the model has a table with sparse=True" in said[0]["sparse"]
    assert (
        f"has 1 of the 33 samples, too few for {size} ranks, and FSDP cannot train where a rank has none"
        in said[0]["empty"]
    )
    assert "sharding=ddp: torch's DDP cannot tell which parameters this model's outputs depend on" in said[0]["boxed"]
    for name in ("bypassed", "later", "penalty"):
        assert said[0][name].startswith(
            "mismatch: sharding=fsdp: the model uses parameters of a unit without calling that unit as a whole"
        )
    assert said[0]["walked"].startswith("mismatch: asked for remat=full, but no unit of the model is called as a whole")
    assert "micro-batches on rank 0 and" in said[0]["uneven"] and "accumulate=4" in said[0]["uneven"]


def test_the_record_of_a_run(tmp_path: Path) -> None:
    """Messages in the middle of both passes leave parts that add up, and the memory is that of a part."""
    record = paceline.run(
        "transformer", out=tmp_path / "run", sharding="fsdp", on="1x2", device="cpu", threads=1, steps=4, num_train=128, num_test=16,
        layers=3, width=32, clip=0.5,
    )  # fmt: skip
    assert record.completed, record.why
    explained(record)
    assert record["applied"]["sharding"] == "fsdp" and record["applied"]["exchange"]["units"] == 3
    whole = 4 * record["num_parameters"]
    sizes = record["memory"]["sizes"]
    assert sizes["parameters"] == pytest.approx(whole / 2, rel=0.1) and sizes["gradients"] == sizes["parameters"]
    assert sizes["optimizer"] == pytest.approx(whole, rel=0.1), "adam's two, halved"
    assert record["traffic"] == record["ranks"][0]["traffic"]
    given, sent = (record.metric(f"traffic.{name}") for name in ("bytes_per_step", "sent_bytes_per_step"))
    assert given is not None and sent is not None and given / 2 < sent < given, (
        "of gradients that are summed and cut two ranks send a half, of fetched parts and of the count what they give"
    )
    assert record["traffic"]["messages_per_step"] == 4 + 3 + 4 + 1 + 1, (
        "fetched, fetched again, returned; the count; the norm"
    )
    assert sum(tensor.numel() for tensor in paceline.load(record.run_dir).parameters()) == record["num_parameters"]
