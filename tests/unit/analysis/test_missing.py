"""Why not twice as fast? SpokenMissing time with answers computed by hand, and the sentence that may be said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.analysis.attribution import cost, shares
from paceline.commands.report import findings
from paceline.records.record import parse
from paceline.records.split import TRAINING
from paceline.records.study import CellRecord
from paceline.report.words.spoken import SpokenMissing, SpokenStudy
from unit.analysis.made import SHAKE, cell, parted, study

Parts = Mapping[str, float]
# 10 s on one rank; ideally 5 s on two.
ALONE: Parts = {"data": 1.0, "forward": 3.0, "backward": 5.0, "optimizer": 1.0}


def _cell(on: str, *ranks: Parts, n: int = 5, shake: Sequence[float] = SHAKE, **changes: Any) -> CellRecord:
    """`n` runs of these ranks, all their parts shaken alike; the settings may be changed with `spec`."""
    spec = {"on": on, "threads": 1, **changes.pop("spec", {})}
    planned = changes.pop("planned", True)
    runs = [
        parted(*({name: s * by for name, s in parts.items()} for parts in ranks), seed=i, spec=dict(spec), **changes)
        for i, by in enumerate(shake[:n])
    ]
    return cell(on, runs, settings={"on": on}, planned=planned)


def _found(*cells: CellRecord) -> SpokenStudy:
    return findings(study(*cells, swept=["on"]))


def _missing(*cells: CellRecord) -> SpokenMissing:
    (row,) = _found(*cells).missing
    return row


def _means(row: SpokenMissing) -> dict[str, float]:
    return {name: share.mean for name, share in row.parts.items()}


def test_by_hand() -> None:
    """8.2 s instead of 5 s: 3.2 of 8.2 is missing. Data: 0.7 s instead of 0.5 s, and so on."""
    each = {"data": 0.7, "forward": 1.6, "backward": 2.6, "optimizer": 0.5, "waiting": 0.6, "transfer": 2.2}
    row = _missing(_cell("1x1", ALONE), _cell("1x2", each, each))
    assert row.missing.mean == pytest.approx(3.2 / 8.2) and row.speedup == pytest.approx(10 / 8.2) and row.ideal == 2
    assert _means(row) == pytest.approx({
        "data": 0.2 / 8.2, "forward": 0.1 / 8.2, "backward": 0.1 / 8.2, "optimizer": 0, "waiting": 0.6 / 8.2, "transfer": 2.2 / 8.2,
        "other": 0,
    })  # fmt: skip
    assert row.ideal_s == pytest.approx(5.0, rel=0.01)
    assert row.cause == "transfer" and row.words.startswith(
        "Mostly transfer. 1x2 trains 1.22x as fast as 1x1 instead of 2x: 39 % [39, 39] of its time is missing: transfer 27 % [27, 27], "
        "waiting 7 % [7, 7], compute 2 % [2, 2] (forward 1 %, backward 1 %), data 2 % [2, 2] (n = 5)."
    )
    assert "(n = 5)." in row.words


def test_ranks_are_averaged_before_anything_else() -> None:
    """Rank 1 computes 2 s longer; rank 0 waits as long: one second each, on the mean."""
    fast = {"forward": 5.0, "waiting": 2.0, "transfer": 1.0}
    slow = {"forward": 7.0, "waiting": 0.0, "transfer": 1.0}
    row = _missing(_cell("1x1", {"forward": 10.0}), _cell("1x2", fast, slow))
    assert _means(row) == pytest.approx({"forward": 1 / 8, "waiting": 1 / 8, "transfer": 1 / 8, "other": 0})
    assert row.words.startswith("No single cause stands out.") and row.cause is None


def test_time_no_part_explains_is_missing_as_other() -> None:
    row = _missing(_cell("1x1", ALONE), _cell("1x2", {"forward": 5.0}, {"forward": 5.0}, training_s=8.0))
    assert row.parts["other"].mean == pytest.approx(3 / 8) and row.words.startswith("Mostly time in no part.")


def test_unequal_samples_are_compared_a_sample_at_a_time() -> None:
    """Twice the samples in 16 s is as fast as the same samples in 8 s."""
    twice = {"forward": 10.0, "transfer": 6.0}
    row = _missing(_cell("1x1", {"forward": 10.0}), _cell("1x2", twice, twice, samples=2000))
    assert row.missing.mean == pytest.approx(3 / 8) and row.parts["transfer"].mean == pytest.approx(3 / 8)
    assert row.parts["forward"].mean == pytest.approx(0) and row.ideal_s == pytest.approx(10.0, rel=0.01)


def test_weak_scaling() -> None:
    """A batch per rank: every rank does 10 s of work and there are two of them, so 2000 samples ideally take 10 s again."""
    weak = {"batch_per_rank": 32, "batch": None}
    each = {"forward": 12.0, "transfer": 1.0}
    row = _missing(
        _cell("1x1", {"forward": 10.0}, spec=weak), _cell("1x2", each, each, samples=2000, spec={**weak, "batch": 64})
    )
    assert _means(row) == pytest.approx({"forward": 2 / 13, "transfer": 1 / 13, "other": 0})
    assert (
        row.words.startswith("Mostly compute.")
        and "a rank takes longer than in 1x1 for a batch of the same size" in row.words
    )


def test_missing_is_one_minus_the_efficiency_of_the_scaling_table() -> None:
    each = {"data": 0.7, "forward": 3.6, "transfer": 2.0}
    found = _found(_cell("1x1", ALONE), _cell("1x2", each, each))
    efficiency = found.scaling[1].efficiency
    assert efficiency is not None and found.missing[0].missing.mean == pytest.approx(1 - efficiency)
    assert found.missing[0].speedup == pytest.approx(found.scaling[1].speedup)


def test_several_topologies_each_against_the_baseline() -> None:
    four = {"forward": 2.5, "transfer": 2.5}
    found = _found(
        _cell("1x1", {"forward": 10.0}), _cell("1x2", {"forward": 5.0}, {"forward": 5.0}), _cell("2x2", *[four] * 4)
    )
    assert [row.label for row in found.missing] == ["1x2", "2x2"]
    assert found.missing[1].ideal == 4 and found.missing[1].missing.mean == pytest.approx(0.5)
    assert found.headline.endswith("Why 2x2 is 2.00x as fast and not 4x: mostly transfer.")


def test_nothing_is_missing() -> None:
    each = {"forward": 4.9}
    row = _missing(_cell("1x1", {"forward": 10.0}), _cell("1x2", each, each))
    assert row.words == "1x2 trains 2.04x as fast as 1x1, ideal 2x: nothing is missing (-2 % [-2, -2], n = 5)."
    assert row.cause is None


def test_not_shown_to_be_missing_is_not_nothing() -> None:
    each = {"forward": 5.1}
    row = _missing(_cell("1x1", {"forward": 10.0}), _cell("1x2", each, each, shake=(1.0, 1.1, 0.9, 1.05, 0.97)))
    assert "nothing is shown to be missing (" in row.words and row.missing.mean > 0 and row.cause is None


def test_what_was_won_back_is_said() -> None:
    each = {"data": 0.5, "forward": 1.5, "backward": 2.5, "optimizer": 0.25, "transfer": 3.25}
    row = _missing(_cell("1x1", ALONE), _cell("1x2", each, each))
    assert row.parts["optimizer"].mean == pytest.approx(-0.25 / 8)
    assert "; won back: optimizer 3 % [3, 3] (n = 5)." in row.words
    assert sum(_means(row).values()) == pytest.approx(row.missing.mean)


def test_small_parts_are_summed_as_the_rest() -> None:
    each = {"data": 0.55, "forward": 1.55, "backward": 2.5, "optimizer": 0.5, "transfer": 2.9}
    row = _missing(_cell("1x1", ALONE), _cell("1x2", each, each))
    assert "transfer 36 % [36, 36], the rest 1 % [1, 1] (n = 5)." in row.words and "data" not in row.words


def test_computing_is_told_in_one_with_its_parts() -> None:
    each = {"data": 0.5, "forward": 2.5, "backward": 3.5, "optimizer": 0.5, "transfer": 1.0}
    row = _missing(_cell("1x1", ALONE), _cell("1x2", each, each))
    assert "compute 25 % [25, 25] (forward 12 %, backward 12 %), transfer 12 % [12, 12]" in row.words
    assert row.cause == "compute" and "a smaller batch a rank may not take proportionally less time" in row.words


def test_no_reason_is_given_for_computing_that_is_not_shown_to_be_missing() -> None:
    """5.2 s of computing instead of 5.0 s on the mean, but above or below it from run to run."""
    runs = [
        parted(*[{"forward": forward, "transfer": 4.0}] * 2, seed=i, spec={"on": "1x2", "threads": 1})
        for i, forward in enumerate((5.9, 4.6, 5.8, 4.5, 5.2))
    ]
    row = _missing(_cell("1x1", {"forward": 10.0}, shake=[1.0] * 5), cell("1x2", runs, settings={"on": "1x2"}))
    assert "forward 2 % [-" in row.words and "Computing" not in row.words and row.cause == "transfer"


def test_fewer_threads_a_rank_are_the_first_reason() -> None:
    each = {"forward": 8.0}
    row = _missing(_cell("1x1", {"forward": 10.0}, spec={"threads": 2}), _cell("1x2", each, each))
    assert (
        "A rank of 1x2 has threads=1 to compute with, one of 1x1 2." in row.words and "smaller batch" not in row.words
    )


def test_the_largest_is_named_only_if_it_is_ahead_in_the_runs() -> None:
    """Transfer is larger than waiting on the mean, by less than it varies from run to run."""
    base = _cell("1x1", {"forward": 10.0})
    talk = [(1.6, 1.4), (1.4, 1.6), (1.7, 1.3), (1.3, 1.7), (1.8, 1.3)]
    ranks = [{"forward": 5.0, "transfer": transfer, "waiting": waiting} for transfer, waiting in talk]
    runs = [parted(each, each, seed=i, spec={"on": "1x2"}) for i, each in enumerate(ranks)]
    row = _missing(base, cell("1x2", runs, settings={"on": "1x2"}))
    assert row.parts["transfer"].mean > row.parts["waiting"].mean
    assert row.words.startswith("No single cause stands out. 1x2 trains")


def test_a_cause_below_half_is_not_called_most() -> None:
    each = {"data": 1.5, "forward": 5.0, "waiting": 1.4, "transfer": 2.1}
    row = _missing(_cell("1x1", {"forward": 10.0}), _cell("1x2", each, each))
    assert row.words.startswith("Above all transfer.") and row.cause == "transfer"


def test_one_repeat_has_figures_without_an_interval_and_says_so() -> None:
    each = {"forward": 5.0, "transfer": 3.1}
    row = _missing(_cell("1x1", {"forward": 10.0}, n=1), _cell("1x2", each, each, n=1))
    assert (
        row.missing.mean == pytest.approx(3.1 / 8.1) and row.missing.low is None and row.parts["transfer"].low is None
    )
    assert "38 % of its time is missing: transfer 38 % (n = 1: no interval)." in row.words
    assert (
        row.words.startswith("No single cause stands out (it takes 3 paired runs to name one).") and row.cause is None
    )


def test_runs_that_no_plan_paired_have_no_interval() -> None:
    each = {"forward": 5.0, "transfer": 3.0}
    row = _missing(_cell("1x1", {"forward": 10.0}, planned=False), _cell("1x2", each, each, n=3, planned=False))
    assert row.missing.mean == pytest.approx(3 / 8, rel=0.01) and row.missing.low is None and row.missing.n == 3
    assert "(n = 3, not paired: no interval)" in row.words


def test_only_repeats_that_both_have_are_paired() -> None:
    each = {"forward": 5.0, "transfer": 3.0}
    short = _cell("1x2", each, each)
    short = cell("1x2", [None, *(record for _, record in short.records[1:])], settings={"on": "1x2"})
    assert _missing(_cell("1x1", {"forward": 10.0}), short).missing.n == 4


def test_a_slow_rank_is_a_cause_of_its_own() -> None:
    """Half of what one slow rank costs is its own computing and half the other's waiting: as parts, a tie."""
    fast, slow = {"forward": 5.0, "waiting": 3.0, "transfer": 0.2}, {"forward": 8.0, "waiting": 0.0, "transfer": 0.2}
    late = [{"last": 2, "behind": 2, "of": 100, "lag_s": -3.0}, {"last": 98, "behind": 98, "of": 100, "lag_s": 3.0}]
    row = _missing(_cell("1x1", {"forward": 10.0}), _cell("1x2", fast, slow, late=late, steps=100))
    assert row.cause == "a slow rank" and row.words.startswith("Mostly one slow rank.")
    assert (
        "Rank 1 on node1 came 30 ms [30, 30] a step after the others, and last in 98 % [98, 98] of the steps"
        in row.words
    )
    assert _means(row)["waiting"] == pytest.approx(_means(row)["forward"])


