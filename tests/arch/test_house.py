"""The real tree keeps to the plan of the house. What counts as a violation is shown in `test_planted.py`."""

from __future__ import annotations

from pathlib import Path

from arch import house
from arch.check import Violation, check
from arch.source import PACKAGE

SRC = Path(__file__).resolve().parents[2] / "src" / PACKAGE


def test_the_tree_keeps_to_the_plan() -> None:
    violations = check(SRC)
    assert not violations, "\n" + "\n".join(map(str, violations))


def test_every_exception_has_a_reason() -> None:
    reasons = [reason for door in house.DOORS for reason in door.owners.values()]
    reasons += [
        *house.TYPES_ONLY.values(),
        *house.ENTRY_POINTS.values(),
        *house.COMMANDS.values(),
        *(why for _, why in house.LONG_FILES.values()),
        *(why for _, _, why in house.LARGE.values()),
    ]
    assert all(len(reason) > 5 for reason in reasons)


def _about(exception: str, violation: Violation) -> bool:
    path, name = exception.split()
    return violation.path == path and violation.sentence.startswith((f"{name}() ", f"class {name} "))


def test_every_exception_is_still_needed() -> None:
    """One that nothing uses any more would let the next long function in unseen."""
    without = check(SRC, exceptions={})
    unused = [name for name in house.LARGE if not any(_about(name, violation) for violation in without)]
    assert not unused, unused


def test_the_plan_itself_has_no_ring() -> None:
    """A plan that allowed a ring could not be kept: some room would have to be understood before itself."""
    left = {room: set(allowed) for room, allowed in house.ROOMS.items()}
    while ready := [room for room, allowed in left.items() if not allowed & left.keys()]:
        for room in ready:
            del left[room]
    assert not left
