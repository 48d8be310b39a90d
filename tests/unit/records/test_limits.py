"""What held one run back: the mean over ranks, the largest group, the rank that came last. All answers computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.records.limits import bound, lateness, mean_hidden, mean_parts, step_shares, stragglers, training_parts
from paceline.records.record import Record, parse
from paceline.report.words.held_back import bound_name
from unit.analysis.made import parted, run

# 8 s of training each; rank 1 computes 2 s longer, and rank 0 waits for it.
FAST = {
    "data": 1.0,
    "forward": 2.0,
    "backward": 2.0,
    "optimizer": 0.0,
    "waiting": 2.0,
    "transfer": 0.5,
    "evaluation": 0.5,
}
SLOW = {
    "data": 1.0,
    "forward": 3.0,
    "backward": 3.0,
    "optimizer": 0.0,
    "waiting": 0.0,
    "transfer": 0.5,
    "evaluation": 0.5,
}


def test_parts_are_the_mean_over_ranks_and_only_those_of_training() -> None:
    record = parted({**FAST, "startup": 9.0, "shutdown": 1.0, "compile": None}, SLOW)
    assert mean_parts(record) == {
        "data": 1.0, "forward": 2.5, "backward": 2.5, "waiting": 1.0, "transfer": 0.5, "optimizer": 0.0, "evaluation": 0.5,
    }  # fmt: skip


def test_what_the_parts_leave_of_the_training_time_is_other() -> None:
    assert training_parts(parted(FAST, SLOW, training_s=8.25))["other"] == pytest.approx(0.25)


@pytest.mark.parametrize(
    "record",
    [
        run(8.0),  # no ranks at all
        parted(FAST, {}, training_s=8.0),  # a rank that has not told
        parse({**parted(FAST, SLOW).plain, "time": None}),  # a profile
    ],
)
def test_where_parts_are_missing_nothing_is_made_up(record: Record) -> None:
    assert mean_parts(record) == {} == training_parts(record) == step_shares(record)
    assert bound(record) is None


def test_a_part_that_one_rank_has_counts_as_zero_on_the_other() -> None:
    assert mean_parts(parted({**FAST, "compile": 3.0}, SLOW))["compile"] == 1.5


def test_shares_are_of_the_steps_without_evaluation_and_logging() -> None:
    shares = step_shares(parted(FAST, SLOW))
    assert shares == pytest.approx({"data": 1 / 7.5, "compute": 5 / 7.5, "waiting": 1 / 7.5, "transfer": 0.5 / 7.5})


@pytest.mark.parametrize(
    ("seconds", "name"),
    [
        ({"data": 6.0}, "input-bound"),
        ({"forward": 6.0}, "compute-bound"),
        ({"compile": 6.0}, "compute-bound"),
        ({"step": 6.0, "forward": None}, "compute-bound"),
        ({"waiting": 6.0}, "waiting for a rank"),
        ({"transfer": 6.0}, "bound by transfer"),
        ({"evaluation": 60.0, "data": 6.0}, "input-bound"),  # evaluation is no part of a step
    ],
)
def test_the_largest_group_is_what_a_run_is_bound_by(seconds: dict[str, float | None], name: str) -> None:
    small = {"data": 0.1, "forward": 0.2, "waiting": 0.1, "transfer": 0.1, "logging": 0.1}
    found = bound(parted({**small, **seconds}, {**small, **seconds}))
    assert found is not None and bound_name(found.group) == name


def test_many_parts_of_computing_are_one_group() -> None:
    """No single part is larger than data, but computing is: the run is not called input-bound."""
    found = bound(parted({"data": 3.0, "forward": 2.0, "backward": 2.0, "optimizer": 1.0}))
    assert found is not None and bound_name(found.group) == "compute-bound" and found.share == pytest.approx(5 / 8)


def test_a_tie_is_no_answer() -> None:
    assert bound(parted({"data": 2.0, "forward": 2.0})) is None


def test_one_rank_waits_for_nobody_and_two_must_say_for_how_long() -> None:
    alone = {"data": 3.0, "forward": 1.0}
    assert bound(parted(alone)) is not None
    assert bound(parted(alone, alone)) is None  # the step could not tell waiting and transfer from computing


def _late(last: int, lag_s: float, *, of: int = 100, behind: int | None = None) -> dict[str, float]:
    return {"last": last, "of": of, "lag_s": lag_s, "behind": last if behind is None else behind}


def _two(first: Any, second: Any, **changes: Any) -> Record:
    return parted(FAST, SLOW, late=[first, second], **{"training_s": 8.0, "steps": 80, **changes})


def test_a_straggler_is_named_by_rank_and_host() -> None:
    (found,) = stragglers(_two(_late(3, 0.01), _late(97, 1.6)))
    assert (found.rank, found.host, found.last) == (1, "node1", 0.97)
    assert found.step_s == pytest.approx(0.02) and found.share == pytest.approx(0.2)  # 1.6 s over 80 steps, of 8 s


@pytest.mark.parametrize(
    ("behind", "lag_s", "named"),
    [
        (67, 0.4, True),  # just enough of both: 2/3, and 5 % of 8 s
        (75, 4.0, True),  # two collectives a step, slow before the first: late to the second by chance
        (55, 4.0, False),  # a hiccup: much lag, but no more often late than the others
        (100, 0.39, False),  # always late, by a hair
    ],
)
def test_the_rule_has_two_halves(behind: int, lag_s: float, named: bool) -> None:
    assert bool(stragglers(_two(_late(0, -lag_s), _late(50, lag_s, behind=behind)))) is named


def test_two_slow_ranks_do_not_hide_each_other() -> None:
    """Ranks 2 and 3 of one machine sleep alike: neither is always last, both come after the others."""
    quick, slow = _late(0, -8 / 3, behind=0), _late(50, 8 / 3, behind=100)
    found = stragglers(parted(FAST, FAST, SLOW, SLOW, late=[quick, quick, slow, slow], training_s=8.0, steps=80))
    assert [rank.rank for rank in found] == [2, 3]


def test_a_step_with_several_collectives_says_so() -> None:
    """Through DDP a step has two: the count of samples, and the gradients."""
    first, second = (lateness(_two(None, _late(90, 2.0, of=of)))[0] for of in (82, 162))
    assert (first.of, second.of) == ("steps", "collectives")


def test_without_steps_the_collectives_are_counted() -> None:
    assert lateness(_two(None, _late(90, 2.0), steps=None))[0].step_s == pytest.approx(0.02)


def test_ranks_that_never_met_are_not_late() -> None:
    assert lateness(_two(None, _late(0, 0.0, of=0))) == ()


def test_hidden_communication_is_beside_the_parts() -> None:
    record = parted(FAST, SLOW, hidden_s=3.0)
    assert mean_hidden(record) == 3.0 and sum(training_parts(record).values()) == pytest.approx(8.0)
    assert mean_hidden(parted(FAST, SLOW)) is None
