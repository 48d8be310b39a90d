"""The stopwatch against a clock with known answers: parts add up, and stays in communication are kept as spells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paceline.records.split import COMMUNICATION
from paceline.worker.measure import clock
from paceline.worker.measure.clock import Stopwatch


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Stopwatch:
    """Each reading is twice as far from the last one as the one before: 0, 1, 3, 7, 15, ..."""

    def readings() -> Iterator[float]:
        reading = 0.0
        while True:
            yield reading
            reading = 2 * reading + 1

    ticks = readings()
    monkeypatch.setattr(clock, "now", lambda: next(ticks))
    return Stopwatch("startup")


def test_every_second_is_in_exactly_one_part(watch: Stopwatch) -> None:
    for part in ("data", "forward", "data", "end"):
        watch.switch(part)
    assert watch.parts == {"startup": 1.0, "data": 2.0 + 8.0, "forward": 4.0}
    assert sum(watch.parts.values()) == 15.0


def test_a_stay_in_communication_is_a_spell(watch: Stopwatch) -> None:
    for part in (COMMUNICATION, "optimizer", COMMUNICATION, "data"):
        watch.switch(part)
    came, wait_began, left = map(list, watch.collective_times.take())
    assert came == wait_began == [1.0, 7.0] and left == [3.0, 15.0]
    assert len(watch.collective_times) == 0, "they are taken once"


def test_who_has_said_all_it_has_to_say_has_come(watch: Stopwatch) -> None:
    """Though it listens later; for one stay."""
    watch.arrived()
    for part in ("step", COMMUNICATION, "step", COMMUNICATION, "data"):
        watch.switch(part)
    came, wait_began, left = map(list, watch.collective_times.take())
    assert wait_began[0] > came[0] and wait_began[1] == came[1]
    assert watch.parts[COMMUNICATION] == sum(left) - sum(wait_began)


def test_who_listens_hears_both_parts(watch: Stopwatch) -> None:
    heard: list[tuple[str, str]] = []
    watch.on_switch = lambda before, after: heard.append((before, after))
    watch.switch("data")
    watch.switch("forward")
    assert heard == [("startup", "data"), ("data", "forward")]
