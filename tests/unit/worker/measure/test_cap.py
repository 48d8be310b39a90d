"""The memory cap is the kernel's own, and running out of it is a sentence."""

from __future__ import annotations

import subprocess
import sys

import pytest

from paceline.base.errors import RunFailed
from paceline.records.outcome import COMPLETED, failed, under_cap
from paceline.worker.measure.cap import Cap, ran_out

CAPPED = """
import resource
from paceline.worker.measure.cap import Cap
cap = Cap()
print(cap.nbytes)
cap.on_host("64M")
print(cap.nbytes)
cap.before_threads()
held = bytearray(40 << 20)
try:
    cap.before_threads()
except Exception as error:
    print("after" in str(error), error.kind)
try:
    bytearray(40 << 20)
except MemoryError:
    print("no")
del held
print(len(bytearray(40 << 20)))
"""


def test_the_kernel_keeps_it() -> None:
    """In a process of its own: a limit is not taken back."""
    done = subprocess.run([sys.executable, "-c", CAPPED], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["None", str(64 << 20), "True", "memory", "no", str(40 << 20)], done.stderr


def test_without_one_nothing_is_in_force() -> None:
    assert Cap().nbytes is None


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8000000 bytes."),
        RunFailed("net.py: model(): out of memory (RuntimeError: ...)", kind="memory"),
        RunFailed("rank 1 could not join the others over gloo (Resource temporarily unavailable)", kind="launch"),
        RuntimeError("can't start new thread"),
    ],
)  # fmt: skip
def test_running_out_names_the_cap_the_rank_and_what_to_do(error: Exception) -> None:
    found = ran_out(error, rank=1, cap="200M")
    assert found is not None and found.kind == "memory"
    assert (
        found.why.startswith("rank 1 ran out of memory (")
        and "memory_cap=200M" in found.why
        and "raise it" in found.why
    )
    if "8000000" in str(error):
        assert "wanted 8.0 MB more" in found.why


def test_what_lies_behind_an_error_is_looked_at() -> None:
    try:
        try:
            raise MemoryError
        except MemoryError as error:
            raise ValueError("odd") from error
    except ValueError as error:
        found = ran_out(error, rank=0, cap=None)
    assert found is not None and found.kind == "memory" and "memory_cap" not in found.why


def test_other_ends_stay_what_they_are() -> None:
    assert ran_out(ValueError("a bad value"), rank=0, cap="200M") is None
    assert ran_out(RuntimeError("Resource temporarily unavailable"), rank=0, cap=None) is None
    said = RunFailed("net.py: model(): out of memory (MemoryError)", kind="memory")
    assert ran_out(said, rank=0, cap=None) is None, "a sentence already"


def test_a_death_without_a_word_under_a_cap_is_its_doing() -> None:
    crash = failed("crash", "rank 0 crashed with SIGABRT")
    assert under_cap(crash, None) is crash
    assert under_cap(COMPLETED, "64M") is COMPLETED
    assert under_cap(failed("task", "wrong"), "64M").kind == "task"
    found = under_cap(crash, "64M")
    assert found.kind == "memory" and "crashed with SIGABRT: memory_cap=64M" in str(found.why)
