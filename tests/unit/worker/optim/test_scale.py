"""Updates that fp16 leaves out: counted, judged while the run goes on, and once more when it is over."""

from __future__ import annotations

import pytest

from paceline.worker.optim.scale import Skips, nothing_trained


def noted(pattern: str) -> Skips:
    """`x`: an update that was left out."""
    skips = Skips()
    for sign in pattern:
        skips.note(left_out=sign == "x")
    return skips


@pytest.mark.parametrize(
    ("pattern", "stuck", "trained"),
    [
        ("", False, True),  # no update was asked for
        (".", False, True),
        ("x" * 19, False, False),
        ("x" * 19 + ".", False, True),
        ("." + "x" * 20, True, True),
        (("x" * 19 + ".") * 3, False, True),  # the scale finds its place again and again
    ],
)
def test_when_there_is_no_use_in_going_on(pattern: str, stuck: bool, trained: bool) -> None:
    skips = noted(pattern)
    assert bool(skips.stuck) == stuck
    assert (nothing_trained(skips.read_back()) is None) == trained
    assert skips.read_back() == {"skipped_steps": pattern.count("x"), "steps": len(pattern)}


def test_no_scaler_no_verdict() -> None:
    assert nothing_trained(None) is None and nothing_trained({}) is None
    said = nothing_trained(noted("xxx").read_back())
    assert said is not None and said.startswith("fp16: all 3 updates of the run were left out")
