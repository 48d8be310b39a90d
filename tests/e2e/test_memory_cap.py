"""A table that does not fit a rank's memory cap fails there in a sentence, and trains where it is cut over two ranks with the same cap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from safetensors import safe_open

import paceline
from adds_up import explained

CAP = "130M"
# 2.5 million rows of 16 numbers are 160 MB: more than the cap, and 80 MB in each of two halves.
TABLE: dict[str, Any] = {
    "tables": 1, "rows": 2_500_000, "dim": 16, "sparse": True, "optimizer": "sgd", "lr": 0.5, "steps": 20, "num_train": 2_000,
    "num_test": 500, "threads": 1, "memory_cap": CAP,
}  # fmt: skip


def test_what_does_not_fit_one_rank_fits_two(tmp_path: Path) -> None:
    whole = paceline.run("recommender", out=tmp_path / "whole", **TABLE)
    assert (whole.outcome, whole["kind"]) == ("failed", "memory"), whole.why
    assert str(whole.why).startswith(
        "rank 0 ran out of memory (it wanted 160.0 MB more): memory_cap=130M is all it may take"
    )
    halves = paceline.run("recommender", out=tmp_path / "halves", on="1x2", sharding="embedding", **TABLE)
    assert halves.completed, halves.why
    explained(halves)
    assert halves["applied"]["memory_cap"] == 130 << 20
    assert halves["applied"]["exchange"]["table_split"] == "rows"
    for rank in halves["ranks"]:
        assert 80e6 < rank["memory"]["sizes"]["parameters"] < rank["memory"]["peak_bytes"] < 90e6
    assert halves["num_parameters"] == 2_500_000 * 16 + 20 * 64 + 64 + 64 * 2 + 2
    with safe_open(halves["weights"], "pt") as file:
        assert file.get_slice("tables.0.weight").get_shape() == [2_500_000, 16]