def test_a_smaller_topology_is_not_asked_and_no_parts_give_no_answer() -> None:
    one, two = {"forward": 10.0}, {"forward": 6.0, "transfer": 1.0}
    assert _found(_cell("1x2", two, two), _cell("1x1", one)).missing == ()
    bare = [parse({**record.plain, "ranks": []}) for _, record in _cell("1x2", two, two).records]
    found = _found(_cell("1x1", one), cell("1x2", bare, settings={"on": "1x2"}))
    assert found.missing == () and len(found.scaling) == 2


def test_a_study_of_something_else_has_no_missing_time() -> None:
    each = {"forward": 5.0, "transfer": 3.0}
    assert findings(study(_cell("1x1", ALONE), _cell("1x2", each, each), swept=["cell"])).missing == ()


seconds = st.floats(0.0, 1e4)
parts = st.dictionaries(st.sampled_from(TRAINING), seconds, min_size=1)


@given(
    base=st.lists(parts, min_size=1, max_size=3), ranks=st.lists(parts, min_size=1, max_size=4), rest=seconds,
    samples=st.tuples(st.integers(1, 10**6), st.integers(1, 10**6)), growth=st.floats(1, 64),
)  # fmt: skip
def test_the_shares_add_up_to_what_is_missing(
    base: list[Parts], ranks: list[Parts], rest: float, samples: tuple[int, int], growth: float
) -> None:
    slowest = max(sum(rank.values()) for rank in ranks)
    first, second = parted(*base, samples=samples[0]), parted(*ranks, samples=samples[1], training_s=slowest + rest)
    before, after = cost(first), cost(second)
    if before is None or after is None:
        assert 0.0 in (first["time"]["training_s"], second["time"]["training_s"])
        return
    t_base, t_cell = (record["time"]["training_s"] / record["samples"] for record in (first, second))
    found = shares(before, after, growth)
    scale = max(1.0, t_base / t_cell)
    assert sum(found.values()) == pytest.approx(1 - t_base / growth / t_cell, abs=1e-9 * scale)
