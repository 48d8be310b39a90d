"""Small-sample statistics against tables, hand computation and scipy's own tests."""

from __future__ import annotations

import math
import random

import pytest

from paceline.analysis import stats


def test_interval_by_hand() -> None:
    # mean 12, s = 2, t(0.975, 2 df) = 4.302653; half = 4.302653 * 2 / sqrt(3)
    found = stats.interval([10.0, 12.0, 14.0])
    assert found.mean == 12 and found.std == 2 and found.n == 3
    assert found.low == pytest.approx(12 - 4.302653 * 2 / math.sqrt(3), abs=1e-5)
    assert found.high == pytest.approx(12 + 4.302653 * 2 / math.sqrt(3), abs=1e-5)


def test_one_value_has_no_interval() -> None:
    found = stats.interval([3.0])
    assert (found.mean, found.low, found.high, found.std, found.n) == (3.0, None, None, None, 1)


def test_positive_interval_by_hand() -> None:
    # mean 12, half of the plain one 4.302653 * 2 / sqrt(3) = 4.96827; exp(4.96827 / 12) = 1.51289
    found = stats.positive_interval([10.0, 12.0, 14.0])
    assert (found.mean, found.std, found.n) == (12, 2, 3)
    assert (found.low, found.high) == (pytest.approx(12 / 1.51289, abs=1e-4), pytest.approx(12 * 1.51289, abs=1e-4))


@pytest.mark.parametrize(
    "values", [[1.0, 5.0], [0.01, 3.0, 0.02], [0.0, 0.0, 9.0], [1e-9, 1e9], [1.0] * 30 + [1e6], [5e-324, 1.0, 2.0]]
)
def test_an_interval_of_something_positive_is_positive_and_holds_the_mean(values: list[float]) -> None:
    found, plain = stats.positive_interval(values), stats.interval(values)
    assert found.low is not None and found.high is not None and plain.low is not None
    assert plain.low < 0, "the case is one in which it mattered"
    assert 0 < found.low < found.mean < found.high < math.inf


def test_positive_intervals_of_what_has_no_logarithm() -> None:
    assert stats.positive_interval([3.0]) == stats.interval([3.0]), "one value has a mean and nothing else"
    zeros = stats.positive_interval([0.0, 0.0])
    assert (zeros.mean, zeros.low, zeros.high) == (0, 0, 0)
    assert stats.positive_interval([-1.0, 2.0]) == stats.interval([-1.0, 2.0])


def test_a_small_spread_has_the_plain_interval() -> None:
    found, plain = (around([10.0, 10.1, 9.9, 10.05]) for around in (stats.positive_interval, stats.interval))
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high), rel=1e-3)


def test_paired_difference_by_hand() -> None:
    # differences 1, 2, 3: mean 2, s = 1, t = 2 / (1 / sqrt(3)) = 3.4641, p(2 df) = 0.0742
    found = stats.paired_difference([10, 20, 30], [11, 22, 33])
    assert found.value == pytest.approx(2) and found.p == pytest.approx(0.07418, abs=1e-4)
    assert found.low == pytest.approx(2 - 4.302653 / math.sqrt(3), abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_both_agree_with_scipy(seed: int) -> None:
    from scipy import stats as scipy_stats

    rng = random.Random(seed)
    a, b = [rng.gauss(5, 1) for _ in range(6)], [rng.gauss(5.5, 2) for _ in range(6)]
    for ours, theirs in (
        (stats.paired_difference(a, b), scipy_stats.ttest_rel(b, a)),
        (stats.welch_difference(a, b), scipy_stats.ttest_ind(b, a, equal_var=False)),
    ):
        bounds = theirs.confidence_interval(0.95)
        assert (ours.p, ours.low, ours.high) == pytest.approx((theirs.pvalue, bounds.low, bounds.high))


def test_welch_takes_samples_of_unequal_size() -> None:
    found = stats.welch_difference([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.5])
    assert found.n == 3 and found.low < found.value < found.high


def test_no_spread_is_exact() -> None:
    same, other = stats.paired_difference([1.0] * 3, [1.0] * 3), stats.welch_difference([1.0] * 3, [2.0] * 3)
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)
    assert (other.value, other.low, other.high, other.p) == (1, 1, 1, 0)


def test_ratio_is_taken_on_the_log_scale() -> None:
    found = stats.ratio([1.0, 2.0, 4.0], [2.0, 4.4, 7.6], paired=True)
    assert found.value == pytest.approx((2.0 * 2.2 * 1.9) ** (1 / 3))
    assert found.value / found.low == pytest.approx(found.high / found.value)
    assert stats.ratio([2.0, 4.4, 7.6], [1.0, 2.0, 4.0], paired=True).value == pytest.approx(1 / found.value)


def test_benjamini_hochberg_by_hand() -> None:
    # sorted p 0.01 0.02 0.03 0.04: each times 4 / rank, then the running minimum from the right: all 0.04
    assert stats.false_discovery([0.01, 0.04, 0.03, 0.02]) == pytest.approx([0.04] * 4)
    assert stats.false_discovery([0.001, 0.5]) == pytest.approx([0.002, 0.5])
    assert stats.false_discovery([]) == []


def test_positive_intervals_cover_what_they_say() -> None:
    """Of times with a long tail, where the plain interval is below the mean too often."""
    rng, num = random.Random(5), {stats.interval: 0, stats.positive_interval: 0}
    for _ in range(600):
        drawn = [math.exp(rng.gauss(0, 0.5)) for _ in range(5)]
        for around in num:
            found = around(drawn)
            assert found.low is not None and found.high is not None
            num[around] += found.low <= math.exp(0.125) <= found.high
    assert 0.92 <= num[stats.positive_interval] / 600 <= 0.97 and num[stats.positive_interval] > num[stats.interval]


def test_interval_covers_what_it_says() -> None:
    """95 % of intervals of three values hold the mean; the bootstrap's 77 % would fail this."""
    rng = random.Random(11)
    held = 0
    for _ in range(600):
        found = stats.interval([rng.gauss(10, 2) for _ in range(3)])
        assert found.low is not None and found.high is not None
        held += found.low <= 10 <= found.high
    assert 0.92 <= held / 600 <= 0.98
