"""Waiting and transfer from arrivals with known answers, and from two ranks whose clocks do not agree."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.worker.measure.arrivals import wait_times
from paceline.worker.measure.overlap import covered


def test_the_last_one_ends_everybodys_waiting() -> None:
    came = np.array([[0.0, 0.0, 4.0], [1.0, 0.0, 0.0], [3.0, 2.0, 1.0]])
    stayed = np.array([[4.0, 3.0, 1.0], [3.0, 3.0, 5.0], [1.0, 1.0, 4.0]])
    rows = [wait_times(came, stayed[rank], rank=rank) for rank in range(3)]
    assert [row.waited_s for row in rows] == [3.0 + 2.0 + 0.0, 2.0 + 2.0 + 4.0, 0.0 + 0.0 + 3.0]
    assert [row.num_last for row in rows] == [1, 0, 2]
    assert [row.delay_s for row in rows] == [3.0, 0.0, 2.0 + 2.0], (
        "beyond the second last: the others' own lateness is theirs"
    )


def test_who_did_something_else_meanwhile_did_not_wait() -> None:
    """Both came at once; one wait_began later than the other, which kept nobody waiting. Then one comes while the other is busy."""
    came = np.array([[0.0, 0.0], [0.0, 5.0]])
    first = wait_times(came, np.array([1.0, 3.0]), rank=0, wait_began=np.array([0.5, 3.0]))
    second = wait_times(came, np.array([1.0, 1.0]), rank=1, wait_began=np.array([4.0, 6.0]))
    assert (first.waited_s, second.waited_s) == (2.0, 0.0)
    assert (first.lag_s, second.lag_s, second.delay_s) == (-5.0, 5.0, 5.0)


def test_nobody_waits_longer_than_it_was_there() -> None:
    """Clocks that disagree by more than a message takes must not make transfer negative."""
    found = wait_times(np.array([[0.0], [5.0]]), np.array([2.0]), rank=0)
    assert found.waited_s == 2.0


def test_equal_ranks_share_no_blame() -> None:
    rows = [wait_times(np.zeros((4, 10)), np.ones(10), rank=rank) for rank in range(4)]
    assert sum(row.num_last for row in rows) == 10 and all(row.delay_s == row.waited_s == 0 for row in rows)


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [([], 0.0), ([(0.0, 1.0)], 1.0), ([(0.0, 5.0), (1.0, 2.0)], 5.0), ([(3.0, 4.0), (0.0, 1.0)], 2.0)],
)
def test_messages_on_their_way_together_count_once(spans: list[tuple[float, float]], seconds: float) -> None:
    assert covered(spans) == seconds
